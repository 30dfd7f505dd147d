"""Delete grids with the runs that no other grid has: results, weights, files.

A grid is gone once its folder lies in `<workspace>/deleted/`. Before that nothing has changed, so
that a deletion that is killed has not happened. What follows is done under the ledger's lock and is
done again where it was killed: by the next deletion, by `gc`, or by a submission. At the end only
what lies in `deleted/` is removed, which nobody else looks at.
"""

import contextlib
import os
import secrets
import shutil
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from ...db import deletion as ledger
from ...db.engine import Connection, reading, writing
from ...jobs.atomic_files import (
    append_line,
    fsync_folder,
    make_folder,
    read_cache,
    to_json,
    write_new,
    write_over,
)
from ...jobs.config.host import user_here
from ...jobs.documents import Document
from ...jobs.errors import BadInput, DamagedFile
from ...jobs.units import iso, plural
from ...jobs.values import changed
from ...jobs.workspace import tags
from ...jobs.workspace.allocation import Allocation, read_allocation
from ...jobs.workspace.paths import Workspace
from ..loop.context import Context
from .labels import grid_named

Progress = Callable[[int, int], None]
# In the workspace: which grids were deleted, when and by whom, a line each time.
LOG = "deleted.jsonl"
FOLDER = "deleted"
_WHAT = "what.json"
_GRID = "grid"


class Deletion(Document, frozen=True, kw_only=True):
    """Grids that go, and what goes with them."""

    grids: list[str]
    """Ids."""
    runs: list[str]
    """Runs that no other grid has: they go, with their results and weights."""
    kept: int
    """Runs of these grids that another grid has: they stay."""
    bytes: int
    """What the runs take on disk."""
    removed: bool
    """Whether they were removed."""


def find(context: Context, words: Sequence[str], progress: Progress = lambda *_: None) -> Deletion:
    """Return what would go with these grids.

    Args:
        context: workspace and ledger.
        words: names or ids of grids; a name means the newest grid of that name.
        progress: is told how many runs were looked at, and how many there are.

    Raises:
        NothingMatched: there is no such grid.
        BadInput: a run has not ended, or another grid needs one.
    """
    with reading(context.ledger.engine) as connection:
        grids = list(dict.fromkeys(grid_named(connection, word, context.where) for word in words))
        runs = _may_go(connection, grids, context.where)
        count = len(ledger.runs_of(connection, grids))
    size = 0
    for done, run_id in enumerate(runs, start=1):
        size += _size(context.workspace.run(run_id).path)
        progress(done, len(runs))
    return Deletion(grids=grids, runs=runs, kept=count - len(runs), bytes=size, removed=False)


def _may_go(connection: Connection, grids: Sequence[str], where: str) -> list[str]:
    """Return the runs that go with these grids.

    Raises:
        BadInput: something still needs one of the grids or of these runs.
    """
    names = ", ".join(grids)
    # Those too that another grid has: jobs that were submitted for this one read its settings.
    if left := ledger.unsettled(connection, ledger.runs_of(connection, grids)):
        raise BadInput(
            f"{names}: {plural(len(left), 'run')} not ended yet."
            f" First: vtjobs cancel {' '.join(grids)}{where}"
        )
    runs = ledger.runs_of_no_other(connection, grids)
    if children := ledger.children_left(connection, runs):
        raise BadInput(
            f"{plural(len(children), 'run')} of other grids, such as {children[0]}, start from"
            f" weights of {names}. Delete their grids first"
        )
    beside = ledger.neighbours(connection, ledger.tokens_of(connection, runs)) - set(runs)
    if busy := ledger.unsettled(connection, beside):
        raise BadInput(
            f"a job that trained runs of {names} still trains {plural(len(busy), 'run')} of other"
            f" grids, such as {busy[0]}. Delete again when they have ended"
        )
    return runs


def delete(context: Context, found: Deletion, progress: Progress = lambda *_: None) -> Deletion:
    """Delete what was found; it cannot be undone.

    Args:
        context: workspace and ledger.
        found: what `find` says.
        progress: is told how many grids are gone, and how many go.

    Raises:
        BadInput: meanwhile something needs a run, or there are other runs than were found.
    """
    trash = []
    with writing(context.ledger.engine) as connection:
        if set(_may_go(connection, found.grids, context.where)) != set(found.runs):
            raise BadInput(
                "since you were asked, runs have joined or left these grids. Nothing was deleted;"
                " repeat the command"
            )
    for done, grid_id in enumerate(found.grids, start=1):
        with writing(context.ledger.engine) as connection:
            trash.append(_delete_one(context, connection, grid_id))
        progress(done, len(found.grids))
    for folder in trash:
        shutil.rmtree(folder, ignore_errors=True)
    return Deletion(
        grids=found.grids, runs=found.runs, kept=found.kept, bytes=found.bytes, removed=True
    )


def _delete_one(context: Context, connection: Connection, grid_id: str) -> Path:
    """Move a grid into a folder of what is deleted, and return that; nothing in it is needed."""
    workspace = context.workspace
    runs = _may_go(connection, [grid_id], context.where)
    at, by = iso(context.clock()) or "", user_here()
    folder = make_folder(workspace.root / FOLDER / f"{grid_id}-{secrets.token_hex(4)}")
    mark = {"grid": grid_id, "runs": runs, "at": at, "by": by}
    write_new(folder / _WHAT, to_json(mark))
    # From here on it is deleted. Of a grid whose folder is lost only the ledger's rows go.
    with contextlib.suppress(FileNotFoundError):
        os.rename(workspace.grid(grid_id), folder / _GRID)
    fsync_folder(folder)
    fsync_folder(workspace.grids)
    append_line(workspace.root / LOG, to_json({**mark, "runs": len(runs)}))
    _forget(context, connection, folder, grid_id, runs)
    return folder


def finish(context: Context) -> list[str]:
    """Finish deletions that were killed; return the grids that are gone now."""
    place = context.workspace.root / FOLDER
    try:
        folders = sorted(place.iterdir())
    except FileNotFoundError:
        return []
    gone = []
    for folder in folders:
        grid_id = folder.name.rpartition("-")[0]
        # Under the lock: it may belong to a deletion that is at work.
        with writing(context.ledger.engine) as connection:
            if (folder / _GRID).is_dir() and not context.workspace.grid(grid_id).is_dir():
                was_known = ledger.is_known(connection, grid_id)
                if not _go_on(context, connection, folder, grid_id):
                    continue
                gone += [grid_id] if was_known else []
        shutil.rmtree(folder, ignore_errors=True)
    return gone


def _go_on(context: Context, connection: Connection, folder: Path, grid_id: str) -> bool:
    """Finish one deletion, or take it back where its runs were started again."""
    runs = set(read_cache(folder / _WHAT).get("runs", ()))
    mine = set(ledger.runs_of_no_other(connection, [grid_id]))
    if ledger.unsettled(connection, ledger.runs_of(connection, [grid_id])) or not mine <= runs:
        os.rename(folder / _GRID, context.workspace.grid(grid_id))
        for run_id in runs:
            with contextlib.suppress(FileNotFoundError):
                os.rename(folder / run_id, context.workspace.run(run_id).path)
        return False
    # A ledger that was made anew in between knows neither the grid nor these runs.
    unknown = runs - ledger.known(connection, runs)
    _forget(context, connection, folder, grid_id, sorted(mine | unknown))
    return True


def _forget(
    context: Context, connection: Connection, folder: Path, grid_id: str, runs: Sequence[str]
) -> None:
    """Move away what only this grid has, and let the ledger forget it."""
    workspace = context.workspace
    # Before the ledger forgets them: it takes in every allocation that it finds and does not know.
    left = {}
    for token, content in ledger.contents_naming(connection, runs).items():
        left[token] = _without(content, set(runs))
        _take_out(workspace, token, set(runs))
    for run_id in runs:
        workspace.run(run_id).withdraw()
        with contextlib.suppress(FileNotFoundError):
            os.rename(workspace.run(run_id).path, folder / run_id)
    _remove_tags(context, {grid_id, *runs})
    ledger.forget(connection, grid_id, runs, left)


def _without(content: Allocation, runs: set[str]) -> Allocation | None:
    """Return an allocation without these runs; None: it had no other."""
    tasks = tuple(tuple(task for task in part if task.run_id not in runs) for part in content.tasks)
    return changed(content, tasks=tasks) if any(tasks) else None


def _take_out(workspace: Workspace, token: str, runs: set[str]) -> None:
    """Take runs out of the file of an allocation that has ended; remove it where none is left."""
    path = workspace.allocation(token)
    try:
        found = read_allocation(path)
    except DamagedFile:
        return
    if found is None:
        return
    if (left := _without(found, runs)) is not None:
        write_over(path, to_json(left.to_dict()))
        return
    for one in (*workspace.allocations.glob(f"{token}-*.log"), workspace.unsent(token), path):
        one.unlink(missing_ok=True)


def _remove_tags(context: Context, targets: Collection[str]) -> None:
    """Take the tags off what is gone: a grid that is submitted again has none."""
    known = tags.tags_of(context.workspace)
    had = {target: known[target] for target in sorted(set(targets) & known.keys())}
    if had:
        every = tuple(sorted(set().union(*had.values())))
        at = iso(context.clock()) or ""
        change = tags.Tagging(at=at, by=user_here(), targets=list(had), remove=every)
        tags.record(context.workspace, change)


def _size(folder: Path) -> int:
    size = 0
    for path in folder.rglob("*"):
        # Meanwhile it may have gone.
        with contextlib.suppress(FileNotFoundError):
            size += 0 if path.is_dir() else path.lstat().st_size
    return size
