"""Runs that were trained elsewhere: their scores, as one attempt that was over at once."""

import json
from collections.abc import Collection, Iterable

from sqlalchemy import Connection, func, insert, select

from ..jobs.run.selector import Selection
from ..jobs.run.states import AttemptState, FailureClass
from ..jobs.workspace.imported import IMPORTED, ImportedRun
from ..jobs.workspace.stored_grid import FrozenGrid
from . import models as m
from .parts import in_parts
from .results import TRAINING, summarise
from .rows import Row, event_row
from .run_state import derive_runs
from .selected import where

# The one attempt that they have.
NUMBER = 1


def add_results(
    connection: Connection, frozen: FrozenGrid, new: Collection[str], now: float
) -> None:
    """Write down what the new runs of an imported grid came to.

    In the transaction that adds the runs: nobody ever sees one that could be started.
    """
    chosen = {run_id: frozen.imported[run_id] for run_id in new if run_id in frozen.imported}
    if not chosen:
        return
    at = frozen.settings.submitted_at
    attempts = [_attempt(run_id, run, at) for run_id, run in chosen.items()]
    events = [
        event_row(row, None, row["state"], "vtjobs", at, f"imported from {run.source}")
        for row, run in zip(attempts, chosen.values(), strict=True)
    ]
    rows = [row for run_id, run in chosen.items() for row in _scores(run_id, run, at)]
    connection.execute(insert(m.attempts), attempts)
    connection.execute(insert(m.events), events)
    if scores := [row for row in rows if row["set_name"] != TRAINING]:
        connection.execute(insert(m.evaluations), scores)
    if of_training := [_without_set(row) for row in rows if row["set_name"] == TRAINING]:
        connection.execute(insert(m.epoch_metrics), of_training)
    derive_runs(connection, chosen, now)
    summarise(connection, chosen)


def _attempt(run_id: str, run: ImportedRun, at: float) -> Row:
    state = AttemptState.FAILED if run.diverged else AttemptState.COMPLETED
    return {
        "run_id": run_id,
        "number": NUMBER,
        "token": IMPORTED,
        "state": state,
        "failure": FailureClass.DIVERGED if run.diverged else None,
        "signature": "a score is not finite" if run.diverged else "",
        "submitted_at": at,
        "ended_at": at,
        "epoch": max((score.epoch for score in run.scores), default=0) or None,
    }


def _scores(run_id: str, run: ImportedRun, at: float) -> list[Row]:
    return [
        {
            "run_id": run_id,
            "attempt": NUMBER,
            "node": IMPORTED,
            "seq": number,
            "at": at,
            "epoch": score.epoch,
            "step": score.epoch,
            "set_name": score.set,
            "metrics": json.dumps(score.metrics),
        }
        for number, score in enumerate(run.scores, 1)
    ]


def _without_set(row: Row) -> Row:
    return {name: value for name, value in row.items() if name != "set_name"}


def seeds_of(connection: Connection, cell_ids: Iterable[str]) -> dict[str, set[int]]:
    """Return cell -> the seeds of its runs that were trained elsewhere."""
    run, tried, found = m.runs.c, m.attempts.c, dict[str, set[int]]()
    for part in in_parts(sorted(cell_ids)):
        query = select(run.cell_id, run.seed).join(m.attempts, tried.run_id == run.run_id)
        wanted = run.cell_id.in_(part) & (tried.token == IMPORTED)
        for row in connection.execute(query.where(wanted)):
            found.setdefault(row.cell_id, set()).add(row.seed)
    return found


def count(connection: Connection, selection: Selection) -> int:
    """Return how many of the selected runs were trained elsewhere."""
    run, tried = m.runs.c, m.attempts.c
    query = (
        select(func.count())
        .select_from(m.runs)
        .join(m.cells, m.cells.c.cell_id == run.cell_id)
        .join(m.attempts, tried.run_id == run.run_id)
        .where(where(connection, selection), tried.token == IMPORTED)
    )
    return connection.execute(query).scalar() or 0


def among(connection: Connection, run_ids: Iterable[str]) -> set[str]:
    """Return those of the runs that were trained elsewhere."""
    table, found = m.attempts.c, set[str]()
    for part in in_parts(run_ids):
        query = select(table.run_id).where(table.run_id.in_(part), table.token == IMPORTED)
        found |= set(connection.execute(query).scalars())
    return found
