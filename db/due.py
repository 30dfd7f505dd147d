"""The pending runs that may start now, for the dispatcher."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from sqlalchemy import Connection, Row, func, not_, select

from ..jobs.run.states import LIVE, AttemptState, RunState
from ..jobs.values import Value
from . import models as m
from .parts import is_among


class DueRun(Value, frozen=True, kw_only=True):
    """A pending run with what an attempt at it needs to know."""

    run_id: str
    grid_id: str
    parent: str | None
    clean_next: bool
    micro_split: int
    state: RunState
    not_before: float
    """When its back-off is over, in seconds since 1970."""
    last: int
    """Number of its newest attempt; 0 if there is none."""
    after: str | None
    """The scheduler's job of the parent's live allocation, which must end first."""
    backend: str | None
    """The backend of that job."""


# Ends after which an agent may try the run again: it was stopped, or it failed.
_TRIED_AGAIN = (
    AttemptState.TIMEOUT,
    AttemptState.PREEMPTED,
    AttemptState.FAILED,
    AttemptState.OUT_OF_MEMORY,
)

_NUMBER = (
    select(func.max(m.attempts.c.number))
    .where(m.attempts.c.run_id == m.runs.c.run_id)
    .scalar_subquery()
    .label("last")
)


def due_runs(
    connection: Connection,
    now: float,
    *,
    held: Mapping[str, Iterable[str]],
    only: Mapping[str, Iterable[str]],
) -> list[DueRun]:
    """Return the pending runs whose back-off is over and whose parent has completed or is live.

    They are ordered by grid, and within it as the grid lists them.

    Args:
        connection: to the ledger.
        now: seconds since 1970.
        held: grid -> runs of it to leave out. There may be a hundred thousand that nobody releases
            for days, so they are not even read.
        only: grid -> its runs that are not left out; of other grids all.
    """
    parent, tried = m.runs.alias("parent"), m.attempts.alias("tried")
    is_live = tried.c.state.in_(LIVE) & (tried.c.run_id == m.runs.c.parent)
    same_grid = m.grid_runs.c.grid_id == m.runs.c.grid_id
    query = (
        select(m.runs, _NUMBER, m.allocations.c.job_id.label("after"), m.allocations.c.backend)
        .select_from(m.runs)
        .outerjoin(parent, parent.c.run_id == m.runs.c.parent)
        .outerjoin(tried, is_live)
        .outerjoin(m.allocations, m.allocations.c.token == tried.c.token)
        .outerjoin(m.grid_runs, (m.grid_runs.c.run_id == m.runs.c.run_id) & same_grid)
        .where(m.runs.c.state == RunState.PENDING, m.runs.c.not_before <= now)
        .where(
            (m.runs.c.parent.is_(None))
            | (parent.c.state == RunState.COMPLETED)
            | m.allocations.c.job_id.is_not(None)
        )
        .where(not_(is_among(connection, held)))
        .where(m.runs.c.grid_id.not_in(list(only)) | is_among(connection, only))
        .order_by(m.runs.c.grid_id, m.grid_runs.c.position)
    )
    rows = connection.execute(query)
    return [_due(row, after=row.after, backend=row.backend) for row in rows]


def one_run(connection: Connection, run_id: str) -> DueRun:
    """Return one run, whatever its state, without its parent's job."""
    query = select(m.runs, _NUMBER).where(m.runs.c.run_id == run_id)
    return _due(connection.execute(query).one(), after=None, backend=None)


def _due(row: Row[Any], *, after: str | None, backend: str | None) -> DueRun:
    return DueRun(
        run_id=row.run_id,
        grid_id=row.grid_id,
        parent=row.parent,
        clean_next=bool(row.clean_next),
        micro_split=row.micro_split,
        state=RunState(row.state),
        not_before=row.not_before,
        last=row.last or 0,
        after=after,
        backend=backend,
    )


def handing_on(
    connection: Connection, *, since: float, hands_on: Callable[[str], bool]
) -> set[str]:
    """Return the pending runs whose agent may be about to try them again, or to hand them on.

    It may have other runs to end first, or wait for a back-off. If they were started here as well,
    two attempts would train at once until the lower one notices. Where only the scheduler reported
    the end of the last attempt, there is no agent any more, whatever it had tried before.

    Args:
        connection: to the ledger.
        since: agents that ended before this moment hand nothing on any more.
        hands_on: whether the agents of a backend take a while for it.
    """
    ended, other, later = (m.attempts.alias(name) for name in ("ended", "other", "later"))
    is_later = (later.c.run_id == ended.c.run_id) & (later.c.number > ended.c.number)
    same_place = (other.c.token == ended.c.token) & (other.c.array_index == ended.c.array_index)
    is_busy = select(other.c.run_id).where(same_place, other.c.state.in_(LIVE)).exists()
    of_attempt = (m.events.c.run_id == ended.c.run_id) & (m.events.c.attempt == ended.c.number)
    by_agent = of_attempt & (m.events.c.after == ended.c.state) & (m.events.c.source == "journal")
    query = (
        select(ended.c.run_id, m.allocations.c.backend)
        .join(m.allocations, m.allocations.c.token == ended.c.token)
        .join(m.runs, m.runs.c.run_id == ended.c.run_id)
        .where(m.runs.c.state == RunState.PENDING, ended.c.number > m.runs.c.tries_from)
        .where(ended.c.state.in_(_TRIED_AGAIN), ~select(later.c.run_id).where(is_later).exists())
        .where((ended.c.ended_at > since) | (m.runs.c.not_before > since) | is_busy)
        .where(select(m.events.c.id).where(by_agent).exists())
    )
    return {row.run_id for row in connection.execute(query) if hands_on(row.backend)}
