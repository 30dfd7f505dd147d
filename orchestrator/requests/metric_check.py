"""Whether a grid's own metrics are those by which the runs of the workspace were scored."""

from typing import TYPE_CHECKING

from ...db import queries
from ...db.engine import reading
from ...db.results import evaluated_runs
from ...jobs.errors import BadInput, Problem
from ...jobs.run.states import RunState
from ...jobs.workspace.markers import closed
from ..loop.context import Context

if TYPE_CHECKING:
    from .submit import Prepared


def require_same_metrics(context: Context, prepared: "Prepared") -> None:
    """Refuse a metric whose name stands for another function in this workspace.

    Scores are known by the metric's name alone: those of two functions would be averaged.

    Raises:
        BadInput: a name is taken; nothing was done.
    """
    mine = {metric.name: metric for metric in prepared.frozen.settings.metrics}
    if not mine:
        return
    with reading(context.ledger.engine) as connection:
        stored = queries.grid_settings(connection)
    run_ids = {run[0] for run in prepared.frozen.runs}
    problems = [
        Problem(
            key="data.metrics",
            message=f"{theirs.name} has another source or other arguments in grid {grid_id}",
            fix="Give the function another name: the scores of both would be averaged",
        )
        for grid_id, settings in stored.items()
        for theirs in settings.metrics
        if theirs.name in mine
        and theirs != mine[theirs.name]
        and _may_score(context, grid_id, run_ids)
    ]
    if problems:
        raise BadInput(problems)


def _may_score(context: Context, grid_id: str, submitted: set[str]) -> bool:
    """Whether the functions of a stored grid have scored a run, or still may.

    They do not where one fails: the runs that are submitted now follow the new grid, and what ended
    before, or is kept from starting, is scored by that one's.
    """
    with reading(context.ledger.engine) as connection:
        runs = evaluated_runs(connection, grid_id)
    kept = closed(context.workspace, grid_id)
    return any(
        is_scored
        or run_id not in submitted
        or (not state.is_settled and (state != RunState.PENDING or kept(run_id) is None))
        for run_id, (state, is_scored) in runs.items()
    )
