"""A user of a private cluster.

Grids for it, what their runs left on disk, and the processes behind them.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from vtjobs.jobs.workspace.events import End
from vtjobs.jobs.workspace.journal import Line, read_all
from vtjobs.jobs.workspace.lineage import AttemptRecord, read_attempt
from vtjobs.jobs.workspace.paths import RunFolder, Workspace

from .cli import Cli
from .grids import slow_line
from .lab import children, is_running, wait_for
from .slurm import SlurmCluster

TINY = "{patch_size: 8, embed_dim: 16, depth: 1, num_heads: 2}"
PATIENCE_S = 180.0


def slurm_grid(
    *, seeds: str = "1", epochs: int = 60, backbone: str = TINY, train: str = "", resources: str = "",
    slurm: str = "", extra: str = "", name: str = "tiny", dataset: str = "digits",
    heads: str = "[supervised]", slow: bool = False,
) -> str:  # fmt: skip
    """Return a grid of tiny runs for a cluster; an epoch takes some hundredths of a second."""
    changes = ", ".join(
        part
        for part in (f"epochs: {epochs}", "warmup_epochs: 0", train or "batch_size: 128")
        if part
    )
    limit = "" if "walltime" in resources else "walltime: 20m"
    asked = ", ".join(part for part in ("gpus_per_node: 1", limit, resources) if part)
    return f"""\
name: {name}
backbones:
  - vit_small_patch16_224: {backbone}
datasets: [{dataset}]
heads: {heads}
seeds: {seeds}
recipe: quickstart
train: {{{changes}}}
resources: {{{asked}}}
backend: {{slurm: {{{slurm}}}}}
{slow_line(epochs, slow)}
{extra}
"""


def user_of(cluster: SlurmCluster, folder: Path, cache: Path, **env: str) -> Cli:
    """Return a user whose jobs train on the CPU, on nodes whose GPUs are not there."""
    folder.mkdir(exist_ok=True)
    own = {"VTJOBS_DEVICE": "cpu", "VTJOBS_POLL_S": "1", "OMP_NUM_THREADS": "1"}
    return Cli(folder, cache, {"SLURM_CONF": cluster.env["SLURM_CONF"], **own, **env})


@dataclass(frozen=True)
class OneRun:
    """A run as its folder tells it, without asking the ledger."""

    user: Cli
    run_id: str

    @property
    def folder(self) -> RunFolder:
        return Workspace(self.user.workspace).run(self.run_id)

    def record(self, attempt: int) -> AttemptRecord:
        return read_attempt(self.folder, attempt)

    def events(self, attempt: int, kind: str) -> list[Line]:
        events = read_all(self.folder.journal(attempt, 0))
        return [event for event in events if event["kind"] == kind]

    def trains(self, attempt: int, *, epochs: int = 1) -> str:
        """Wait until an attempt has trained for some epochs; return its node."""
        wait_for(lambda: len(self.events(attempt, "epoch")) >= epochs, PATIENCE_S)
        start = self.record(attempt).start
        assert start is not None
        return str(start.host)

    def ends(self, attempt: int, seconds: float = PATIENCE_S) -> End:
        """Wait for the end record of an attempt; return it."""
        end: End = wait_for(lambda: self.record(attempt).end, seconds)
        return end

    def show(self) -> dict[str, object]:
        document: dict[str, object] = self.user.json("show", self.run_id)
        return document

    def job(self, cluster: SlurmCluster) -> str:
        """Return the job that the scheduler runs it in now."""
        tokens = {path.stem for path in (self.user.workspace / "allocations").glob("*.json")}
        lines = cluster.ask("squeue", "-h", "-t", "running,suspended", "-o", "%A %j").splitlines()
        (job,) = [line.split()[0] for line in lines if line.split()[1] in tokens]
        return job


def run_of(user: Cli) -> OneRun:
    """Return the only run of a user's grids."""
    (run_id,) = user.json("runs", "all") and [run["run_id"] for run in user.json("runs", "all")]
    return OneRun(user, run_id)


def attempts(document: dict[str, object]) -> list[dict[str, object]]:
    found = document["attempts"]
    assert isinstance(found, list)
    return found


def agents(user: Cli) -> list[int]:
    """Return the agents of a user's jobs; `srun`, which names them too, is none."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if (
            "vtjobs.workers.agent" in words
            and str(user.workspace) in words
            and "python" in words[0]
        ):
            found.append(int(entry.name))
    return found


def family(pid: int) -> list[int]:
    """Return a process and all its descendants."""
    return [pid, *(each for child in children(pid) for each in family(child))]


def gone(pids: list[int]) -> bool:
    return not any(is_running(pid) for pid in pids)


def node_of(pid: int) -> str:
    """Return the node that a job's process runs on."""
    words = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    return next(word.partition("=")[2] for word in words if word.startswith("SLURMD_NODENAME="))


@contextmanager
def partition_with(cluster: SlurmCluster, name: str, **settings: object) -> Iterator[None]:
    """Change a partition for a while."""
    shown = cluster.ask("scontrol", "-o", "show", "partition", name)
    before = dict(word.split("=", 1) for word in shown.split() if "=" in word)
    cluster.ask(
        "scontrol",
        "update",
        f"partitionname={name}",
        *(f"{key}={value}" for key, value in settings.items()),
    )
    try:
        yield
    finally:
        cluster.run(
            "scontrol",
            "update",
            f"partitionname={name}",
            *(f"{key}={before[key]}" for key in settings),
        )


def kill(pids: list[int], number: int = 9) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue
