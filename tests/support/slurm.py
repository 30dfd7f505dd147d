"""A private SLURM cluster for tests.

Real daemons on virtual nodes, with everything that can be broken about them.
"""

import getpass
import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

# Marks of tests that not every profile of deploy/slurm-dev fits.
with_accounting = pytest.mark.profiles("default", "mixed", "tight", "bare")
without_limits = pytest.mark.profiles("default", "mixed", "bare", "no-accounting")

SCRIPTS = Path(__file__).resolve().parents[2] / "deploy" / "slurm-dev"
PROGRAMS = ("slurmctld", "slurmd", "slurmdbd", "munged", "mariadbd", "sbatch")
# States from which a job does not move on.
ENDED = {
    "COMPLETED",
    "FAILED",
    "CANCELLED",
    "TIMEOUT",
    "PREEMPTED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "DEADLINE",
    "BOOT_FAIL",
}


def missing() -> list[str]:
    """Return the programs that a cluster needs and this machine lacks."""
    path = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"
    return [name for name in PROGRAMS if not shutil.which(name, path=path)]


def until(found: Callable[[], object], what: str, within_s: float = 30.0) -> None:
    """Return once something is so; fail with its name when it never is."""
    deadline = time.monotonic() + within_s
    while True:
        began = time.monotonic()
        if found():
            return
        took = time.monotonic() - began
        assert time.monotonic() < deadline, f"not within {within_s:.0f} s: {what}"
        time.sleep(min(1.0, max(0.1, took)))


class SlurmCluster:
    """A cluster in a folder. `up` is also what mends it after a fault."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self.options = options
        self.env = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("SLURM", "SBATCH_"))
        }
        self.env["SLURM_CONF"] = f"{folder}/slurm.conf"

    def up(self) -> str:
        """Start what is not running; return what the script printed."""
        options = () if (self.folder / "cluster.json").exists() else self.options
        done = subprocess.run(
            [SCRIPTS / "up", self.folder, *options], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def down(self) -> None:
        subprocess.run([SCRIPTS / "down", self.folder], check=True)

    def run(self, *argv: str, timeout_s: float = 60.0) -> subprocess.CompletedProcess[str]:
        """Run one of the cluster's programs as its user."""
        return subprocess.run(argv, env=self.env, capture_output=True, text=True, timeout=timeout_s)

    def ask(self, *argv: str) -> str:
        """Return what a program printed; it has to succeed."""
        done = self.run(*argv)
        assert done.returncode == 0, f"{shlex.join(argv)}: {done.stdout}{done.stderr}"
        return done.stdout.strip()

    def submit(self, script: str, *options: str) -> str:
        """Submit shell lines as a batch job; return its id.

        Its output goes to <folder>/job-<id>.out.
        """
        output = (
            f"--output={self.folder}/job-%A_%a.out"
            if any("--array" in option for option in options)
            else None
        )
        output = output or f"--output={self.folder}/job-%j.out"
        return self.ask("sbatch", "--parsable", output, *options, f"--wrap={script}")

    def output(self, job: str) -> str:
        path = self.folder / f"job-{job}.out"
        return path.read_text() if path.exists() else ""

    def job(self, job: str) -> dict[str, str]:
        """Return what the controller says of a job or array element, or nothing once it has
        forgotten it.
        """
        done = self.run("scontrol", "-o", "show", "job", job)
        return (
            dict(word.split("=", 1) for word in done.stdout.split() if "=" in word)
            if done.returncode == 0
            else {}
        )

    def wait_state(self, job: str, *states: str, within_s: float = 60.0) -> str:
        """Return a job's state once it is one of these; without any, once it has ended."""
        wanted = set(states) or ENDED
        until(
            lambda: self.job(job).get("JobState") in wanted,
            f"job {job} in {wanted}: {self.job(job)}",
            within_s,
        )
        return self.job(job)["JobState"]

    def kill(self, name: str, *, steps: bool = False) -> None:
        """Kill a daemon.

        With `steps` a node dies with all that runs on it, without only its daemon does.
        """
        self._fault("kill", name, *(["--steps"] if steps else []))

    def pause(self, name: str) -> None:
        """Stop a daemon where it is: its clients wait for an answer."""
        self._fault("pause", name)

    def resume(self, name: str) -> None:
        self._fault("resume", name)

    def save(self) -> None:
        """Have the controller write down what it knows.

        It does so seconds after something has changed.
        """
        self.submit("true")
        began = time.time()
        until(
            lambda: (self.folder / "state" / "job_state").stat().st_mtime > began,
            "the state is saved",
        )

    def nodes(self) -> list[str]:
        """Return the names of all nodes."""
        return sorted(set(self.ask("sinfo", "-h", "-N", "-o", "%N").splitlines()))

    def association(self, field: str) -> str:
        """Return a limit of this user's association; empty where there is none."""
        user = f"user={getpass.getuser()}"
        words = ("show", "assoc", user, "account=lab", f"format={field}")
        return self.ask("sacctmgr", "-nP", *words)

    def node_down(self, node: str) -> None:
        """Take a node away as an administrator does."""
        self.ask("scontrol", "update", f"nodename={node}", "state=down", "reason=test")

    def node_up(self, node: str) -> None:
        self.ask("scontrol", "update", f"nodename={node}", "state=resume")

    def settle(self) -> None:
        """Mend the cluster and clear its queue, for the next test."""
        self.up()
        # Jobs that ignore TERM would cost the next test the seconds of KillWait.
        self.run("scancel", "--full", "--signal=KILL", f"--user={getpass.getuser()}")
        self.run("scancel", f"--user={getpass.getuser()}")
        until(lambda: not self.ask("squeue", "-h", "-o", "%i"), "the queue is empty")
        # One line for each partition that a node is in.
        for line in sorted(set(self.ask("sinfo", "-h", "-N", "-o", "%N %t").splitlines())):
            node, state = line.split()
            if state.startswith(("down", "drain", "drng")):
                self.node_up(node)

    def _fault(self, *words: str) -> None:
        subprocess.run([SCRIPTS / "fault", self.folder, *words], check=True)
