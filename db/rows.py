"""What the ledger's verbs write: records as rows."""

import json
from typing import Any

from ..jobs.run.states import AttemptState, RunState
from ..jobs.workspace.allocation import Allocation
from ..jobs.workspace.stored_grid import FrozenGrid

Row = dict[str, Any]
"""Column -> value, as SQLAlchemy takes and gives rows that are no record."""


def cell_row(cell: Any) -> Row:
    """Return the row of a cell."""
    return {
        "cell_id": cell.cell_id,
        "match_id": cell.match_id,
        "stage": cell.stage,
        **cell.labels,
        "axes": json.dumps(cell.axes),
        "is_baseline": cell.is_baseline,
        "spec": cell.spec.to_json(),
    }


def run_row(frozen: FrozenGrid, run: tuple[str, int, int, str | None], now: float) -> Row:
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
        "created_at": now,
        "changed_at": now,
    }


def attempt_row(content: Allocation, index: int, task: Any, now: float) -> Row:
    """Return the row of an attempt that is about to be submitted."""
    return {
        "run_id": task.run_id,
        "number": task.attempt,
        "token": content.token,
        "array_index": index,
        "state": AttemptState.SUBMITTING,
        "submitted_at": now,
        "gpus": content.shape.gpus * content.shape.nodes,
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
