"""Processes of one cluster.

Started with a pid file each, found again and ended by it, never by name.
"""

import fcntl
import getpass
import json
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from settings import Daemon

# Below the kernel's range for outgoing connections, above what services like to use.
PORTS = range(20_000, 32_000)
START_WITHIN_S = 30.0


class Failed(Exception):
    """What the user is told, in place of a traceback."""


def command(
    argv: list[str], *, env: dict[str, str] | None = None, timeout_s: float
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; one that hangs counts as failed."""
    try:
        return subprocess.run(argv, env=env, timeout=timeout_s, capture_output=True, text=True)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(
            argv, 124, "", f"{argv[0]} did not end within {timeout_s:.0f} s"
        )


def wait_for(ready: Callable[[], object], what: str, log: Callable[[], str]) -> None:
    """Return once `ready` says so; fail with the logs when it never does."""
    deadline = time.monotonic() + START_WITHIN_S
    while not ready():
        if time.monotonic() > deadline:
            raise Failed(f"{what} did not come up within {START_WITHIN_S:.0f} s\n{log()}")
        time.sleep(0.05)


def reserve_ports(folder: Path, count: int) -> list[int]:
    """Choose free ports and keep other clusters of this user off them for as long as the folder
    exists.

    A look alone would not do: two clusters that start together would see the same port free.
    """
    register = Path(f"/tmp/slurm-dev-ports-{os.getuid()}")
    with register.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        text = file.read()
        known = json.loads(text or "{}").items()
        held = {
            port: owner for port, owner in known if Path(owner).exists() and owner != str(folder)
        }
        free = [
            port
            for port in random.sample(PORTS, 20 * count)
            if str(port) not in held and is_free(port)
        ]
        chosen = sorted(free[:count])
        file.truncate(0)
        file.write(json.dumps(held | dict.fromkeys(map(str, chosen), str(folder))))
    return chosen


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("0.0.0.0", port))
        except OSError:
            return False
    return True


def start_time(pid: int) -> str | None:
    """Return when a process started, in the kernel's ticks, or None where it is gone.

    A zombie is gone.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else fields[19]


def parent_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def open_files(process: Path) -> list[Path]:
    """Return what the file descriptors of a process point at."""
    found = []
    for link in (process / "fd").iterdir():
        try:
            found.append(link.readlink())
        except OSError:
            continue
    return found


def send(pids: list[int], signal_number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal_number)
        except ProcessLookupError:
            continue


def end(pids: list[int], signal_number: int, within_s: float) -> list[int]:
    """Signal processes and return those that are still there after a while."""
    born = {pid: start_time(pid) for pid in pids}
    send(pids, signal_number)
    # A paused process takes no other signal than KILL until it goes on.
    send(pids, signal.SIGCONT)
    deadline = time.monotonic() + within_s
    while True:
        left = [
            pid
            for pid, started in born.items()
            if started is not None and start_time(pid) == started
        ]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.02)


class Processes:
    """The daemons of a cluster by name, and the processes of its jobs."""

    def __init__(self, folder: Path, daemons: dict[str, Daemon]) -> None:
        self.folder = folder
        self.daemons = daemons
        self.user = getpass.getuser()

    def nodes(self) -> list[str]:
        """Return the daemons that are nodes."""
        return [name for name, daemon in self.daemons.items() if daemon.argv[0] == "slurmd"]

    def environment(self) -> dict[str, str]:
        """Return an environment for the cluster's programs: nothing of another cluster's in it."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("SLURM", "SBATCH_"))
        }
        path = kept.get("PATH", os.defpath) + ":/usr/sbin:/sbin"
        return {**kept, "PATH": path, "SLURM_CONF": f"{self.folder}/slurm.conf"}

    def pid_file(self, name: str) -> Path:
        return self.folder / "run" / f"{name}.pid"

    def pid(self, name: str) -> int | None:
        """Return the pid of a daemon that runs.

        The process of that number that started at the time we noted.
        """
        try:
            pid, started = self.pid_file(name).read_text().split()
        except (FileNotFoundError, ValueError):
            return None
        return int(pid) if start_time(int(pid)) == started else None

    def start(self, name: str) -> bool:
        """Start a daemon unless it runs; say whether it had to be started."""
        if (pid := self.pid(name)) is not None:
            # One that somebody paused is needed now.
            os.kill(pid, signal.SIGCONT)
            return False
        daemon = self.daemons[name]
        output = self.folder / "log" / f"{name}.out"
        with output.open("a") as log, open(os.devnull) as nothing:
            process = subprocess.Popen(
                daemon.argv,
                stdin=nothing,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=self.environment() | daemon.env,
                start_new_session=True,
            )
        self.pid_file(name).write_text(f"{process.pid} {start_time(process.pid)}\n")
        return True

    def stop(self) -> None:
        """End the cluster.

        No node may start another job, then jobs, then the services that nodes talk to.
        """
        nodes = self.nodes()
        services = [name for name in reversed(self.daemons) if name not in nodes]
        self.end_daemons(nodes, signal.SIGKILL)
        deadline = time.monotonic() + START_WITHIN_S
        while (jobs := self.job_processes()) and time.monotonic() < deadline:
            end(jobs, signal.SIGKILL, 1.0)
        for name in services:
            self.end_daemons([name], signal.SIGTERM)

    def signal(self, name: str, signal_number: int, *, steps: bool) -> None:
        """Send a signal to a daemon; `steps` has a node's step daemons and jobs get it as well."""
        pid = self.pid(name)
        pids = [pid] if pid is not None else []
        pids += self.job_processes({name}) if steps else []
        if signal_number == signal.SIGKILL:
            # Whoever starts it again next must not take the dying one for running.
            end(pids, signal_number, 5.0)
        else:
            send(pids, signal_number)

    def end_daemons(self, names: list[str], signal_number: int) -> None:
        pids = [pid for name in names if (pid := self.pid(name)) is not None]
        left = end(pids, signal_number, 5.0)
        if left and end(left, signal.SIGKILL, 5.0):
            raise Failed(f"processes {left} do not end")
        for name in names:
            self.pid_file(name).unlink(missing_ok=True)

    def job_processes(self, nodes: set[str] | None = None) -> list[int]:
        """Return the step daemons of these nodes (of all where none is named) and every process of
        their jobs.
        """
        wanted = nodes or set(self.nodes())
        children: dict[int, list[int]] = {}
        roots = []
        for pid in (int(entry.name) for entry in Path("/proc").glob("[0-9]*")):
            children.setdefault(parent_of(pid), []).append(pid)
            if self.node_of(pid) in wanted:
                roots.append(pid)
        found: dict[int, None] = {}
        while roots:
            pid = roots.pop()
            if pid not in found:
                found[pid] = None
                roots += children.get(pid, [])
        return [pid for pid in found if start_time(pid) is not None]

    def node_of(self, pid: int) -> str | None:
        """Return the node of this cluster that a step daemon or a job's process belongs to."""
        process = Path(f"/proc/{pid}")
        try:
            if (process / "exe").readlink().name.startswith("slurmstepd"):
                # It overwrites its environment with its title, and keeps its node's log open.
                logs = [link for link in open_files(process) if link.parent == self.folder / "log"]
                return logs[0].stem if logs else None
            words = (process / "environ").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            return None
        # A user's own programs know SLURM_CONF as well; a node's name is known to jobs alone.
        variables = dict(word.split("=", 1) for word in words if "=" in word)
        ours = variables.get("SLURM_CONF") == f"{self.folder}/slurm.conf"
        return variables.get("SLURMD_NODENAME") if ours else None
