"""A private Ray cluster for tests.

Real nodes on one machine, with everything that can be broken about them.
"""

import importlib.util
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from .lab import children, is_running, wait_for

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "ray-dev"


def _load() -> Any:
    spec = importlib.util.spec_from_file_location("ray_dev_cluster", FOLDER / "cluster.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


dev = _load()


class RayCluster:
    """A cluster in a folder. `up` is also what mends it after a fault."""

    def __init__(self, folder: Path, *, nodes: int = 2, gpus: int = 1, cpus: int = 4) -> None:
        self.folder = folder
        self.options = [f"--nodes={nodes}", f"--gpus={gpus}", f"--cpus={cpus}", "--fast"]

    def up(self, *options: str) -> None:
        """Start what is not running, or more nodes."""
        own = {
            "VTJOBS_DEVICE": "cpu",
            "VTJOBS_FENCE_S": "0.5",
            "VTJOBS_TURN_S": "5",
            "OMP_NUM_THREADS": "1",
        }
        words = options if (self.folder / "cluster.json").exists() else self.options
        command = [sys.executable, FOLDER / "up", self.folder, *words]
        done = subprocess.run(
            command, capture_output=True, text=True, env={**os.environ, **own}, timeout=420
        )
        assert done.returncode == 0, done.stderr

    def down(self) -> None:
        subprocess.run([sys.executable, FOLDER / "down", self.folder], check=True, timeout=60)

    @property
    def cluster(self) -> Any:
        return dev.Cluster(self.folder)

    @property
    def env(self) -> dict[str, str]:
        """What a user sets to reach it."""
        return {"RAY_ADDRESS": self.cluster.address, "RAY_AUTH_TOKEN_PATH": f"{self.folder}/token"}

    @property
    def token(self) -> str:
        return (self.folder / "token").read_text()

    def jobs(self) -> dict[str, dict[str, Any]]:
        """Return what the head says of jobs, by their ids."""
        return {
            job["submission_id"]: job
            for job in self.cluster.ask("/api/jobs/")
            if job["submission_id"]
        }

    def allocations(self) -> dict[str, dict[str, Any]]:
        """Return the jobs that are allocations."""
        return {name: job for name, job in self.jobs().items() if name.startswith("vtj-")}

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run one of Ray's own programs as a user of the cluster."""
        env = {**os.environ, **self.env, "RAY_AUTH_MODE": "token"}
        path = Path(sys.executable).parent / words[0]
        return subprocess.run(
            [path, *words[1:]], capture_output=True, text=True, env=env, timeout=60
        )

    def daemons(self, number: int) -> list[int]:
        """Return the processes that make a node; the first is the one that keeps the others."""
        keeper = int((self.folder / f"node-{number}.pid").read_text())
        return [keeper, *children(keeper)]

    def kill_node(self, number: int) -> None:
        """Kill a node's raylet: to the cluster it is dead, while its jobs live on."""
        (pid,) = [
            pid
            for pid in self.daemons(number)
            if Path(f"/proc/{pid}/comm").read_text().strip() == "raylet"
        ]
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not is_running(pid), 10)

    def kill_head(self) -> None:
        """Kill all that makes the head, and leave the jobs."""
        pids = self.daemons(0)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not any(map(is_running, pids)), 10)
