"""What has happened that somebody may want to be told of."""

from collections import defaultdict

from sqlalchemy import func, select

from ..jobs.run.states import RunState
from ..jobs.values import Value
from . import models as m
from .engine import Connection
from .parts import in_parts

_UNSETTLED = tuple(state for state in RunState if not state.is_settled)
_LOST = (RunState.FAILED, RunState.DIVERGED)


class EndedGrid(Value, frozen=True, kw_only=True):
    """A grid of which no run will do anything by itself any more."""

    grid_id: str
    states: dict[str, int]
    """State -> runs in it."""
    attempts: int
    """Of all its runs: another number says that the grid has gone on since."""
    at: float
    """When the last of its attempts ended."""


class LostRun(Value, frozen=True, kw_only=True):
    """A run that failed or diverged."""

    grid_id: str
    run_id: str
    backbone: str
    dataset: str
    head: str
    seed: int
    state: str
    failure: str | None
    number: int
    """Of its newest attempt."""
    at: float
    """When that attempt ended."""


class QuietGrid(Value, frozen=True, kw_only=True):
    """A grid with unfinished runs to which nothing happens."""

    grid_id: str
    runs: int
    """Unfinished."""
    at: float
    """When something last happened to one of its runs."""


def ended_grids(connection: Connection, since: float) -> list[EndedGrid]:
    """Return the grids of which an attempt ended after a time, and none is left to come.

    The journals' times count: those of the ledger are new after it was rebuilt. A grid that was
    cancelled before it began is left out; whoever did it knows.

    Args:
        connection: to the ledger.
        since: seconds since 1970.
    """
    changed = func.max(m.attempts.c.ended_at)
    open_ = select(m.runs.c.grid_id).where(m.runs.c.state.in_(_UNSETTLED))
    query = (
        select(m.runs.c.grid_id, changed)
        .join(m.attempts, m.attempts.c.run_id == m.runs.c.run_id)
        .where(m.runs.c.grid_id.not_in(open_))
        .group_by(m.runs.c.grid_id)
        .having(changed > since)
    )
    ended = {grid_id: at for grid_id, at in connection.execute(query).all()}
    states: dict[str, dict[str, int]] = defaultdict(dict)
    attempts: dict[str, int] = {}
    for part in in_parts(ended):
        of_them = m.runs.c.grid_id.in_(part)
        counted = select(m.runs.c.grid_id, m.runs.c.state, func.count()).where(of_them)
        for grid_id, state, count in connection.execute(
            counted.group_by(m.runs.c.grid_id, m.runs.c.state)
        ).all():
            states[grid_id][state] = count
        tried = (
            select(m.runs.c.grid_id, func.count())
            .join(m.attempts, m.attempts.c.run_id == m.runs.c.run_id)
            .where(of_them)
        )
        for grid_id, count in connection.execute(tried.group_by(m.runs.c.grid_id)).all():
            attempts[grid_id] = count
    return [
        EndedGrid(grid_id=grid_id, states=states[grid_id], attempts=attempts[grid_id], at=at)
        for grid_id, at in ended.items()
    ]


def lost_runs(connection: Connection, since: float) -> list[LostRun]:
    """Return the runs that failed or diverged after a time, in seconds since 1970.

    The journals' times count.
    """
    tried = m.attempts.alias("tried").c
    latest = select(func.max(tried.number)).where(tried.run_id == m.runs.c.run_id).scalar_subquery()
    cells = m.cells.c
    query = (
        select(
            m.runs.c.grid_id,
            m.runs.c.run_id,
            cells.backbone,
            cells.dataset,
            cells.head,
            m.runs.c.seed,
            m.runs.c.state,
            m.attempts.c.failure,
            m.attempts.c.number,
            m.attempts.c.ended_at.label("at"),
        )
        .select_from(m.runs)
        .join(m.cells, cells.cell_id == m.runs.c.cell_id)
        .join(
            m.attempts,
            (m.attempts.c.run_id == m.runs.c.run_id) & (m.attempts.c.number == latest),
        )
        .where(m.runs.c.state.in_(_LOST), m.attempts.c.ended_at > since)
        .order_by(m.attempts.c.ended_at)
    )
    return [LostRun(**row) for row in connection.execute(query).mappings()]


def quiet_grids(connection: Connection, before: float) -> list[QuietGrid]:
    """Return the grids with unfinished runs to which nothing has happened since a time.

    Args:
        connection: to the ledger.
        before: seconds since 1970.
    """
    heard = func.max(func.coalesce(m.attempts.c.heartbeat_at, m.attempts.c.submitted_at))
    query = (
        select(
            m.runs.c.grid_id,
            func.count(m.runs.c.run_id.distinct()),
            func.max(m.runs.c.changed_at),
            heard,
        )
        .select_from(m.runs)
        .outerjoin(m.attempts, m.attempts.c.run_id == m.runs.c.run_id)
        .where(m.runs.c.state.in_(_UNSETTLED))
        .group_by(m.runs.c.grid_id)
    )
    found = [
        QuietGrid(grid_id=grid_id, runs=runs, at=max(changed, beat or 0.0))
        for grid_id, runs, changed, beat in connection.execute(query).all()
    ]
    return [one for one in found if one.at < before]
