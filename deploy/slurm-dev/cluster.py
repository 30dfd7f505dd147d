"""Start and stop a private SLURM cluster that lives in one folder, without systemd and beside any
other.

The folder is made once; `up` on it again starts what is not running, so `down` and a killed daemon
are both undone.
"""

import argparse
import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

from processes import Failed, Processes, command, reserve_ports, wait_for
from profiles import PROFILES, Limits
from settings import (
    Options,
    daemons,
    gres_conf,
    most_gpus,
    node_names,
    ports_needed,
    slurm_conf,
    slurmdbd_conf,
)

# Debian's package of each program that the cluster starts.
PACKAGES = {
    "munged": "munge",
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "srun": "slurm-client",
}
ACCOUNTING_PACKAGES = {
    "slurmdbd": "slurmdbd",
    "mariadbd": "mariadb-server",
    "mariadb-install-db": "mariadb-server",
}
# A socket's address has 108 bytes on Linux; the longest below the folder is run/mariadb.socket.
LONGEST_FOLDER = 80


def missing_packages(options: Options) -> list[str]:
    """Return the packages to install before the cluster can start."""
    needed = PACKAGES | (ACCOUNTING_PACKAGES if options.shape.accounting else {})
    path = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"
    return sorted(
        {package for program, package in needed.items() if not shutil.which(program, path=path)}
    )


class Cluster:
    """One cluster: its folder, its options and ports as chosen when it was made, its processes."""

    def __init__(self, folder: Path, options: Options, ports: list[int]) -> None:
        self.folder = folder
        self.options = options
        self.ports = ports
        self.processes = Processes(folder, daemons(folder, options))

    @classmethod
    def make(cls, folder: Path, options: Options) -> "Cluster":
        """Write everything that the daemons read.

        Cluster.json comes last and says that the folder is whole.
        """
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if any(folder.iterdir()):
            raise Failed(f"{folder} holds something that is not a cluster; name a new folder")
        ports = reserve_ports(folder, ports_needed(options))
        for name in ("run", "log", "state", "spool", "dev"):
            (folder / name).mkdir(mode=0o700)
        for name in node_names(options):
            (folder / "spool" / name).mkdir()
        for index in range(most_gpus(options)):
            fake_device(folder / "dev" / f"nvidia{index}")
        write(folder / "munge.key", os.urandom(128))
        write(folder / "slurm.conf", slurm_conf(folder, options, ports).encode())
        write(folder / "gres.conf", gres_conf(folder, options).encode())
        write(folder / "slurmdbd.conf", slurmdbd_conf(folder, ports).encode())
        write(folder / "env", f"export SLURM_CONF={folder}/slurm.conf\n".encode())
        made = cls(folder, options, ports)
        if options.shape.accounting:
            made.make_database()
        write(
            folder / "cluster.json",
            json.dumps({"options": options.as_dict(), "ports": ports}).encode(),
        )
        return made

    @classmethod
    def read(cls, folder: Path) -> "Cluster | None":
        """Return the cluster of a folder, or None where there is none."""
        try:
            document = json.loads((folder / "cluster.json").read_text())
        except FileNotFoundError:
            return None
        return cls(folder, Options(**document["options"]), document["ports"])

    def make_database(self) -> None:
        argv = [
            "mariadb-install-db",
            "--no-defaults",
            f"--datadir={self.folder}/database",
            "--skip-test-db",
        ]
        # Root of the database needs no password: the socket lies in a folder that only its owner
        # may enter.
        argv += ["--auth-root-authentication-method=normal", "--innodb-log-file-size=8M"]
        argv += [f"--user={self.processes.user}"]
        done = command(argv, timeout_s=60)
        if done.returncode:
            raise Failed(f"mariadb-install-db failed:\n{done.stdout}{done.stderr}")

    def start(self) -> None:
        """Start what is not running and return when the cluster takes jobs."""
        self.processes.start("munged")
        wait_for(
            lambda: self.ask("munge", "-n", "-S", f"{self.folder}/run/munge.socket"),
            "munged",
            self.log,
        )
        if self.options.shape.accounting:
            self.start_accounting()
        self.processes.start("slurmctld")
        nodes = [name for name in node_names(self.options) if self.processes.start(name)]
        wait_for(lambda: "UP" in (self.ask("scontrol", "ping") or ""), "slurmctld", self.log)
        wait_for(lambda: self.answering(nodes), "the nodes", self.log)

    def start_accounting(self) -> None:
        self.processes.start("mariadbd")
        wait_for((self.folder / "run" / "mariadb.socket").exists, "mariadbd", self.log)
        self.processes.start("slurmdbd")
        wait_for(
            lambda: self.ask("sacctmgr", "-n", "list", "cluster") is not None, "slurmdbd", self.log
        )
        if not (self.folder / "state" / "account").exists():
            user = self.processes.user
            for words in (
                ["add", "cluster", "dev"],
                ["add", "account", "lab"],
                ["add", "user", user, "account=lab"],
                ["modify", "user", user, "set", "DefaultAccount=lab"],
                *limiting(self.options.shape.limits, user),
            ):
                if self.ask("sacctmgr", "-i", *words) is None:
                    raise Failed(f"sacctmgr refused: {' '.join(words)}")
            write(self.folder / "state" / "account", b"lab\n")

    def ask(self, *argv: str) -> str | None:
        """Return what a client of the cluster printed, or None where it failed."""
        done = command(list(argv), env=self.processes.environment(), timeout_s=20)
        return done.stdout if done.returncode == 0 else None

    def answering(self, nodes: list[str]) -> bool:
        """Say whether the controller has heard of these nodes since they started."""
        states = (
            self.ask("sinfo", "-h", "-N", "-o", "%N %t", "-n", ",".join(nodes)) if nodes else ""
        )
        return states is not None and not any(
            line.endswith(("*", "unk")) for line in states.splitlines()
        )

    def log(self) -> str:
        """Return the ends of the daemons' logs, for the message of a start that failed."""
        tails = []
        for path in sorted((self.folder / "log").iterdir()):
            lines = path.read_text(errors="replace").splitlines()
            tails += [f"== {path}", *lines[-5:]]
        return "\n".join(tails)


def limiting(limits: tuple[Limits, ...], user: str) -> Iterator[list[str]]:
    """Yield what sacctmgr is told to limit a user."""
    for limit in limits:
        if limit.qos is None:
            yield ["modify", "user", user, "set", *limit.values]
        else:
            yield ["add", "qos", limit.qos]
            yield ["modify", "qos", limit.qos, "set", *limit.values]
            yield ["modify", "user", user, "set", f"qos+={limit.qos}", "DefaultQOS=normal"]


def write(path: Path, content: bytes) -> None:
    """Write a file that only its owner may read."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)


def fake_device(path: Path) -> None:
    """Make a file that SLURM takes for a GPU.

    It looks at its name and that it is there, and never opens it.
    """
    path.symlink_to("/dev/null")


def parse(argv: list[str]) -> tuple[Path, Options | None]:
    """Return the folder and the options; None where none was given."""
    parser = argparse.ArgumentParser(
        prog="up", description="A private SLURM cluster of virtual nodes in a folder."
    )
    parser.add_argument("folder", metavar="DIR", type=Path, help="where everything of it lives")
    parser.add_argument(
        "--profile", choices=list(PROFILES), help="the cluster's shape (default: default)"
    )
    parser.add_argument("--nodes", type=int, help="virtual nodes of the first kind")
    parser.add_argument(
        "--no-accounting", dest="accounting", action="store_const", const=False, help="no slurmdbd"
    )
    parser.add_argument("--max-array-size", type=int, help="MaxArraySize")
    parser.add_argument(
        "--grace", type=int, metavar="SECONDS", help="GraceTime of the partition low (default 0)"
    )
    parser.add_argument(
        "--preempt-mode",
        choices=["REQUEUE", "CANCEL"],
        help="of the partition low (default REQUEUE)",
    )
    parser.add_argument(
        "--fast", action="store_const", const=True, help="short timers: jobs start within a second"
    )
    given = {
        name: value for name, value in vars(parser.parse_args(argv)).items() if value is not None
    }
    folder = given.pop("folder").resolve()
    if given.get("nodes", 1) < 1:
        parser.error("--nodes must be at least 1")
    return folder, Options(**given) if given else None


def start_new(cluster: Cluster) -> None:
    """Start a cluster for the first time.

    One that cannot start, or whose start is broken off, leaves no process.
    """
    try:
        cluster.start()
    except BaseException:
        cluster.processes.stop()
        raise


def up(argv: list[str]) -> int:
    """Make a cluster or start the one that is there, and print how to use it."""
    folder, options = parse(argv)
    try:
        if len(str(folder)) > LONGEST_FOLDER:
            raise Failed(
                f"{folder} is too long for the sockets in it: at most {LONGEST_FOLDER} characters"
            )
        cluster = Cluster.read(folder)
        if cluster is not None and options not in (None, cluster.options):
            raise Failed(f"{folder} is a cluster with other options; stop it and name a new folder")
        wanted = cluster.options if cluster else options or Options()
        if missing := missing_packages(wanted):
            raise Failed(f"please install: apt-get install {' '.join(missing)}")
        os.environ["PATH"] = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"
        if cluster is not None:
            cluster.start()
        else:
            start_new(Cluster.make(folder, wanted))
    except Failed as error:
        print(f"up: {error}", file=sys.stderr)
        return 1
    print((folder / "env").read_text(), end="")
    return 0


def down(argv: list[str]) -> int:
    """Stop a cluster; a folder without one, or one that is stopped, is left as it is."""
    parser = argparse.ArgumentParser(prog="down", description="Stop a private SLURM cluster.")
    parser.add_argument("folder", metavar="DIR", type=Path)
    cluster = Cluster.read(parser.parse_args(argv).folder.resolve())
    if cluster is None:
        return 0
    try:
        cluster.processes.stop()
    except Failed as error:
        print(f"down: {error}", file=sys.stderr)
        return 1
    return 0


def fault(argv: list[str]) -> int:
    """Break one daemon of a cluster; `up` mends it."""
    parser = argparse.ArgumentParser(
        prog="fault", description="Break one daemon of a private SLURM cluster."
    )
    parser.add_argument("folder", metavar="DIR", type=Path)
    parser.add_argument("what", choices=["kill", "pause", "resume"])
    parser.add_argument("name", help="slurmctld, slurmdbd, mariadbd, munged, gpu0, gpu1, …")
    parser.add_argument(
        "--steps", action="store_true", help="a node's jobs too: the whole machine dies"
    )
    given = parser.parse_args(argv)
    cluster = Cluster.read(given.folder.resolve())
    if cluster is None or given.name not in cluster.processes.daemons:
        print(f"fault: {given.folder} has no {given.name}", file=sys.stderr)
        return 1
    numbers = {"kill": signal.SIGKILL, "pause": signal.SIGSTOP, "resume": signal.SIGCONT}
    cluster.processes.signal(given.name, numbers[given.what], steps=given.steps)
    return 0
