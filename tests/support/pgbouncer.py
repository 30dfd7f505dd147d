"""A private pgbouncer in transaction mode, before a private PostgreSQL server."""

import os
import shutil
import socket
import subprocess
import time

from .postgres import PostgresServer, free_port

# How long it may take to listen, and to end.
START_S = 20.0


def bouncer_binary() -> str | None:
    """Return the path of pgbouncer, or None where it is not installed."""
    return shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


class PgBouncer:
    """A pooler whose clients share few connections: each transaction may come to another one."""

    def __init__(self, server: PostgresServer, *, connections: int = 2) -> None:
        self.server = server
        self.connections = connections
        # In the server's folder, which belongs to the user that both run as.
        self.folder = server.folder / "pgbouncer"
        self.port = 0
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it on a port that nobody else takes meanwhile."""
        program = bouncer_binary()
        assert program is not None
        self.server.make_folder(self.folder)
        user = "postgres" if os.getuid() == 0 else None
        for _ in range(10):
            self.port = free_port()
            self._configure()
            with (self.folder / "log").open("wb") as log:
                self.process = subprocess.Popen(
                    [program, str(self.folder / "settings.ini")],
                    stdout=log,
                    stderr=log,
                    user=user,
                    group=user,
                )
            if self._listens(self.process):
                return
        raise RuntimeError((self.folder / "log").read_text()[-2000:])

    def _configure(self) -> None:
        users = self.folder / "users"
        users.write_text(f'"vtjobs" "{self.server.password}"\n')
        # A test leaves its database behind: what is idle there is given back at once.
        settings = self.folder / "settings.ini"
        settings.write_text(
            f"[databases]\n* = host=127.0.0.1 port={self.server.port}\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {self.port}\nunix_socket_dir =\n"
            f"auth_type = scram-sha-256\nauth_file = {users}\n"
            f"pool_mode = transaction\ndefault_pool_size = {self.connections}\n"
            "max_client_conn = 200\nserver_idle_timeout = 1\n"
        )
        for path in (users, settings):
            path.chmod(0o644)

    def _listens(self, process: subprocess.Popen[bytes]) -> bool:
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            except OSError:
                time.sleep(0.02)
                continue
            return True
        process.kill()
        process.wait()
        return False

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(START_S)

    def url(self, through: str) -> str:
        """Return the URL of a database through the pooler, from its URL at the server."""
        return through.replace(f":{self.server.port}/", f":{self.port}/")
