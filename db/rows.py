"""What the ledger's verbs write: records as rows."""

import json
from typing import Any

from sqlalchemy import Connection, CursorResult, Table

from ..jobs.run.spec import canonical
from ..jobs.run.states import AttemptState, RunState
from ..jobs.values import Value
from ..jobs.workspace.allocation import Allocation
from ..jobs.workspace.stored_grid import FrozenGrid

Row = dict[str, Any]
"""Column -> value, as SQLAlchemy takes and gives rows that are no record."""


def dicts(result: CursorResult[Any]) -> list[Row]:
    """Return what is left of a result, whose columns have names of their own.

    `mappings` asks for each value of each row in Python, which takes longer than the database.
    """
    columns = tuple(result.keys())
    return [dict(zip(columns, row, strict=True)) for row in result]


def insert_new(connection: Connection, table: Table) -> Any:
    """Return an INSERT that leaves rows that exist as they are."""
    if connection.dialect.name == "postgresql":
        from sqlalchemy.dialects.postgresql import insert as insert_postgresql

        return insert_postgresql(table).on_conflict_do_nothing()
    from sqlalchemy.dialects.sqlite import insert as insert_sqlite

    return insert_sqlite(table).on_conflict_do_nothing()


class Asked(Value, frozen=True, kw_only=True):
    """When a user asked for something, and who it was."""

    at: float
    """In seconds since 1970."""
    by: str


def cell_row(cell: Any) -> Row:
    """Return the row of a cell."""
    return {
        "cell_id": cell.cell_id,
        "match_id": cell.match_id,
        "stage": cell.stage,
        **cell.labels,
        "axes": json.dumps(cell.axes),
        "is_baseline": cell.is_baseline,
        "spec": canonical(None) if cell.spec is None else cell.spec.to_json(),
    }


def run_row(
    frozen: FrozenGrid, run: tuple[str, int, int, str | None], created: float, now: float
) -> Row:
    """Return the row of a run that is new: its id, the indices of its cell and seed, its parent."""
    run_id, cell, index, parent = run
    seed, streams = frozen.seed_of(index)
    return {
        "run_id": run_id,
        "cell_id": frozen.cells[cell].cell_id,
        "grid_id": frozen.grid_id,
        "seed": seed,
        "streams": streams,
        "parent": parent,
        "state": RunState.PENDING,
        "tries": frozen.settings.retries,
        "created_at": created,
        "changed_at": now,
    }


def attempt_row(content: Allocation, index: int, task: Any) -> Row:
    """Return the row of an attempt that is about to be submitted."""
    return {
        "run_id": task.run_id,
        "number": task.attempt,
        "token": content.token,
        "array_index": index,
        "state": AttemptState.SUBMITTING,
        "submitted_at": content.created_at,
        "gpus": content.shape.gpus * content.shape.nodes,
        "per_gpu": content.shape.per_gpu,
    }


def event_row(row: Row, before: str | None, after: str, source: str, at: float, raw: str) -> Row:
    """Return the row of a change of state."""
    return {
        "run_id": row["run_id"],
        "attempt": row["number"],
        "at": at,
        "source": source,
        "before": before,
        "after": str(after),
        "raw": raw,
    }


def request_row(run_id: str, number: int, word: str, asked: Asked) -> Row:
    """Return the event of what a user asked for: cancel, retry or rerun."""
    row = {"run_id": run_id, "number": number}
    after = RunState.CANCELLED if word == "cancel" else RunState.PENDING
    return event_row(row, None, after, "user", asked.at, f"{word} by {asked.by}")
