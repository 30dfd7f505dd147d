"""Notes and tags on grids and runs, and grids that are put away."""

from collections.abc import Sequence
from pathlib import Path

from ...db import queries
from ...db import tags as ledger_tags
from ...db.engine import Connection, reading, writing
from ...db.selected import resolve_grids, select_ids
from ...jobs.config.host import user_here
from ...jobs.documents import Document
from ...jobs.errors import BadInput, NothingMatched
from ...jobs.names import name_problem
from ...jobs.run.selector import Selection
from ...jobs.run.states import RunState
from ...jobs.units import iso, plural
from ...jobs.workspace import notes, tags
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


class Tagged(Document, frozen=True, kw_only=True):
    """A grid or a run with its tags."""

    target: str
    """Id of the grid or the run."""
    tags: list[str]
    """In alphabetical order."""


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


def tag(
    context: Context,
    selection: Selection,
    *,
    add: Sequence[str] = (),
    remove: Sequence[str] = (),
    dry_run: bool = False,
) -> list[Tagged]:
    """Put tags on what is selected, or take them off; return what is selected with its tags.

    Grids that are named without a condition are tagged themselves: runs that they get later are
    selected by the tag as well. Otherwise runs are.

    Args:
        context: workspace and ledger.
        selection: of grids or runs.
        add: tags to put on.
        remove: tags to take off.
        dry_run: whether only to say what would be so.

    Raises:
        NothingMatched: there is no such grid or run.
        BadInput: a tag is no name, or is both to be put on and taken off.
    """
    _require_tags(add, remove)
    targets = _targets(context, selection)
    now = tags.tags_of(context.workspace)
    changed = {
        target: (now.get(target, frozenset()) | set(add)) - set(remove) for target in targets
    }
    if (add or remove) and not dry_run:
        at = iso(context.clock()) or ""
        change = tags.Tagging(
            at=at, by=user_here(), targets=targets, add=tuple(add), remove=tuple(remove)
        )
        tags.record(context.workspace, change)
        with writing(context.ledger.engine) as connection:
            # All of them: an earlier call may have been killed between the file and the ledger.
            ledger_tags.keep(connection, tags.tags_of(context.workspace))
    return [Tagged(target=target, tags=sorted(changed[target])) for target in targets]


def all_tagged(context: Context) -> list[Tagged]:
    """Return the grids and runs that have tags."""
    with reading(context.ledger.engine) as connection:
        found = ledger_tags.of_targets(connection)
    return [Tagged(target=target, tags=found[target]) for target in found]


def _require_tags(add: Sequence[str], remove: Sequence[str]) -> None:
    for name in (*add, *remove):
        if problem := name_problem(name):
            raise BadInput(f"a tag is a name, got {name!r}: {problem}")
    if both := set(add) & set(remove):
        raise BadInput(f"{min(both)} is both in --add and in --remove. Leave out one of them")


def _targets(context: Context, selection: Selection) -> list[str]:
    with reading(context.ledger.engine) as connection:
        if selection.names and not selection.conditions:
            found = [resolve_grids(connection, name) for name in selection.names]
            if all(found):
                return list(dict.fromkeys(grid_id for grids in found for grid_id in grids))
        return select_ids(connection, selection)


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
    with reading(context.ledger.engine) as connection:
        chosen = [grid_named(connection, word, context.where) for word in words]
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


def grid_named(connection: Connection, word: str, where: str) -> str:
    """Return the grid that a name or an id means: of a name the newest.

    Raises:
        NothingMatched: there is none.
    """
    found = resolve_grids(connection, word)
    if not found:
        raise NothingMatched(f"no grid is called {word!r}. See: vtjobs status{where}")
    return found[0]


def _require_over(context: Context, grid_id: str) -> None:
    counts = status(context, Selection(names=(grid_id,))).runs
    left = sum(count for state, count in counts.items() if not RunState(state).is_settled)
    if left:
        raise BadInput(
            f"{grid_id} has {plural(left, 'run')} still to end. First: vtjobs cancel"
            f" {grid_id}{context.where}"
        )
