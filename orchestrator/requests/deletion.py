"""Delete grids with the runs that no other grid has: results, weights, files.

A marker in the grid's folder says what is to go before anything goes, and the folder goes last: a
deletion that was killed is finished by the next one, by `gc`, or by a submission.
"""

import shutil
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path

from ...db import deletion as ledger
from ...db.engine import Connection, reading, writing
from ...db.selected import resolve_grids
from ...jobs.atomic_files import append_line, read_cache, to_json, write_over
from ...jobs.config.host import user_here
from ...jobs.documents import Document
from ...jobs.errors import BadInput, DamagedFile, NothingMatched
from ...jobs.units import iso, plural
from ...jobs.workspace import tags
from ...jobs.workspace.allocation import read_allocation
from ...jobs.workspace.paths import Workspace
from ...jobs.workspace.stored_grid import DELETED
from ..loop.context import Context

Progress = Callable[[int, int], None]
# In the workspace: which grids were deleted, when and by whom, a line each time.
LOG = "deleted.jsonl"


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
        BadInput: a run is still to end, or another grid needs one.
    """
    with reading(context.ledger.engine) as connection:
        grids = list(dict.fromkeys(_grid(connection, word, context.where) for word in words))
        runs = _may_go(connection, grids, context.where)
        count = ledger.count_of(connection, grids)
    size = 0
    for done, run_id in enumerate(runs, start=1):
        size += _size(context.workspace.run(run_id).path)
        progress(done, len(runs))
    return Deletion(grids=grids, runs=runs, kept=count - len(runs), bytes=size, removed=False)


def _grid(connection: Connection, word: str, where: str) -> str:
    found = resolve_grids(connection, word)
    if not found:
        raise NothingMatched(f"no grid is called {word!r}. See: vtjobs status{where}")
    return found[0]


def _may_go(connection: Connection, grids: Sequence[str], where: str) -> list[str]:
    """Return the runs that go with these grids.

    Raises:
        BadInput: something still needs one of them.
    """
    runs = ledger.runs_of_no_other(connection, grids)
    if left := ledger.unsettled(connection, runs):
        raise BadInput(
            f"{plural(len(left), 'run')} of {', '.join(grids)} still to end."
            f" First: vtjobs cancel {' '.join(grids)}{where}"
        )
    if children := ledger.children_left(connection, runs):
        raise BadInput(
            f"{plural(len(children), 'run')} of other grids, such as {children[0]},"
            f" went on from runs of {', '.join(grids)}. Delete their grids first"
        )
    beside = ledger.neighbours(connection, ledger.tokens_of(connection, runs)) - set(runs)
    if busy := ledger.unsettled(connection, beside):
        raise BadInput(
            f"a job that {', '.join(grids)} shared still trains {plural(len(busy), 'run')} of other"
            f" grids, such as {busy[0]}. Delete again when they have ended"
        )
    return runs


def delete(context: Context, found: Deletion, progress: Progress = lambda *_: None) -> Deletion:
    """Delete what was found; it cannot be undone.

    Args:
        context: workspace and ledger.
        found: what `find` says.
        progress: is told how many runs are gone, and how many go.

    Raises:
        BadInput: meanwhile something needs a run, or there are other runs than were found.
    """
    workspace = context.workspace
    with writing(context.ledger.engine) as connection:
        runs = _may_go(connection, found.grids, context.where)
        if set(runs) != set(found.runs):
            raise BadInput("the grids have changed meanwhile, and nothing was done. Delete again")
        tokens = ledger.tokens_of(connection, runs)
        at, by = iso(context.clock()), user_here()
        for grid_id in found.grids:
            mark = {"at": at, "by": by, "runs": runs, "tokens": tokens}
            write_over(workspace.marker(grid_id, DELETED), to_json(mark | {"grids": found.grids}))
        _forget(connection, workspace, found.grids, runs, tokens)
    # What was looked at and then deleted can be asked about.
    line = {"at": at, "by": by, "grids": found.grids, "runs": len(runs)}
    append_line(workspace.root / LOG, to_json(line))
    _remove_files(context, found.grids, runs, progress)
    return Deletion(grids=found.grids, runs=runs, kept=found.kept, bytes=found.bytes, removed=True)


def finish(context: Context) -> list[str]:
    """Finish deletions that were killed; return the grids that are gone now."""
    workspace = context.workspace
    gone = []
    for path in sorted(workspace.grids.glob(f"*/{DELETED}.json")):
        mark = read_cache(path)
        grids = list(mark.get("grids", ()))
        if path.parent.name not in grids:
            continue
        with writing(context.ledger.engine) as connection:
            # A run that the ledger has for another grid stays.
            theirs = ledger.runs_of_no_other(connection, grids)
            known = ledger.known(connection, mark["runs"])
            runs = [one for one in mark["runs"] if one in theirs or one not in known]
            if ledger.unsettled(connection, runs):
                # Somebody has started one of them again: it is not to go any more.
                path.unlink()
                continue
            _forget(connection, workspace, grids, runs, list(mark.get("tokens", ())))
        _remove_files(context, grids, runs, lambda *_: None)
        gone += grids
    return gone


def _forget(
    connection: Connection,
    workspace: Workspace,
    grids: Collection[str],
    runs: Collection[str],
    tokens: Collection[str],
) -> None:
    # Before the ledger forgets them: it takes in every allocation that it finds and does not know.
    for token in tokens:
        _take_out(workspace, token, set(runs))
    ledger.forget(connection, grids, runs, tokens)


def _take_out(workspace: Workspace, token: str, runs: set[str]) -> None:
    """Take runs out of an allocation that has ended; remove it where none is left."""
    path = workspace.allocation(token)
    try:
        found = read_allocation(path)
    except DamagedFile:
        return
    if found is None:
        return
    left = tuple(tuple(task for task in part if task.run_id not in runs) for part in found.tasks)
    if any(left):
        write_over(path, to_json(replace(found, tasks=left).to_dict()))
        return
    for one in (*workspace.allocations.glob(f"{token}-*.log"), workspace.unsent(token), path):
        one.unlink(missing_ok=True)


def _remove_files(
    context: Context, grids: Collection[str], runs: Sequence[str], progress: Progress
) -> None:
    workspace = context.workspace
    for done, run_id in enumerate(runs, start=1):
        _remove(workspace.run(run_id).path)
        progress(done, len(runs))
    _remove_tags(context, {*grids, *runs})
    for grid_id in grids:
        _remove(workspace.grid(grid_id), last=workspace.marker(grid_id, DELETED))


def _remove_tags(context: Context, targets: set[str]) -> None:
    """Take the tags off what is gone: a grid that is submitted again has none."""
    had = {
        target: found
        for target, found in tags.tags_of(context.workspace).items()
        if target in targets
    }
    if had:
        every = tuple(sorted(set().union(*had.values())))
        at = iso(context.clock()) or ""
        change = tags.Tagging(at=at, by=user_here(), targets=sorted(had), remove=every)
        tags.record(context.workspace, change)


def _remove(folder: Path, last: Path | None = None) -> None:
    """Remove a folder; what `last` names stays until all else in it is gone."""
    if last is not None and folder.is_dir():
        for entry in folder.iterdir():
            if entry.is_dir():
                shutil.rmtree(entry)
            elif entry != last:
                entry.unlink()
    if folder.is_dir():
        shutil.rmtree(folder)


def _size(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())
