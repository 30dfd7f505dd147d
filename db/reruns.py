"""Which results somebody had drawn again."""

from collections.abc import Iterable

from sqlalchemy import Connection, and_, exists, func, not_, or_, select

from ..jobs.run.states import AttemptState, FailureClass, RunState
from . import models as m
from .parts import in_parts


def redrawn(connection: Connection, run_ids: Iterable[str]) -> set[str]:
    """Return the runs that somebody had run again after they had completed or diverged."""
    ended = or_(
        m.attempts.c.state == AttemptState.COMPLETED,
        m.attempts.c.failure == FailureClass.DIVERGED,
    )
    query = (
        select(m.runs.c.run_id)
        .join(m.attempts, m.attempts.c.run_id == m.runs.c.run_id)
        .where(m.attempts.c.number <= m.runs.c.tries_from, ended)
        .distinct()
    )
    return {
        run_id
        for part in in_parts(run_ids)
        for run_id in connection.execute(query.where(m.runs.c.run_id.in_(part))).scalars()
    }


def taken_back(connection: Connection, run_ids: Iterable[str]) -> set[str]:
    """Return the runs whose only result is in force again, since a rerun was taken back in time.

    What ran after that result found it, and trained nothing. No attempt had failed before it.
    """
    earlier, attempts = m.attempts.alias(), m.attempts.c
    result = (
        select(func.min(earlier.c.number))
        .where(earlier.c.run_id == m.runs.c.run_id, earlier.c.state == AttemptState.COMPLETED)
        .scalar_subquery()
    )
    trained = and_(
        attempts.number > result,
        attempts.started_at.is_not(None),
        attempts.state != AttemptState.COMPLETED,
    )
    other = or_(
        exists().where(
            attempts.run_id == m.runs.c.run_id, or_(trained, attempts.state == AttemptState.FAILED)
        ),
        exists().where(m.evaluations.c.run_id == m.runs.c.run_id, m.evaluations.c.attempt > result),
    )
    query = select(m.runs.c.run_id).where(m.runs.c.state == RunState.COMPLETED, not_(other))
    return {
        run_id
        for part in in_parts(run_ids)
        for run_id in connection.execute(query.where(m.runs.c.run_id.in_(part))).scalars()
    }
