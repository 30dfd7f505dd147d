"""Keep `runs.state` what jobs/run/derive.py derives, in the transaction that changed what it
follows from.
"""

import json
from collections import defaultdict
from collections.abc import Iterable

from sqlalchemy import Connection, bindparam, select, update

from ..jobs.run.derive import AttemptView, RunView, derive
from ..jobs.run.states import AttemptState, FailureClass, RunState
from . import models as m

_PART = 5000


def derive_runs(connection: Connection, run_ids: Iterable[str], now: float) -> None:
    """Derive these runs anew, and the runs of later stages that hang on those that changed."""
    todo = set(run_ids)
    while todo:
        changed: set[str] = set()
        ordered = sorted(todo)
        for start in range(0, len(ordered), _PART):
            changed |= _derive_part(connection, ordered[start : start + _PART], now)
        todo = set()
        ordered = sorted(changed)
        for start in range(0, len(ordered), _PART):
            query = select(m.runs.c.run_id).where(
                m.runs.c.parent.in_(ordered[start : start + _PART])
            )
            todo |= set(connection.execute(query).scalars())


def _derive_part(connection: Connection, run_ids: list[str], now: float) -> set[str]:
    parent = m.runs.alias("parent")
    rows = connection.execute(
        select(m.runs, parent.c.state.label("parent_state"), m.grids.c.settings)
        .outerjoin(parent, parent.c.run_id == m.runs.c.parent)
        .join(m.grids, m.grids.c.grid_id == m.runs.c.grid_id)
        .where(m.runs.c.run_id.in_(run_ids))
    ).all()
    attempts = _attempts(connection, run_ids)
    halving: dict[str, bool] = {}
    changes = []
    for row in rows:
        if row.settings not in halving:
            halving[row.settings] = bool(json.loads(row.settings).get("halve_micro_batch"))
        view = RunView(
            tries=row.tries,
            tries_from=row.tries_from,
            cancelled_through=row.cancelled_through,
            may_halve=halving[row.settings],
            parent=RunState(row.parent_state) if row.parent_state else None,
        )
        mine = attempts.get(row.run_id, [])
        verdict = derive(view, mine)
        if verdict.state == row.state and verdict.reason == row.reason:
            continue
        since = mine[-1].ended_at if mine and mine[-1].ended_at else now
        changes.append(
            {
                "b_run": row.run_id,
                "state": str(verdict.state),
                "reason": verdict.reason,
                "not_before": since + verdict.wait_s if verdict.wait_s else 0.0,
                "micro_split": (
                    row.micro_split * 2 if verdict.halve_micro_batch else row.micro_split
                ),
                "changed_at": now,
            }
        )
    if changes:
        # A state that a run is in already is written again only for its reason; both are cheap.
        connection.execute(update(m.runs).where(m.runs.c.run_id == bindparam("b_run")), changes)
    return {str(change["b_run"]) for change in changes}


def _attempts(connection: Connection, run_ids: list[str]) -> dict[str, list[AttemptView]]:
    table = m.attempts.c
    columns = (
        table.run_id,
        table.number,
        table.state,
        table.failure,
        table.signature,
        table.resumed_step,
        table.checkpoint_step,
        table.ended_at,
    )
    query = select(*columns).where(table.run_id.in_(run_ids)).order_by(table.run_id, table.number)
    found: dict[str, list[AttemptView]] = defaultdict(list)
    for row in connection.execute(query):
        found[row.run_id].append(
            AttemptView(
                number=row.number,
                state=AttemptState(row.state),
                failure=FailureClass(row.failure) if row.failure else None,
                signature=row.signature,
                resumed_step=row.resumed_step,
                checkpoint_step=row.checkpoint_step,
                ended_at=row.ended_at,
            )
        )
    return found
