"""Make the ledger anew from the workspace: grids, allocations and queued work, runs."""

import contextlib
import logging
import os
import secrets
import time
from collections.abc import Callable, Container
from pathlib import Path

from sqlalchemy import select

from ..jobs.atomic_files import fsync_folder
from ..jobs.errors import DamagedFile
from ..jobs.run.states import LIVE
from ..jobs.workspace.allocation import Allocation, read_allocation
from ..jobs.workspace.paths import Workspace
from ..jobs.workspace.stored_grid import grid_ids, read_grid
from . import models as m
from .adopt_allocations import adopt_allocation
from .engine import file_system_of, reading, refuse_network
from .ingest import ingest, ingest_evaluations
from .ledger import Clock, Ledger
from .parts import in_parts

logger = logging.getLogger("vtjobs.ledger")

Progress = Callable[[str, int], None]
Grants = list[tuple[int, bool]]


def rebuild(
    ledger: Ledger, workspace: Workspace, progress: Progress = lambda what, count: None
) -> dict[str, int]:
    """Fill an empty ledger from the workspace; return how much was found."""
    found = {"grids": 0, "runs": 0, "allocations": 0, "events": 0}
    grids = [frozen for grid_id in grid_ids(workspace) if (frozen := read_grid(workspace, grid_id))]
    runs: set[str] = set()
    for frozen in sorted(grids, key=lambda grid: grid.settings.submitted_at):
        runs |= ledger.add_grid(frozen)
        found["grids"] += 1
        progress("grids", found["grids"])
    found["runs"] = len(runs)
    cancelled = {
        run_id: number for run_id in runs if (number := workspace.run(run_id).highest_cancel())
    }
    if cancelled:
        ledger.set_cancelled(cancelled)
    grants = {run_id: granted for run_id in runs if (granted := workspace.run(run_id).all_grants())}
    found["allocations"], found["events"] = _adopt(
        ledger, workspace, _allocations(workspace), grants
    )
    progress("allocations", found["allocations"])
    for run_id in grants:
        _grant(ledger, grants, run_id)
    attempts = [
        (run_id, number) for run_id in sorted(runs) for number in workspace.run(run_id).attempts()
    ]
    for start in range(0, len(attempts), 1000):
        found["events"] += ingest(ledger, workspace, attempts[start : start + 1000])
        progress("events", found["events"])
    found["events"] += ingest_evaluations(ledger, workspace, sorted(runs))
    return found


def make_ledger(
    path: Path,
    workspace: Workspace,
    *,
    workspace_id: str,
    clock: Clock = time.time,
    progress: Progress = lambda what, count: None,
) -> dict[str, int]:
    """Make a workspace's SQLite ledger from what is there; return how much was found.

    It is made beside its place and appears whole: a half-made one, or one that is being made, would
    pass for the ledger, and runs that it does not know yet would be started again. Of two that are
    made at once the first holds.

    Raises:
        BadInput: a file on a network file system.
    """
    refuse_network(path, file_system_of(path))
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        ledger = Ledger.open(str(beside), workspace_id=workspace_id, create=True, clock=clock)
        try:
            found = rebuild(ledger, workspace, progress)
        finally:
            # The last connection takes the write-ahead log with it.
            ledger.engine.dispose()
        with contextlib.suppress(FileExistsError):
            os.link(beside, path)
            fsync_folder(path.parent)
    finally:
        for suffix in ("", "-wal", "-shm"):
            Path(f"{beside}{suffix}").unlink(missing_ok=True)
    return found


def adopt_allocations(ledger: Ledger, workspace: Workspace, known: set[str] | None = None) -> int:
    """Take in the allocation files that the ledger does not know; return how many were new."""
    return _adopt(ledger, workspace, _allocations(workspace, known or set()), {})[0]


def _allocations(workspace: Workspace, known: Container[str] = ()) -> list[Allocation]:
    fresh = [
        path for path in sorted(workspace.allocations.glob("vtj-*.json")) if path.stem not in known
    ]
    contents = [content for path in fresh if (content := _allocation(path)) is not None]
    return sorted(contents, key=lambda item: item.created_at)


def _allocation(path: Path) -> Allocation | None:
    try:
        return read_allocation(path)
    except DamagedFile as error:
        # One such file must not keep every command from working.
        logger.warning("warning: %s. It is passed over", error)
        return None


def _adopt(
    ledger: Ledger, workspace: Workspace, contents: list[Allocation], grants: dict[str, Grants]
) -> tuple[int, int]:
    """Take in allocations, oldest first.

    Return how many were new, and how many events were read for it.

    Each comes after the end records of the attempts before it and the tries that were granted
    meanwhile, so that what follows from them (a smaller micro-batch, a try that is spent) is the
    same as when it happened.
    """
    new, events = 0, 0
    for content in contents:
        before = _live(ledger, [task.run_id for task in content.all_tasks])
        events += ingest(ledger, workspace, before) if before else 0
        for task in content.all_tasks:
            _grant(ledger, grants, task.run_id, below=task.attempt)
        new += adopt_allocation(ledger, content)
    return new, events


def _live(ledger: Ledger, run_ids: list[str]) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    table = m.attempts.c
    with reading(ledger.engine) as connection:
        for part in in_parts(run_ids):
            query = select(table.run_id, table.number).where(
                table.run_id.in_(part), table.state.in_(LIVE)
            )
            found += [(row.run_id, row.number) for row in connection.execute(query)]
    return found


def _grant(ledger: Ledger, grants: dict[str, Grants], run_id: str, *, below: int = 1 << 30) -> None:
    """Write down the tries that were granted before an attempt, and strike them off the list."""
    while grants.get(run_id) and grants[run_id][0][0] < below:
        number, clean = grants[run_id].pop(0)
        ledger.grant_try({run_id: number}, clean=clean)
