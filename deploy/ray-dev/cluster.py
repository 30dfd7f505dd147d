"""Start and stop a private Ray cluster in a folder.

Several nodes on one machine, with a token and pretended GPUs.
"""

import argparse
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

# What tells every process of a cluster, its jobs' included, from all others.
MARK = "VTJOBS_RAY_DEV"
START_WITHIN_S = 180.0
STOP_WITHIN_S = 10.0
OBJECT_STORE_BYTES = 80 << 20
# Seconds, where Ray's own are half a minute and more: how soon a dead node, and a dead head, is
# noticed.
FAST = {
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "1000",
    "RAY_health_check_failure_threshold": "3",
    "RAY_gcs_rpc_server_reconnect_timeout_s": "3",
}


class Failed(Exception):
    """What the user is told, in place of a traceback."""


class Cluster:
    """A cluster in a folder; `cluster.json` there says what it is made of."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "cluster.json"
        self.settings = json.loads(self.path.read_text()) if self.path.exists() else {}

    def make(self, **settings: object) -> None:
        """Write down what it is made of, once."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        token = os.open(self.folder / "token", os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600)
        os.write(token, secrets.token_hex(32).encode())
        os.close(token)
        self.settings = {**settings, "ports": free_ports(3)}
        self.save()

    def save(self) -> None:
        self.path.write_text(json.dumps(self.settings))

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.settings['ports'][1]}"

    def environment(self) -> dict[str, str]:
        """Return the environment of the cluster's processes: nothing of another cluster's in it."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        fast = FAST if self.settings.get("fast") else {}
        auth = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(self.folder / "token")}
        path = f"{Path(sys.executable).parent}:{kept.get('PATH', os.defpath)}"
        return {
            **kept,
            **fast,
            **auth,
            "PATH": path,
            "RAY_USAGE_STATS_ENABLED": "0",
            MARK: str(self.folder),
        }

    def up(self) -> list[str]:
        """Start what does not run; return the names of what was started."""
        started = []
        if not self.runs(0):
            self._end_rest()
        for number in range(self.settings["nodes"]):
            if not self.runs(number):
                self._start(number)
                started.append(f"node {number}")
            if number == 0:
                wait_for(self.answers, "the head", self.log(0))
        wait_for(
            lambda: self.alive() >= self.settings["nodes"],
            "the nodes",
            self.log(self.settings["nodes"] - 1),
        )
        return started

    def _start(self, number: int) -> None:
        gcs, dashboard, client = self.settings["ports"]
        command = [
            "ray",
            "start",
            "--block",
            "--disable-usage-stats",
            f"--object-store-memory={OBJECT_STORE_BYTES}",
        ]
        command += [f"--num-cpus={self.settings['cpus']}", f"--num-gpus={self.settings['gpus']}"]
        command += [f"--dashboard-agent-listen-port={free_ports(1)[0]}"]
        if number == 0:
            # Ray's sockets lie there, and their paths may have 107 characters.
            command += [
                "--head",
                f"--port={gcs}",
                f"--temp-dir={self.folder}/t",
                f"--ray-client-server-port={client}",
            ]
            command += ["--dashboard-host=127.0.0.1", f"--dashboard-port={dashboard}"]
        else:
            command += [f"--address={own_address()}:{gcs}"]
        with self.log(number).open("a") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environment(),
                cwd="/",
                start_new_session=True,
            )
        (self.folder / f"node-{number}.pid").write_text(str(process.pid))

    def _end_rest(self) -> None:
        """End what is left of a cluster whose head is gone.

        Ray takes it for one that runs, and starts no other.
        """
        deadline = time.monotonic() + STOP_WITHIN_S
        while (
            left := [pid for pid in self.processes() if b"--gcs-address=" in command_of(pid)]
        ) and (time.monotonic() < deadline):
            send(left, signal.SIGKILL)
            time.sleep(0.1)

    def log(self, number: int) -> Path:
        return self.folder / f"node-{number}.log"

    def runs(self, number: int) -> bool:
        """Whether the process that keeps a node is one of this cluster."""
        path = self.folder / f"node-{number}.pid"
        return path.exists() and int(path.read_text()) in self.processes()

    def processes(self) -> list[int]:
        """Return every process that has this cluster's mark."""
        mark = f"{MARK}={self.folder}".encode()
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                words = (entry / "environ").read_bytes().split(b"\0")
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if mark in words and state != "Z":
                found.append(int(entry.name))
        return found

    def ask(self, path: str) -> dict:
        token = (self.folder / "token").read_text()
        request = urllib.request.Request(
            self.address + path, headers={"Authorization": f"Bearer {token}"}
        )
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
            request, timeout=5
        ) as answer:
            return json.loads(answer.read())

    def answers(self) -> bool:
        try:
            return "ray_version" in self.ask("/api/version") and self.alive() > 0
        except (OSError, ValueError):
            return False

    def alive(self) -> int:
        """Return how many nodes the head knows to be alive."""
        try:
            rows = self.ask("/api/v0/nodes?limit=1000")["data"]["result"]["result"]
        except (OSError, ValueError, KeyError, TypeError):
            return 0
        return sum(row["state"] == "ALIVE" for row in rows)

    def down(self) -> None:
        """End every process of the cluster, jobs included."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            deadline = time.monotonic() + STOP_WITHIN_S
            while (left := self.processes()) and time.monotonic() < deadline:
                send(left, number)
                time.sleep(0.2)


def send(pids: list[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def own_address() -> str:
    """Return this machine's address as Ray finds it: that of the default route."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("8.8.8.8", 80))
        except OSError:
            return "127.0.0.1"
        return probe.getsockname()[0]


def free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("", 0))
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()


def wait_for(ready: Callable[[], object], what: str, log: Path) -> None:
    """Return once `ready` says so; fail with the end of the log when it never does."""
    deadline = time.monotonic() + START_WITHIN_S
    while not ready():
        if time.monotonic() > deadline:
            raise Failed(
                f"{what} did not come up within {START_WITHIN_S:.0f} s\n{log.read_text()[-2000:]}"
            )
        time.sleep(0.2)


def up(arguments: list[str]) -> int:
    """Parse the command line; start what does not run."""
    parser = argparse.ArgumentParser(prog="deploy/ray-dev/up", description=__doc__)
    parser.add_argument("folder", type=Path, help="where everything of it lies; a short path")
    parser.add_argument(
        "--nodes", type=int, help="nodes, the head included (2); more than before adds some"
    )
    parser.add_argument(
        "--gpus", type=int, default=8, help="GPUs that each node pretends to have (8)"
    )
    parser.add_argument(
        "--cpus", type=int, default=16, help="CPUs that each node pretends to have (16)"
    )
    parser.add_argument(
        "--fast", action="store_true", help="dead nodes and heads are noticed within seconds"
    )
    options = parser.parse_args(arguments)
    cluster = Cluster(options.folder.resolve())
    try:
        if not cluster.settings:
            cluster.make(
                nodes=options.nodes or 2, gpus=options.gpus, cpus=options.cpus, fast=options.fast
            )
        elif options.nodes:
            cluster.settings["nodes"] = max(options.nodes, cluster.settings["nodes"])
            cluster.settings |= {"gpus": options.gpus, "cpus": options.cpus}
            cluster.save()
        started = cluster.up()
    except (Failed, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"started: {', '.join(started) or 'nothing, all of it runs'}", file=sys.stderr)
    folder = cluster.folder
    lines = [
        f"RAY_ADDRESS={cluster.address}",
        "RAY_AUTH_MODE=token",
        f"RAY_AUTH_TOKEN_PATH={folder}/token",
    ]
    (folder / "env").write_text("".join(f"export {line}\n" for line in lines))
    print(f". {folder}/env")
    return 0


def down(arguments: list[str]) -> int:
    """Parse the command line; end the cluster."""
    parser = argparse.ArgumentParser(
        prog="deploy/ray-dev/down", description="Stop a cluster and its jobs."
    )
    parser.add_argument("folder", type=Path)
    Cluster(parser.parse_args(arguments).folder.resolve()).down()
    return 0
