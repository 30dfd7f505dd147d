"""Forget grids, and the runs that no other grid has."""

from collections.abc import Collection, Iterable
from typing import Any

from sqlalchemy import Connection, Table, delete, func, select, update

from ..jobs.run.states import RunState
from . import models as m
from .parts import in_parts

# In this order, so that no row names another one that is gone.
_OF_RUNS = (
    *(m.results, m.checkpoints, m.evaluations, m.epoch_metrics, m.journals, m.events),
    *(m.attempts, m.runs),
)


def runs_of_no_other(connection: Connection, grid_ids: Collection[str]) -> list[str]:
    """Return the runs that are in these grids and in no other one."""
    mine = select(m.grid_runs.c.run_id).where(m.grid_runs.c.grid_id.in_(grid_ids))
    others = select(m.grid_runs.c.run_id).where(m.grid_runs.c.grid_id.not_in(grid_ids))
    query = select(m.runs.c.run_id).where(m.runs.c.run_id.in_(mine), m.runs.c.run_id.not_in(others))
    return list(connection.execute(query.order_by(m.runs.c.run_id)).scalars())


def count_of(connection: Connection, grid_ids: Collection[str]) -> int:
    """Return how many runs these grids have."""
    mine = select(m.grid_runs.c.run_id).where(m.grid_runs.c.grid_id.in_(grid_ids)).distinct()
    return connection.execute(select(func.count()).select_from(mine.subquery())).scalar_one()


def known(connection: Connection, run_ids: Iterable[str]) -> set[str]:
    """Return those of the runs that the ledger has."""
    found: set[str] = set()
    for part in in_parts(run_ids):
        query = select(m.runs.c.run_id).where(m.runs.c.run_id.in_(part))
        found |= set(connection.execute(query).scalars())
    return found


def unsettled(connection: Connection, run_ids: Iterable[str]) -> list[str]:
    """Return those of the runs to which something may still happen by itself."""
    found: list[str] = []
    for part in in_parts(run_ids):
        query = select(m.runs.c.run_id, m.runs.c.state).where(m.runs.c.run_id.in_(part))
        found += [
            run_id for run_id, state in connection.execute(query) if not RunState(state).is_settled
        ]
    return sorted(found)


def children_left(connection: Connection, run_ids: Collection[str]) -> list[str]:
    """Return runs outside of these that go on from one of these."""
    found: list[str] = []
    for part in in_parts(run_ids):
        query = select(m.runs.c.run_id).where(m.runs.c.parent.in_(part))
        found += connection.execute(query).scalars()
    return sorted(set(found) - set(run_ids))


def tokens_of(connection: Connection, run_ids: Iterable[str]) -> list[str]:
    """Return the allocations that the runs were in."""
    found: set[str] = set()
    for part in in_parts(run_ids):
        query = select(m.attempts.c.token).where(m.attempts.c.run_id.in_(part)).distinct()
        found |= set(connection.execute(query).scalars())
    return sorted(found)


def neighbours(connection: Connection, tokens: Iterable[str]) -> set[str]:
    """Return all runs that were in these allocations."""
    found: set[str] = set()
    for part in in_parts(tokens):
        query = select(m.attempts.c.run_id).where(m.attempts.c.token.in_(part))
        found |= set(connection.execute(query).scalars())
    return found


def forget(
    connection: Connection,
    grid_ids: Collection[str],
    run_ids: Collection[str],
    tokens: Collection[str],
) -> None:
    """Remove the rows of grids, of runs that only they have, and of allocations without a run.

    Args:
        connection: of the transaction that it is part of.
        grid_ids: of the grids.
        run_ids: what `runs_of_no_other` says of them.
        tokens: what `tokens_of` says of these.
    """
    for table in _OF_RUNS:
        if table is m.runs:
            _delete(connection, m.grid_runs, m.grid_runs.c.run_id, run_ids)
        _delete(connection, table, table.c.run_id, run_ids)
    _delete(connection, m.grid_runs, m.grid_runs.c.grid_id, grid_ids)
    _delete(connection, m.tags, m.tags.c.target, [*grid_ids, *run_ids])
    _hand_over(connection, grid_ids)
    left = neighbours(connection, tokens)
    kept = set(tokens_of(connection, left))
    _delete(connection, m.allocations, m.allocations.c.token, set(tokens) - kept)
    _delete(connection, m.grids, m.grids.c.grid_id, grid_ids)
    used = select(m.runs.c.cell_id)
    connection.execute(delete(m.cells).where(m.cells.c.cell_id.not_in(used)))


def _hand_over(connection: Connection, grid_ids: Collection[str]) -> None:
    """Give runs that another grid has as well the settings of the newest of those."""
    query = (
        select(m.runs.c.run_id, m.grid_runs.c.grid_id)
        .join(m.grid_runs, m.grid_runs.c.run_id == m.runs.c.run_id)
        .join(m.grids, m.grids.c.grid_id == m.grid_runs.c.grid_id)
        .where(m.runs.c.grid_id.in_(grid_ids))
        .order_by(m.grids.c.submitted_at)
    )
    newest: dict[str, str] = {run_id: grid_id for run_id, grid_id in connection.execute(query)}
    for run_id, grid_id in newest.items():
        mine = update(m.runs).where(m.runs.c.run_id == run_id)
        connection.execute(mine.values(grid_id=grid_id))


def _delete(connection: Connection, table: Table, column: Any, values: Iterable[str]) -> None:
    for part in in_parts(values):
        connection.execute(delete(table).where(column.in_(part)))
