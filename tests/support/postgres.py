"""A private PostgreSQL server for tests: started on a socket of its own, ended with them."""

import os
import pwd
import secrets
import shutil
import socket
import subprocess
import time
from pathlib import Path


def binaries() -> Path | None:
    """Return the folder with initdb and pg_ctl, or None where PostgreSQL is not installed."""
    found = sorted(
        Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name)
    )
    if found:
        return found[-1]
    which = shutil.which("initdb")
    return Path(which).parent if which else None


def roomy_memory() -> str | None:
    """Return a folder in memory with room for a server, or None.

    There each test's database costs no disk's time.
    """
    try:
        return "/dev/shm" if shutil.disk_usage("/dev/shm").free > 3 << 30 else None
    except OSError:
        return None


def free_port() -> int:
    """Return a free port below those that the kernel gives to outgoing connections."""
    while True:
        port = 20000 + secrets.randbelow(10000)
        with socket.socket() as attempt:
            try:
                attempt.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port


class PostgresServer:
    """A server in a folder.

    As root it runs as the postgres user, since PostgreSQL refuses to be root.
    """

    def __init__(self, folder: Path) -> None:
        place = binaries()
        assert place is not None
        self.bin = place
        self.folder = folder
        self.data = folder / "data"
        self.password = secrets.token_hex(16)
        self.port = 0
        self.make_folder(folder)

    @staticmethod
    def make_folder(folder: Path) -> None:
        """Make a folder for the user that the server runs as."""
        folder.mkdir(parents=True, exist_ok=True)
        if os.getuid() == 0:
            user = pwd.getpwnam("postgres")
            os.chown(folder, user.pw_uid, user.pw_gid)
            for parent in folder.parents:
                if parent.stat().st_uid == 0 and not parent.stat().st_mode & 0o001:
                    parent.chmod(parent.stat().st_mode | 0o011)

    def run(self, *command: str, check: bool = True) -> subprocess.CompletedProcess[bytes]:
        prefix = ["runuser", "-u", "postgres", "--"] if os.getuid() == 0 else []
        return subprocess.run(
            [*prefix, *command], check=check, capture_output=True, cwd=self.folder
        )

    def create(self) -> None:
        secret = self.folder / "password"
        secret.write_text(self.password)
        secret.chmod(0o644)
        self.run(
            str(self.bin / "initdb"), "-D", str(self.data), "-U", "vtjobs", "--auth=scram-sha-256",
            f"--pwfile={secret}", "-E", "UTF8", "--no-sync",
        )  # fmt: skip
        secret.unlink()

    def create_standby_of(self, primary: "PostgresServer") -> None:
        """Copy another server, and follow it once started."""
        self.password = primary.password
        self.run(
            "env", f"PGPASSWORD={primary.password}", str(self.bin / "pg_basebackup"),
            "-h", "127.0.0.1", "-p", str(primary.port), "-U", "vtjobs", "-D", str(self.data),
            "-R", "-c", "fast", "-X", "stream", "--no-sync",
        )  # fmt: skip

    def start(self) -> None:
        """Start the server, at first on a port that nobody else takes meanwhile."""
        for _ in range(1 if self.port else 10):
            fresh = not self.port
            self.port = self.port or free_port()
            try:
                self._start()
                return
            except subprocess.CalledProcessError:
                self.port = 0 if fresh else self.port
        raise RuntimeError((self.folder / "log").read_text()[-2000:])

    def _start(self) -> None:
        options = (
            f"-k {self.folder} -p {self.port} -c listen_addresses=127.0.0.1 -c max_connections=50"
        )
        # The tests crash the server's processes, never the machine: what was written is there
        # without fsync.
        options += " -c fsync=off"
        log = str(self.folder / "log")
        self.run(
            str(self.bin / "pg_ctl"), "-D", str(self.data), "-l", log, "-w", "-o", options, "start"
        )

    def stop(self, mode: str = "fast") -> None:
        self.run(
            str(self.bin / "pg_ctl"), "-D", str(self.data), "-m", mode, "-w", "stop", check=False
        )

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://vtjobs:{self.password}@127.0.0.1:{self.port}/{database}"

    def new_database(self, options: str = "") -> str:
        """Make an empty database with these options of CREATE DATABASE; return its URL."""
        import psycopg

        name = f"t_{secrets.token_hex(6)}"
        for _ in range(20):
            try:
                with psycopg.connect(self.url(), autocommit=True) as connection:
                    connection.execute(f"CREATE DATABASE {name} {options}")
                return self.url(name)
            except psycopg.OperationalError:
                time.sleep(0.25)
        raise RuntimeError("the private PostgreSQL server does not answer")
