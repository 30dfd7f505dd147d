"""What is left to do, and how long such runs have taken: a few queries, however many runs."""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from sqlalchemy import Connection, Select, and_, case, func, literal, not_, or_, select

from ..jobs.run.eta import Underway, Waiting, with_running
from ..jobs.run.pace import CellFacts, History, Kind, Seen
from ..jobs.run.selector import Selection
from ..jobs.run.states import AttemptState, RunState
from . import models as m
from .lookups import allocation
from .parts import in_parts, is_among
from .selected import where

# More cells than this are not named in a query: all are read at once.
MANY_CELLS = 1000
# So many places with a known start are looked at.
MOST_PLACES = 100

_SECONDS = m.attempts.c.ended_at - m.attempts.c.started_at
# Attempts that trained a run from its beginning to its end.
_WHOLE = and_(
    m.attempts.c.state == AttemptState.COMPLETED,
    m.attempts.c.resumed_step.is_(None),
    m.attempts.c.started_at.is_not(None),
)


def seconds_per_run(connection: Connection) -> dict[str, tuple[float, int]]:
    """Return cell_id -> (mean seconds of a completed attempt that began from nothing, how many)."""
    query = (
        select(m.runs.c.cell_id, func.avg(_SECONDS), func.count())
        .join(m.attempts, m.attempts.c.run_id == m.runs.c.run_id)
        .where(_WHOLE)
        .group_by(m.runs.c.cell_id)
    )
    return {row[0]: (float(row[1]), int(row[2])) for row in connection.execute(query)}


def _seen_of_cells(connection: Connection, cell_ids: set[str]) -> dict[str, Seen]:
    """Return what was seen of these cells; one that never completed is left out."""
    if len(cell_ids) > MANY_CELLS:
        every = _seen(connection, _moments())
        return {cell_id: seen for cell_id, seen in every.items() if cell_id in cell_ids}
    found: dict[str, Seen] = {}
    for part in in_parts(cell_ids):
        found |= _seen(connection, _moments().where(m.runs.c.cell_id.in_(part)))
    return found


def _seen_alike(connection: Connection, kinds: set[Kind]) -> dict[str, Seen]:
    """Return what was seen of the cells with these backbones and datasets."""
    found: dict[str, Seen] = {}
    for part in in_parts({kind.backbone for kind in kinds}):
        query = _moments().join(m.cells, m.cells.c.cell_id == m.runs.c.cell_id)
        found |= _seen(connection, query.where(m.cells.c.backbone.in_(part)))
    return found


def _moments() -> Select[Any]:
    sums = (func.count(), func.sum(_SECONDS), func.sum(_SECONDS * _SECONDS))
    query = select(m.runs.c.cell_id, *sums).select_from(m.runs)
    joined = query.join(m.attempts, m.attempts.c.run_id == m.runs.c.run_id)
    return joined.where(_WHOLE).group_by(m.runs.c.cell_id)


def _seen(connection: Connection, query: Select[Any]) -> dict[str, Seen]:
    return {row[0]: Seen(row[1], row[2], row[3]) for row in connection.execute(query)}


def history(
    connection: Connection,
    cell_ids: Iterable[str],
    running: Sequence[Underway],
    facts: Mapping[str, CellFacts] | None = None,
) -> History:
    """Return what was seen of these cells, and of cells alike where nothing was.

    Args:
        connection: to the ledger.
        cell_ids: whose pace is asked for.
        running: runs that train.
        facts: of the cells; None: the ledger has them.
    """
    wanted = set(cell_ids)
    own = _seen_of_cells(connection, wanted)
    seen = with_running(own, running)
    if not (missing := wanted - seen.keys()):
        return History(cells=seen, facts={})
    known = dict(facts) if facts is not None else _facts_of(connection, missing)
    others = _seen_alike(connection, {known[cell_id].kind for cell_id in missing})
    alike = _facts_of(connection, others.keys() | {run.cell_id for run in running})
    return History(cells=with_running(others | own, running), facts=alike | known)


def _facts_of(connection: Connection, cell_ids: Iterable[str]) -> dict[str, CellFacts]:
    """Return cell -> what is known of it before any of its runs."""
    table, found = m.cells.c, dict[str, CellFacts]()
    for part in in_parts(cell_ids):
        query = select(table.cell_id, table.backbone, table.dataset, table.spec)
        for row in connection.execute(query.where(table.cell_id.in_(part))):
            spec = json.loads(row.spec)
            if spec is None:
                # Its runs were imported: they were never timed, and none is to come.
                continue
            kind, epochs = Kind(row.backbone, row.dataset), epochs_of(spec["recipe"])
            found[row.cell_id] = CellFacts(kind=kind, epochs=epochs)
    return found


@cache
def epochs_of(recipe: str) -> int:
    """Return the epochs of a recipe's JSON.

    Of thousands of cells: their whole description would take ten times as long to read.
    """
    return int(json.loads(recipe)["epochs"])


# What is left -------------------------------------------------------------------------------------


def waiting(
    connection: Connection,
    selection: Selection,
    backends: Mapping[str, str],
    *,
    held: Mapping[str, Collection[str]],
    now: float,
) -> list[Waiting]:
    """Return the runs that have yet to start, alike ones together, in the order of their start.

    Runs that the user holds are left out: they do not go on by themselves.

    Args:
        connection: to the ledger.
        selection: whose end is asked for; the others are returned as well.
        backends: grid -> its backend.
        held: grid -> the runs that its marker holds.
        now: since when a back-off is over.
    """
    parent, runs = m.runs.alias("parent"), m.runs.c
    not_held = not_(is_among(connection, {grid_id: ids for grid_id, ids in held.items() if ids}))
    selected = _is_selected(connection, selection).label("is_selected")
    until = case((runs.not_before > now, runs.not_before), else_=0.0).label("until")
    after = case((parent.c.state != RunState.COMPLETED, parent.c.cell_id)).label("after")
    query = (
        select(runs.grid_id, runs.cell_id, selected, until, after)
        .add_columns(func.count().label("runs"), func.avg(_left()).label("left"))
        .select_from(m.runs)
        .join(m.cells, m.cells.c.cell_id == runs.cell_id)
        .join(m.grids, m.grids.c.grid_id == runs.grid_id)
        .outerjoin(parent, parent.c.run_id == runs.parent)
        .outerjoin(m.grid_runs, and_(_PLACE.run_id == runs.run_id, _PLACE.grid_id == runs.grid_id))
        .where(or_(runs.state == RunState.QUEUED, and_(runs.state == RunState.PENDING, not_held)))
        # By their names: PostgreSQL takes two parameters for two expressions.
        .group_by(m.grids.c.submitted_at, runs.grid_id, runs.cell_id)
        .group_by("is_selected", "until", "after")
        .order_by(m.grids.c.submitted_at, runs.grid_id, func.min(_PLACE.position))
    )
    return [
        Waiting(
            grid_id=row.grid_id,
            cell_id=row.cell_id,
            runs=row.runs,
            backend=backends.get(row.grid_id, ""),
            is_selected=bool(row.is_selected),
            parent_cell=row.after,
            not_before=row.until,
            left=float(row.left),
        )
        for row in connection.execute(query)
    ]


_PLACE = m.grid_runs.c


def _left() -> Any:
    """Return the share of a run that its newest checkpoint leaves to do."""
    table = m.attempts.c
    done = select(func.max(table.checkpoint_step * 1.0 / table.steps)).where(
        table.run_id == m.runs.c.run_id, table.steps > 0
    )
    return case((m.runs.c.clean_next, 1.0), else_=1.0 - func.coalesce(done.scalar_subquery(), 0.0))


def _is_selected(connection: Connection, selection: Selection) -> Any:
    if not selection.names and not selection.conditions:
        return literal(1)
    return case((where(connection, selection), 1), else_=0)


def underway(
    connection: Connection, selection: Selection, backends: Mapping[str, str]
) -> list[Underway]:
    """Return the runs that train; those outside the selection are returned as well."""
    table = m.attempts.c
    names = ("started_at", "heartbeat_at", "step", "steps", "resumed_step", "trained_s")
    query = (
        select(m.runs.c.run_id, m.runs.c.grid_id, m.runs.c.cell_id)
        .add_columns(*(table[name] for name in names))
        .add_columns(_is_selected(connection, selection).label("is_selected"))
        .select_from(m.attempts)
        .join(m.runs, m.runs.c.run_id == table.run_id)
        .join(m.cells, m.cells.c.cell_id == m.runs.c.cell_id)
        .where(table.state == AttemptState.RUNNING, table.started_at.is_not(None))
        .order_by(m.runs.c.run_id)
    )
    return [
        Underway(
            run_id=row.run_id,
            grid_id=row.grid_id,
            cell_id=row.cell_id,
            backend=backends.get(row.grid_id, ""),
            is_selected=bool(row.is_selected),
            started_at=row.started_at,
            seen_at=row.heartbeat_at or row.started_at,
            step=row.step or 0,
            steps=row.steps,
            from_step=row.resumed_step or 0,
            trained_s=row.trained_s,
        )
        for row in connection.execute(query)
    ]


def openings(connection: Connection) -> dict[str, list[float]]:
    """Return backend -> when its slots open, as far as its scheduler says.

    Each of its places has as many slots as runs that it hosts at a time.
    """
    table, facts = m.attempts.c, m.allocations.c
    query = (
        select(facts.backend, table.token, table.array_index, func.min(table.starts_at))
        .join(m.allocations, facts.token == table.token)
        .where(table.state == AttemptState.QUEUED, table.starts_at.is_not(None))
        .group_by(facts.backend, table.token, table.array_index)
        .order_by(func.min(table.starts_at))
        .limit(MOST_PLACES)
    )
    found: dict[str, list[float]] = defaultdict(list)
    lanes: dict[str, int] = {}
    for backend, token, _, starts_at in connection.execute(query).all():
        if token not in lanes:
            lanes[token] = allocation(connection, token).lanes
        found[backend] += [starts_at] * lanes[token]
    return found
