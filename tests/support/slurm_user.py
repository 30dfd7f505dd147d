"""A user of vtjobs on the login node of a private cluster, and what the cluster says of their jobs."""

import shlex
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .cli import Cli
from .grids import TINY_BACKBONE, slow_line
from .lab import wait_for as wait_as_long
from .slurm import SCRIPTS, SlurmCluster

# Nodes of a private cluster share one machine, perhaps with much else: what takes seconds alone may
# take minutes.
PATIENCE_S = 240.0

# Keeps a job in the queue without taking a node from anybody, until `let_start`.
LATER = "extra: {begin: now+1hour}"


def slurm_grid(
    *,
    name: str = "tiny",
    seeds: str = "1",
    epochs: int = 1,
    train: str = "",
    resources: str = "",
    site: str = "",
    more: str = "heads: [supervised]",
    walltime: str = "10m",
    slow: bool = False,
) -> str:
    """Return a grid whose runs take about a second each on a node, once its template is warm."""
    changes = ", ".join(
        part for part in (f"epochs: {epochs}", "warmup_epochs: 0", "batch_size: 128", train) if part
    )
    wanted = ", ".join(part for part in ("gpus_per_node: 1", resources) if part)
    return f"""\
name: {name}
backbones:
  - {TINY_BACKBONE}
datasets: [digits]
seeds: {seeds}
recipe: quickstart
train: {{{changes}}}
resources: {{{wanted}, walltime: {walltime}}}
backend: {{slurm: {{partition: gpu, {site}}}}}
{slow_line(epochs, slow)}
{more}
"""


@dataclass
class SlurmUser(Cli):
    """A user in a folder; their commands reach one cluster, and their jobs train on the CPU."""

    cluster: SlurmCluster = field(kw_only=True)

    def __post_init__(self) -> None:
        # The scheduler is asked by nearly every command: within a second only once.
        self.env |= {
            "SLURM_CONF": self.cluster.env["SLURM_CONF"],
            "VTJOBS_DEVICE": "cpu",
            "VTJOBS_POLL_S": "1",
        }
        self.env |= {"OMP_NUM_THREADS": "1"}

    def submit(self, text: str, *words: str, **env: str) -> str:
        """Submit a grid that must be taken; return what was said."""
        done = self("submit", self.write("grid.yaml", text), *words, **env)
        assert done.returncode == 0, f"{done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stderr

    # What vtjobs says -----------------------------------------------------------------------------

    def states(self) -> dict[str, int]:
        """Return how many runs are in each state, those that nobody is in left out."""
        return {state: count for state, count in self.json("status")["runs"].items() if count}

    def runs(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.json("runs")
        return found

    def show(self, run_id: str) -> dict[str, Any]:
        found: dict[str, Any] = self.json("show", run_id)
        return found

    def why(self, run_id: str) -> dict[str, Any]:
        found: dict[str, Any] = self.json("why", run_id)
        return found

    def ends(self, run_id: str) -> list[tuple[str, str | None]]:
        """Return the state and the failure of each attempt at a run."""
        return [(attempt["state"], attempt["failure"]) for attempt in self.show(run_id)["attempts"]]

    def source(self, run_id: str, after: str) -> str:
        """Return who said that a run's attempt came to this state, the last time that one did."""
        return str(
            [event["source"] for event in self.show(run_id)["history"] if event["after"] == after][
                -1
            ]
        )

    def wait_states(self, wanted: dict[str, int]) -> None:
        """Make passes, as `vtjobs supervise` does, until this many runs are in each state."""
        wait_for(lambda: (self("supervise", "--once"), self.states() == wanted)[1])

    # What the cluster says ------------------------------------------------------------------------

    def queue(self, form: str = "%F") -> list[str]:
        """Return a line for each job or array that has not ended."""
        return sorted(set(self.cluster.ask("squeue", "-h", "-o", form).splitlines()))

    def let_start(self) -> None:
        """Have jobs start that were submitted for later.

        An array is listed until its last element has left; those that ran cannot be changed.
        """
        for job in self.cluster.ask("squeue", "-h", "-r", "-t", "PENDING", "-o", "%i").split():
            self.cluster.ask("scontrol", "update", f"jobid={job}", "starttime=now")

    def accounted(self, form: str) -> list[str]:
        """Return what accounting has of the jobs of this user's workspace."""
        tokens = ",".join(path.stem for path in (self.workspace / "allocations").glob("*.json"))
        return self.cluster.ask(
            "sacct", "-X", "-n", "-P", "-D", f"--name={tokens}", f"--format={form}"
        ).splitlines()

    def agents(self) -> list[int]:
        """Return the agents of this workspace that are at work."""
        return [
            pid
            for pid, words in processes()
            if "vtjobs.workers.agent" in words
            and str(self.workspace) in words
            and not words[0].endswith("srun")
        ]

    def sbatch_does(self, script: str) -> dict[str, str]:
        """Return an environment in which `sbatch` runs lines of shell.

        In them, `real` is the true one.
        """
        folder = self.folder / "bin"
        folder.mkdir(exist_ok=True)
        path = self.cluster.ask("which", "sbatch")
        # Only what is submitted meets the fault: the question whether it would be taken is answered
        # as ever.
        rehearsal = '[ "$1" = --test-only ] && { real "$@"; exit; }'
        (folder / "sbatch").write_text(
            f'#!/bin/bash\nreal() {{ {path} "$@"; }}\n{rehearsal}\n{script}\n'
        )
        (folder / "sbatch").chmod(0o755)
        return {"PATH": f"{folder}:{self.environment()['PATH']}"}

    def fault(self, *words: str) -> str:
        """Return the shell line that does something to the cluster."""
        return shlex.join([str(SCRIPTS / "fault"), str(self.cluster.folder), *words])

    def inside(self, *words: str) -> str:
        """Return the shell line that runs a command of vtjobs in this user's folder."""
        variables = shlex.join(f"{name}={value}" for name, value in self.env.items())
        cache = shlex.join(
            [f"XDG_CACHE_HOME={self.cache}", f"XDG_STATE_HOME={self.cache / 'state'}"]
        )
        command = shlex.join([sys.executable, "-m", "vtjobs.cli", *words])
        return f"cd {shlex.quote(str(self.folder))} && env {cache} {variables} {command}"


def wait_for(until: Callable[[], Any]) -> Any:
    """Poll until something is true; return it."""
    return wait_as_long(until, PATIENCE_S)


def processes() -> list[tuple[int, list[str]]]:
    """Return every process with the words of its command."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if words[0]:
            found.append((int(entry.name), words))
    return found


def counted(values: list[str]) -> dict[str, int]:
    return dict(Counter(values))
