"""Notes on grids and runs, and grids that are put away."""

from collections.abc import Sequence
from pathlib import Path

from ...db import queries
from ...db.engine import reading
from ...db.selected import resolve_grids
from ...jobs.config.host import user_here
from ...jobs.documents import Document
from ...jobs.errors import BadInput, NothingMatched
from ...jobs.run.selector import Selection
from ...jobs.run.states import RunState
from ...jobs.units import iso, plural
from ...jobs.workspace import notes
from ..loop.context import Context
from ..views.status import status


class Noted(Document, frozen=True, kw_only=True):
    """A grid or a run, and what is written about it."""

    name: str
    """Id of the grid or the run."""
    notes: list[notes.Note]
    """The oldest first."""


class Archived(Document, frozen=True, kw_only=True):
    """Grids that were put away, or brought back."""

    grids: list[str]
    """Those that changed."""


def noted(context: Context, word: str, text: str | None) -> Noted:
    """Write a note, if there is one to write; return all notes.

    Args:
        context: workspace and ledger.
        word: a grid's name or id, or the beginning of a run's id.
        text: what to write; None: nothing.

    Raises:
        NothingMatched: there is no such grid or run.
        BadInput: the word means several runs, or the note is empty or too long.
    """
    name, folder = _meant(context, word)
    if text is not None:
        text = text.strip()
        if not text or len(text) > notes.MOST_CHARACTERS:
            raise BadInput(f"a note has 1 to {notes.MOST_CHARACTERS} characters, got {len(text)}")
        at = iso(context.clock()) or ""
        notes.add_note(folder, notes.Note(at=at, by=user_here(), text=text))
    return Noted(name=name, notes=notes.notes_of(folder))


def _meant(context: Context, word: str) -> tuple[str, Path]:
    with reading(context.ledger.engine) as connection:
        if grids := resolve_grids(connection, word):
            return grids[0], context.workspace.grid(grids[0])
        rows = queries.list_runs(connection, Selection(names=(word,)), limit=2)
    if len(rows) > 1:
        raise BadInput(f"{word} means several runs; give more of the id")
    return rows[0].run_id, context.workspace.run(rows[0].run_id).path


def archive(
    context: Context, words: Sequence[str], *, undo: bool = False, dry_run: bool = False
) -> Archived:
    """Put grids away, so that `status` leaves them out; nothing of them is removed.

    Args:
        context: workspace and ledger.
        words: names or ids of grids; a name means the newest grid of that name.
        undo: whether to bring them back instead.
        dry_run: whether only to say which.

    Raises:
        NothingMatched: there is no such grid.
        BadInput: a grid has runs that are still to end.
    """
    chosen = [_grid(context, word) for word in words]
    changed = [
        grid_id
        for grid_id in dict.fromkeys(chosen)
        if notes.is_archived(context.workspace, grid_id) is undo
    ]
    if not undo:
        for grid_id in changed:
            _require_over(context, grid_id)
    at, by = iso(context.clock()) or "", user_here()
    for grid_id in changed if not dry_run else ():
        if undo:
            notes.bring_back(context.workspace, grid_id)
        else:
            notes.archive(context.workspace, grid_id, at=at, by=by)
    return Archived(grids=changed)


def _grid(context: Context, word: str) -> str:
    with reading(context.ledger.engine) as connection:
        found = resolve_grids(connection, word)
    if not found:
        raise NothingMatched(f"no grid is called {word!r}. See: vtjobs status{context.where}")
    return found[0]


def _require_over(context: Context, grid_id: str) -> None:
    counts = status(context, Selection(names=(grid_id,))).runs
    left = sum(count for state, count in counts.items() if not RunState(state).is_settled)
    if left:
        raise BadInput(
            f"{grid_id} has {plural(left, 'run')} still to end. First: vtjobs cancel"
            f" {grid_id}{context.where}"
        )
