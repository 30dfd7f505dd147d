"""Forget grids, and the runs that no other grid has."""

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from sqlalchemy import Connection, Table, delete, select, update

from ..jobs.run.states import RunState
from ..jobs.workspace.allocation import Allocation
from . import models as m
from .allocations import contents_of
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


def runs_of(connection: Connection, grid_ids: Collection[str]) -> list[str]:
    """Return all runs of these grids."""
    query = select(m.grid_runs.c.run_id).where(m.grid_runs.c.grid_id.in_(grid_ids)).distinct()
    return list(connection.execute(query).scalars())


def is_known(connection: Connection, grid_id: str) -> bool:
    """Return whether the ledger has a grid."""
    query = select(m.grids.c.grid_id).where(m.grids.c.grid_id == grid_id)
    return connection.execute(query).first() is not None


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


def contents_naming(connection: Connection, run_ids: Collection[str]) -> dict[str, Allocation]:
    """Return every allocation that names one of these runs, also one that no attempt is of.

    An agent that takes a run on, or hands one on, writes down an allocation that may be of none.
    """
    wanted, tokens = set(run_ids), connection.execute(select(m.allocations.c.token)).scalars()
    found: dict[str, Allocation] = {}
    for part in in_parts(list(tokens)):
        for token, content in contents_of(connection, part).items():
            if any(task.run_id in wanted for task in content.all_tasks):
                found[token] = content
    return found


def forget(
    connection: Connection,
    grid_id: str,
    run_ids: Collection[str],
    left: Mapping[str, Allocation | None],
) -> None:
    """Remove the rows of a grid, and of runs that only it has.

    Args:
        connection: of the transaction that it is part of.
        grid_id: of the grid.
        run_ids: what `runs_of_no_other` says of it.
        left: what is left of the allocations that `contents_naming` finds; None: nothing.
    """
    for table in _OF_RUNS:
        if table is m.runs:
            _delete(connection, m.grid_runs, m.grid_runs.c.run_id, run_ids)
        _delete(connection, table, table.c.run_id, run_ids)
    _delete(connection, m.grid_runs, m.grid_runs.c.grid_id, [grid_id])
    _delete(connection, m.tags, m.tags.c.target, [grid_id, *run_ids])
    _hand_over(connection, grid_id)
    gone = [token for token, content in left.items() if content is None]
    _delete(connection, m.allocations, m.allocations.c.token, gone)
    for token, content in left.items():
        if content is not None:
            mine = update(m.allocations).where(m.allocations.c.token == token)
            connection.execute(mine.values(content=json.dumps(content.to_dict())))
    _delete(connection, m.cell_names, m.cell_names.c.grid_id, [grid_id])
    _delete(connection, m.grids, m.grids.c.grid_id, [grid_id])
    used = select(m.runs.c.cell_id)
    connection.execute(delete(m.cell_names).where(m.cell_names.c.cell_id.not_in(used)))
    connection.execute(delete(m.cells).where(m.cells.c.cell_id.not_in(used)))


def _hand_over(connection: Connection, grid_id: str) -> None:
    """Give runs that another grid has as well the settings of the newest of those."""
    query = (
        select(m.runs.c.run_id, m.grid_runs.c.grid_id)
        .join(m.grid_runs, m.grid_runs.c.run_id == m.runs.c.run_id)
        .join(m.grids, m.grids.c.grid_id == m.grid_runs.c.grid_id)
        .where(m.runs.c.grid_id == grid_id)
        .order_by(m.grids.c.submitted_at)
    )
    newest: dict[str, str] = {run_id: other for run_id, other in connection.execute(query)}
    for run_id, other in newest.items():
        mine = update(m.runs).where(m.runs.c.run_id == run_id)
        connection.execute(mine.values(grid_id=other))


def _delete(connection: Connection, table: Table, column: Any, values: Iterable[str]) -> None:
    for part in in_parts(values):
        connection.execute(delete(table).where(column.in_(part)))
