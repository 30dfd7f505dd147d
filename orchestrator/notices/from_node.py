"""What an agent knows that somebody wants to be told, from the workspace's files alone.

python -m vtjobs.orchestrator.notices.from_node --workspace DIR --folder DIR --grid ID --run ID

So a grid of a cluster tells of its end although nobody makes a pass. What the ledger says later has
the same keys, and is told once.
"""

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Collection
from pathlib import Path

from ...db.happened import EndedGrid, LostRun
from ...jobs.config.config import load_config
from ...jobs.config.notices import NoticeSettings, notice_settings
from ...jobs.errors import BadInput
from ...jobs.run.states import RunState
from ...jobs.workspace.history import verdict_of
from ...jobs.workspace.lineage import read_attempt
from ...jobs.workspace.paths import RunFolder, Workspace
from ...jobs.workspace.stored_grid import FrozenGrid, grid_ids, read_grid
from ...jobs.workspace.submissions import Submissions
from .happened import ended, lost
from .outbox import Notice, Outbox
from .send import send

_LOST = (RunState.FAILED, RunState.DIVERGED)
_NO_PARENT = (*_LOST, RunState.CANCELLED, RunState.BLOCKED)
# Another agent may be sending at this moment.
PATIENCE_S = 20.0


def notices_of(
    workspace: Workspace,
    grid_ids: Collection[str],
    run_ids: Collection[str],
    settings: NoticeSettings,
    *,
    where: str = "",
) -> list[Notice]:
    """Return what has become of runs, and of their grids, that somebody wants to be told of.

    Args:
        workspace: with the files of runs and grids.
        grid_ids: the runs' grids.
        run_ids: runs of which an attempt has ended.
        settings: what is told.
        where: what a command that is printed ends with.
    """
    found: list[Notice] = []
    for grid_id in grid_ids:
        grid = read_grid(workspace, grid_id)
        if grid is None:
            continue
        if "fail" in settings.on:
            found += [lost(one, where) for one in _lost_runs(workspace, grid, run_ids)]
        if "finish" in settings.on and (over := _ended(workspace, grid)) is not None:
            found.append(ended(over, where))
    return found


def _lost_runs(workspace: Workspace, grid: FrozenGrid, run_ids: Collection[str]) -> list[LostRun]:
    found = []
    for run_id, cell, index, _ in grid.runs:
        folder = workspace.run(run_id)
        numbers = folder.attempts() if run_id in run_ids else []
        if not numbers:
            continue
        end = read_attempt(folder, numbers[-1]).end
        state = verdict_of(folder, grid.settings).state
        if end is None or state not in _LOST:
            continue
        labels = grid.cells[cell].labels
        found.append(
            LostRun(
                grid_id=grid.grid_id,
                run_id=run_id,
                backbone=labels["backbone"],
                dataset=labels["dataset"],
                head=labels["head"],
                seed=grid.seed_of(index)[0],
                state=state,
                failure=end.failure,
                number=numbers[-1],
                at=end.at,
            )
        )
    return found


def _ended(workspace: Workspace, grid: FrozenGrid) -> EndedGrid | None:
    """Return how a grid ended; None where a run is still to end, or nobody here can tell."""
    if not all(_is_quiet(workspace.run(run[0]), run[3]) for run in reversed(grid.runs)):
        return None
    taken_over = _in_later_grids(workspace, grid)
    submissions = Submissions(workspace)
    submissions.refresh()
    states: dict[str, RunState] = {}
    attempts, last = 0, 0.0
    for run_id, _, _, parent in grid.runs:
        if run_id in taken_over:
            continue
        folder, newest = workspace.run(run_id), submissions.newest(run_id)
        numbers = set(folder.attempts())
        begun = max(numbers, default=0)
        if newest is not None and newest.attempt > max(begun, folder.highest_cancel()):
            # A scheduler has it.
            return None
        state = verdict_of(folder, grid.settings).state
        if state is RunState.PENDING and parent and states.get(parent) in _NO_PARENT:
            state = RunState.BLOCKED
        if not state.is_settled:
            return None
        states[run_id] = state
        # As the ledger counts them: also one that was cancelled before it began.
        attempts += len(numbers | ({newest.attempt} if newest is not None else set()))
        end = read_attempt(folder, begun).end if begun else None
        last = max(last, 0.0 if end is None else end.at)
    if not states:
        return None
    counts = Counter(str(state) for state in states.values())
    return EndedGrid(grid_id=grid.grid_id, states=dict(counts), attempts=attempts, at=last)


def _in_later_grids(workspace: Workspace, grid: FrozenGrid) -> set[str]:
    """Return the runs that a later submission has too: they belong to that one."""
    others = (read_grid(workspace, one) for one in grid_ids(workspace) if one != grid.grid_id)
    mine = grid.settings.submitted_at
    return {
        run[0]
        for other in others
        if other is not None and other.settings.submitted_at > mine
        for run in other.runs
    }


def _is_quiet(folder: RunFolder, parent: str | None) -> bool:
    """Whether no attempt at a run is at work; a run that has yet to begin is none of these.

    Of a grid at work most runs answer this at once.
    """
    numbers = folder.attempts()
    if not numbers:
        return parent is not None or folder.highest_cancel() > 0
    return read_attempt(folder, numbers[-1]).end is not None


def send_all(outbox: Outbox, settings: NoticeSettings, *, patience_s: float = PATIENCE_S) -> None:
    """Send what lies in the outbox, also right after another message: nobody may come later."""
    until = time.monotonic() + patience_s
    tried: set[str] = set()
    while True:
        left = [one for one in settings.addresses if one not in tried and outbox.open_notices(one)]
        if not left or time.monotonic() > until:
            return
        tried |= set(send(outbox, settings, environ=os.environ, now=time.time(), only_due=False))
        if not tried:
            time.sleep(0.5)


def main() -> int:
    """Parse the command line, note and send."""
    parser = argparse.ArgumentParser(prog="vtjobs.orchestrator.notices.from_node")
    parser.add_argument("--workspace", required=True)
    parser.add_argument(
        "--folder", type=Path, required=True, help="where vtjobs.yaml is looked for"
    )
    parser.add_argument("--grid", action="append", default=[])
    parser.add_argument("--run", action="append", default=[])
    options = parser.parse_args()
    try:
        config = load_config({"workspace": options.workspace}, folder=options.folder)
        settings = notice_settings(config.get("notify"))
    except BadInput as error:
        print(f"notify: {error}", file=sys.stderr)
        return 2
    if not settings.addresses:
        return 0
    outbox = Outbox(config.workspace)
    outbox.begin(settings.addresses, time.time())
    found = notices_of(config.workspace, options.grid, options.run, settings, where=config.where)
    if found:
        outbox.add(found)
        send_all(outbox, settings)
    return 0


if __name__ == "__main__":
    sys.exit(main())
