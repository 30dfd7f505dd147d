"""Make the ledger anew from the workspace: grids, allocations and queued work, runs."""

import contextlib
import logging
import os
import secrets
import time
from collections import defaultdict
from collections.abc import Callable, Container
from pathlib import Path

from sqlalchemy import delete, func, insert, select

from ..jobs.atomic_files import fsync_folder
from ..jobs.errors import DamagedFile
from ..jobs.run.states import LIVE
from ..jobs.workspace.allocation import Allocation, read_allocation
from ..jobs.workspace.paths import Workspace
from ..jobs.workspace.stored_grid import FrozenGrid, first_submitted_at, grid_ids, read_grid
from ..jobs.workspace.tags import tags_of
from ..jobs.workspace.user_requests import Request, requests_of
from . import models as m
from . import tags
from .adopt_allocations import adopt_allocation
from .engine import file_system_of, reading, refuse_network, writing
from .ingest import ingest, ingest_evaluations
from .ledger import Clock, Ledger
from .parts import in_parts
from .rows import Asked

logger = logging.getLogger("vtjobs.ledger")

Progress = Callable[[str, int], None]
# Run -> what its users asked for that is not in the ledger yet, in order.
Requests = dict[str, list[Request]]


def rebuild(
    ledger: Ledger, workspace: Workspace, progress: Progress = lambda what, count: None
) -> dict[str, int]:
    """Fill an empty ledger from the workspace; return how much was found."""
    found = {"grids": 0, "runs": 0, "allocations": 0, "events": 0}
    grids = [frozen for grid_id in grid_ids(workspace) if (frozen := read_grid(workspace, grid_id))]
    created = _created(workspace, grids)
    runs: set[str] = set()
    for frozen in sorted(grids, key=lambda grid: grid.settings.submitted_at):
        runs |= ledger.add_grid(frozen, created=created)
        found["grids"] += 1
        progress("grids", found["grids"])
    found["runs"] = len(runs)
    open_ = {run_id: asked for run_id in runs if (asked := requests_of(workspace.run(run_id)))}
    found["allocations"], found["events"] = _adopt(
        ledger, workspace, _allocations(workspace), open_
    )
    progress("allocations", found["allocations"])
    _ask_again(ledger, open_, list(open_))
    attempts = [
        (run_id, number) for run_id in sorted(runs) for number in workspace.run(run_id).attempts()
    ]
    for start in range(0, len(attempts), 1000):
        found["events"] += ingest(ledger, workspace, attempts[start : start + 1000])
        progress("events", found["events"])
    found["events"] += ingest_evaluations(ledger, workspace, sorted(runs))
    _put_in_order(ledger)
    with writing(ledger.engine) as connection:
        tags.keep(connection, tags_of(workspace))
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
    ledger: Ledger, workspace: Workspace, contents: list[Allocation], open_: Requests
) -> tuple[int, int]:
    """Take in allocations, oldest first.

    Return how many were new, and how many events were read for it.

    Each comes after the end records of the attempts before it and what users asked for meanwhile,
    so that what follows from them (a smaller micro-batch, a try that is spent, whether an attempt
    was cancelled or lost) is the same as when it happened.
    """
    new, events = 0, 0
    for content in contents:
        before = _live(ledger, [task.run_id for task in content.all_tasks])
        events += ingest(ledger, workspace, before) if before else 0
        for task in content.all_tasks:
            _ask_again(ledger, open_, [task.run_id], below=task.attempt)
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


def _ask_again(
    ledger: Ledger, open_: Requests, run_ids: list[str], *, below: int = 1 << 30
) -> None:
    """Write down what users asked for before an attempt, and strike it off the list."""
    while True:
        by_word: dict[str, dict[str, Request]] = defaultdict(dict)
        for run_id in run_ids:
            if open_.get(run_id) and open_[run_id][0].number < below:
                request = open_[run_id].pop(0)
                by_word[request.word][run_id] = request
        if not by_word:
            return
        for word, found in by_word.items():
            numbers = {run_id: request.number for run_id, request in found.items()}
            asked = {run_id: Asked(at=item.at, by=item.by) for run_id, item in found.items()}
            if word == "cancel":
                ledger.set_cancelled(numbers, asked=asked)
            else:
                ledger.grant_try(numbers, clean=word == "rerun", asked=asked)


def _put_in_order(ledger: Ledger) -> None:
    """Number the events by their times: they were read run by run."""
    table = m.events
    columns = [column for column in table.columns if column is not table.c.id]
    with writing(ledger.engine) as connection:
        last = connection.execute(select(func.max(table.c.id))).scalar() or 0
        again = select(*columns).order_by(table.c.at, table.c.id)
        connection.execute(insert(table).from_select([column.name for column in columns], again))
        connection.execute(delete(table).where(table.c.id <= last))


def _created(workspace: Workspace, grids: list[FrozenGrid]) -> dict[str, float]:
    """Return when each run was first part of a submission."""
    found: dict[str, float] = {}
    for frozen in grids:
        at = first_submitted_at(workspace, frozen.settings)
        for run_id, *_ in frozen.runs:
            found[run_id] = min(at, found.get(run_id, at))
    return found
