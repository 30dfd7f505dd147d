"""Runs whose newest attempt failed."""

from collections.abc import Iterable

from sqlalchemy import Connection, func, select

from ..jobs.run.states import FailureClass, RunState
from ..jobs.values import Value
from . import models as m


class FailedRun(Value, frozen=True, kw_only=True):
    """A run whose newest attempt failed, with that attempt's end."""

    grid_id: str
    run_id: str
    number: int
    failure: str
    signature: str
    state: str
    """Of the run: failed, or pending where it gets another try."""
    backend: str
    host: str | None


def failed_runs(
    connection: Connection, failures: Iterable[FailureClass], waiting: Iterable[FailureClass] = ()
) -> list[FailedRun]:
    """Return the runs that failed with one of these classes.

    Args:
        connection: to the ledger.
        failures: of runs that get no further try.
        waiting: of runs that wait for another try by themselves.
    """
    table, tried = m.attempts.c, m.attempts.alias("tried").c
    latest = select(func.max(tried.number)).where(tried.run_id == m.runs.c.run_id).scalar_subquery()
    run = m.runs.c
    query = (
        select(
            run.grid_id,
            run.run_id,
            run.state,
            m.allocations.c.backend,
            table.number,
            table.failure,
            table.signature,
            table.host,
        )
        .select_from(m.runs)
        .join(m.attempts, (table.run_id == run.run_id) & (table.number == latest))
        .join(m.allocations, m.allocations.c.token == table.token)
        .where(
            ((run.state == RunState.FAILED) & table.failure.in_(list(failures)))
            | (
                (run.state == RunState.PENDING)
                & table.failure.in_(list(waiting))
                # Of a run that was granted a try, earlier attempts count no longer.
                & (table.number > run.tries_from)
            )
        )
    )
    return [FailedRun(**row) for row in connection.execute(query).mappings()]
