"""How many runs stand alike: what `vtjobs status` counts, in one look at all runs."""

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Connection, Select, and_, case, func, literal, null, select, union_all

from ..jobs.run.selector import Selection
from ..jobs.run.states import LIVE, RunState
from ..jobs.values import fields
from . import models as m
from .parts import is_among
from .records import AlikeRow
from .selected import where

# Runs have a live attempt in these states, and only in these.
_AT_WORK = (RunState.QUEUED, RunState.RUNNING)


def alike(
    connection: Connection,
    selection: Selection,
    *,
    by_grid: bool = False,
    held: Mapping[str, Iterable[str]],
) -> list[AlikeRow]:
    """Return the selected runs, those that stand alike as one row.

    Args:
        connection: to the ledger.
        selection: of the runs that count.
        by_grid: whether a run counts in every grid that has it, instead of once.
        held: grid -> the runs that its marker holds.
    """
    waits = m.runs.c.state.in_((RunState.PENDING, RunState.QUEUED))
    is_held = case((and_(waits, is_among(connection, held)), 1), else_=0)
    facts = {"is_held": is_held} if held else {}
    others = _counted(by_grid, facts).where(m.runs.c.state.not_in(_AT_WORK))
    parts = [_at_work(by_grid, facts), others]
    if selection.names or selection.conditions:
        chosen = where(connection, selection)
        cell = m.cells.c.cell_id == m.runs.c.cell_id
        parts = [part.where(chosen).join(m.cells, cell) for part in parts]
    # One statement: a run that starts in between is counted, and counted once.
    rows = connection.execute(union_all(*parts)).mappings()
    return [AlikeRow(**{**row, "is_held": bool(row["is_held"])}) for row in rows]


def _at_work(by_grid: bool, facts: dict[str, Any]) -> Select[Any]:
    """Select the runs that have a live attempt, with what is known of it."""
    attempt = m.attempts.c
    facts = facts | {
        "cancelled_through": m.runs.c.cancelled_through,
        "attempt": attempt.number,
        "attempt_state": attempt.state,
        "started_at": attempt.started_at,
        "heartbeat_at": attempt.heartbeat_at,
        "word": attempt.word,
        "backend": m.allocations.c.backend,
    }
    its_own = and_(attempt.run_id == m.runs.c.run_id, attempt.state.in_(LIVE))
    return (
        _counted(by_grid, facts)
        .outerjoin(m.attempts, its_own)
        .outerjoin(m.allocations, m.allocations.c.token == attempt.token)
        .where(m.runs.c.state.in_(_AT_WORK))
    )


def _counted(by_grid: bool, facts: dict[str, Any]) -> Select[Any]:
    """Select how many runs of a grid and state have the same facts; others are not looked at."""
    keys = {"grid_id": m.runs.c.grid_id, "state": m.runs.c.state, **facts}
    if by_grid:
        keys["of_grid"] = m.grid_runs.c.grid_id
    absent = {"cancelled_through": literal(0), "is_held": literal(0), "runs": func.count()}
    columns = [keys.get(name, absent.get(name, null())).label(name) for name in fields(AlikeRow)]
    query = select(*columns).select_from(m.runs).group_by(*keys.values())
    if not by_grid:
        return query
    return query.join(m.grid_runs, m.grid_runs.c.run_id == m.runs.c.run_id)
