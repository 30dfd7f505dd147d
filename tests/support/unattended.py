"""A grid of sixty runs with faults, stages and a back-off, which nobody looks after.

A run fails where it finds a file to take, and each file costs one try.
"""

from vtjobs.jobs.workspace.lineage import AttemptRecord, completed_by, read_attempt
from vtjobs.jobs.workspace.paths import RunFolder, Workspace

from .cli import Cli
from .grids import TINY_BACKBONE
from .lab import wait_for

PLACES = 5
CHAINS = 30
# Three bugs that cost a try each, and a full disk, after which a run waits for two minutes.
FAULTS = ("bug-a", "bug-b", "bug-c", "full-disk")
# While so many runs are left there are always five that could start.
BUSY_UNTIL = 2 * CHAINS - 12
# A back-off of two minutes, and sixty runs on a machine that does much else.
PATIENCE_S = 900.0
# How long a place may stand empty while runs wait.
IDLE_S = 60.0

FAULTY = """\
import errno
from pathlib import Path

import torch


class Faulty(torch.nn.Module):
    def __init__(self, grids, faults: str = ""):
        super().__init__()
        self.faults, self.calls = Path(faults), 0

    def forward(self, grids, generator, places=None):
        self.calls += self.training
        # Not in the first step, which is tried before anything is submitted.
        for fault in self.faults.glob("*") if self.calls == 5 else ():
            try:
                fault.unlink()
            except FileNotFoundError:
                continue
            if fault.name == "full-disk":
                raise OSError(errno.ENOSPC, "No space left on device")
            raise RuntimeError(f"a fault that costs a try: {fault.name}")
        return grids[-1].sum() * 0.0, {}
"""


def submit(user: Cli, *, backend: str, resources: str, more: str = "") -> None:
    """Submit the grid; nothing else is typed after it."""
    user.write("faulty.py", FAULTY)
    faults = user.folder / "faults"
    faults.mkdir()
    for name in FAULTS:
        (faults / name).touch()
    text = f"""\
name: sixty
backbones:
  - {TINY_BACKBONE}
datasets: [digits]
seeds: {CHAINS}
recipe: quickstart
train: {{epochs: 1, warmup_epochs: 0, batch_size: 128}}
resources: {{{resources}}}
backend: {backend}
retries: 5
{more}
stages:
  - {{name: pretrain, heads: [{{"faulty.py:Faulty": {{weight: 0.1, faults: {faults}}}}}]}}
  - {{name: finetune, heads: [supervised], init_from: pretrain}}
"""
    user.ok("submit", user.write("grid.yaml", text))


def wait_until_all_completed(user: Cli) -> list[AttemptRecord]:
    """Wait by the journals alone: no command is typed. Return what each attempt wrote down."""
    workspace = Workspace(user.workspace)

    def completed() -> int:
        return sum(completed_by(run, 1 << 30) is not None for run in _runs(workspace))

    wait_for(lambda: completed() == 2 * CHAINS, PATIENCE_S)
    found = [
        read_attempt(run, number)
        for run in _runs(workspace)
        for number in range(1, run.highest_claim() + 1)
    ]
    return [record for record in found if record.start is not None]


def _runs(workspace: Workspace) -> list[RunFolder]:
    return [workspace.run(path.name) for path in workspace.root.glob("??/*") if path.is_dir()]


def check(user: Cli, *, places: int = PLACES) -> None:
    """Wait for the end, and hold what happened against what was asked for.

    Args:
        user: whose grid it is.
        places: runs that may be under way at a time.
    """
    attempts = wait_until_all_completed(user)
    assert not list((user.folder / "faults").iterdir())
    assert len(attempts) == 2 * CHAINS + len(FAULTS)
    spans = [(one.start.at, one.end.at) for one in attempts if one.start and one.end]
    assert most_at_once(spans) <= places
    assert longest_idle(spans, places) <= IDLE_S
    states = {state: count for state, count in user.json("status")["runs"].items() if count}
    assert states == {"completed": 2 * CHAINS}


def most_at_once(spans: list[tuple[float, float]]) -> int:
    """Return how many of these were under way at the same moment, at most."""
    changes = sorted([(end, -1) for _, end in spans] + [(start, 1) for start, _ in spans])
    busy = most = 0
    for _, change in changes:
        busy += change
        most = max(most, busy)
    return most


def longest_idle(spans: list[tuple[float, float]], places: int) -> float:
    """Return how long a place stood empty at most, in seconds, while there was enough to do.

    A place that became free first is filled first.
    """
    ends = sorted(end for _, end in spans)[:BUSY_UNTIL]
    later = sorted(start for start, _ in spans)[places:]
    return max(start - end for end, start in zip(ends, later, strict=False))
