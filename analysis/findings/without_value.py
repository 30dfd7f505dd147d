"""Seeds of a cell without a value: those that get none, and those that can still be scored.

A declared comparison waits for the latter. Else whoever evaluates the runs would choose which of
them count.
"""

from collections.abc import Collection, Sequence

from ...db import queries, records
from ...db.engine import Connection
from ...jobs.run.metrics import METRICS, NEIGHBOURS
from ...jobs.run.states import RunState

# States in which a run without a value gets none, unless somebody acts.
_LOST = (RunState.COMPLETED, RunState.FAILED, RunState.BLOCKED)


def is_own_metric(connection: Connection, metric: str, grid_ids: set[str]) -> bool:
    """Return whether a metric is a lab's own, which one of these grids names."""
    if metric in METRICS or NEIGHBOURS.fullmatch(metric) or metric.startswith("ema_"):
        return False
    grids = queries.grid_settings(connection, grid_ids)
    return any(metric == own.name for one in grids.values() for own in one.metrics)


def unscored(
    members: Sequence[records.RunRow], results: Collection[str], *, can_be_scored: bool
) -> list[int]:
    """Return the seeds whose run completed and can still be scored.

    Args:
        members: the cell's runs.
        results: runs that were scored, be it by NaN.
        can_be_scored: whether an evaluation scores such runs.
    """
    if not can_be_scored:
        return []
    return sorted(
        row.seed
        for row in members
        if row.state == RunState.COMPLETED and not row.is_imported and row.run_id not in results
    )


def lost(
    members: Sequence[records.RunRow], there: Collection[int], cancelled: Collection[str]
) -> list[int]:
    """Return the seeds that get no value by themselves.

    Args:
        members: the cell's runs.
        there: seeds with a value, or that can still be scored.
        cancelled: runs that were cancelled, or start from one that was.
    """
    return sorted(
        row.seed
        for row in members
        if row.state in _LOST and row.seed not in there and row.run_id not in cancelled
    )
