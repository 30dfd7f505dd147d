"""How many runs there are of each state and each shown word, over all and per grid."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from ...db import queries, scheduler_notes, selected, tags
from ...db.alike import alike
from ...db.engine import Connection, reading
from ...db.gpu_hours import GpuHours, added, gpu_hours
from ...db.records import AlikeRow
from ...jobs.documents import Document
from ...jobs.errors import NothingMatched
from ...jobs.run.eta import Eta
from ...jobs.run.selector import Selection
from ...jobs.run.states import RunState
from ...jobs.units import iso
from ...jobs.values import changed
from ...jobs.workspace.notes import Note, is_archived, notes_of
from ..loop.context import Context
from .eta import Etas, etas
from .runs import SCHEMA_VERSION
from .shown import HELD, WORDS, Words


class Unreachable(Document, frozen=True, kw_only=True):
    """A scheduler that could not be asked."""

    backend: str
    cluster: str = ""
    """Which of the backend's clusters, where it may have several."""
    since: str | None
    """ISO 8601, UTC."""
    reason: str
    """Why."""


class Slow(Document, frozen=True, kw_only=True):
    """A scheduler that gave no answer in time, for less than five minutes."""

    backend: str
    cluster: str = ""
    """Which of the backend's clusters, where it may have several."""
    answered: str | None
    """When it answered last, ISO 8601, UTC; null: it never did. The states are as of then."""
    since: str | None
    """When it was first asked without an answer; ISO 8601, UTC."""
    reason: str
    """Why there was none."""


class GridCounts(Document, frozen=True, kw_only=True):
    """The runs of one grid."""

    grid_id: str
    name: str
    runs: dict[str, int]
    """State -> runs in it, every state."""
    shown: dict[str, int]
    """Word that `runs` shows -> runs shown by it, every word. A run is counted once."""
    held: int
    """Runs that wait, and are on hold."""
    submitted_by: str
    """user@host of its latest submission; empty: it was not recorded."""
    eta: Eta | None
    """When its runs will have ended, those on hold and those of a newer grid left out; null: none
    is left.
    """
    archived: bool = False
    """Whether somebody put it away, so that it is left out where grids are listed."""
    notes: tuple[Note, ...] = ()
    """What people wrote about it, the oldest first."""
    tags: tuple[str, ...] = ()
    """What people put on it to select by."""


class Status(Document, frozen=True, kw_only=True):
    """What `vtjobs status` shows."""

    schema_version: int
    as_of: str | None
    """When it was looked; ISO 8601, UTC."""
    workspace: str
    """Its folder."""
    runs: dict[str, int]
    """State -> runs in it, every state."""
    shown: dict[str, int]
    """Word that `runs` shows -> runs shown by it, every word. A run is counted once."""
    grids: list[GridCounts]
    """The grids, each with its runs."""
    held: int
    """Runs that wait, and are on hold."""
    unreachable: list[Unreachable]
    """Schedulers that could not be asked."""
    damaged_journals: list[str]
    """`run/attempt: why` of journals that were set aside."""
    eta: Eta | None
    """When the runs will have ended, those on hold left out; null: none is left."""
    gpu_hours: GpuHours | None = None
    """Of the selected runs' attempts, where the selection names grids."""
    slow: list[Slow]
    """Schedulers that gave no answer in time: what they said last is shown."""


def status(context: Context, selection: Selection, *, left: Etas | None = None) -> Status:
    """Return how many runs are in each state, over all and per grid.

    Args:
        context: workspace and ledger.
        selection: of runs.
        left: when they will have ended, of `etas`, where it was estimated before.

    Raises:
        NothingMatched: a condition has a value that no run has.
    """
    words = Words(context)
    with reading(context.ledger.engine) as connection:
        settings = queries.grid_settings(connection)
        tagged = tags.of_targets(connection, settings)
        held = {grid_id: runs for grid_id in settings if (runs := words.held(grid_id))}
        listed = [
            grid_id
            for grid_id, facts in settings.items()
            if {grid_id, facts.name} & set(selection.names)
        ]
        # The row of a grid that is named has all of its runs: a name alone means the newest grid.
        of_rows = changed(selection, names=()) if listed else selection
        in_grids = alike(connection, of_rows, by_grid=True, held=held)
        # The grid whose settings hold for a run has it once.
        once = [row for row in in_grids if row.of_grid == row.grid_id]
        rows = alike(connection, selection, held=held) if listed else once
        if not rows and (unknown := selected.absent(connection, selection)):
            raise NothingMatched("\n".join(unknown))
        by_grid: dict[str | None, list[AlikeRow]] = defaultdict(list)
        for row in in_grids:
            by_grid[row.of_grid].append(row)
        damaged = queries.damaged_journals(connection)
        spent = _spent(connection, selection) if rows else None
    shown, left = _shown(words, rows), left or etas(context, selection)
    away = scheduler_notes.away(context.ledger)
    grids = []
    for grid_id in listed or settings:
        if grid_id not in by_grid:
            continue
        in_grid = _shown(words, by_grid[grid_id])
        grids.append(
            GridCounts(
                grid_id=grid_id,
                name=settings[grid_id].name,
                runs=_states(by_grid[grid_id]),
                shown=in_grid,
                held=in_grid[HELD],
                submitted_by=settings[grid_id].submitted_by,
                eta=left.grids.get(grid_id),
                archived=is_archived(context.workspace, grid_id),
                notes=tuple(notes_of(context.workspace.grid(grid_id))),
                tags=tuple(tagged.get(grid_id, ())),
            )
        )
    unreachable, slow = _schedulers(away)
    return Status(
        schema_version=SCHEMA_VERSION,
        as_of=iso(context.clock()),
        workspace=str(context.workspace.root),
        runs=_states(rows),
        shown=shown,
        grids=grids,
        held=shown[HELD],
        unreachable=unreachable,
        damaged_journals=[
            f"{row['run_id']}/{row['attempt']:04d}: {row['note']}" for row in damaged
        ],
        eta=left.all,
        gpu_hours=spent,
        slow=slow,
    )


def held_of(context: Context, grid_id: str) -> int:
    """Return how many runs of a grid, the newest that has them, wait on hold."""
    words = Words(context)
    selection = Selection(names=(grid_id,))
    with reading(context.ledger.engine) as connection:
        rows = alike(connection, selection, held={grid_id: words.held(grid_id)})
    return _shown(words, rows)[HELD]


def _schedulers(away: Mapping[str, scheduler_notes.Away]) -> tuple[list[Unreachable], list[Slow]]:
    """Return the schedulers that cannot be reached, and those that answer slowly."""
    unreachable: list[Unreachable] = []
    slow: list[Slow] = []
    for name, fact in away.items():
        backend, _, cluster = name.partition(" at ")
        since, reason = iso(fact.since), fact.reason
        if fact.is_slow:
            answered = iso(fact.answered)
            slow.append(
                Slow(
                    backend=backend, cluster=cluster, answered=answered, since=since, reason=reason
                )
            )
        else:
            unreachable.append(
                Unreachable(backend=backend, cluster=cluster, since=since, reason=reason)
            )
    return unreachable, slow


def _spent(connection: Connection, selection: Selection) -> GpuHours | None:
    # It takes a look at every attempt, which is too much for a whole workspace.
    if not selected.named_grids(connection, selection):
        return None
    chosen = selected.select_ids(connection, selection)
    by_run = gpu_hours(connection, chosen)
    return added(hours for of_run in by_run.values() for hours in of_run.values())


def _states(rows: Iterable[AlikeRow]) -> dict[str, int]:
    counts = Counter[str]()
    for row in rows:
        counts[row.state] += row.runs
    return {str(state): counts[state] for state in RunState}


def _shown(words: Words, rows: Iterable[AlikeRow]) -> dict[str, int]:
    counts = Counter[str]()
    for row in rows:
        counts[words.of(row)] += row.runs
    return {str(word): counts[word] for word in (*WORDS, *sorted(counts.keys() - set(WORDS)))}
