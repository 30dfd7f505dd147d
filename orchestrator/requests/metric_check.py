"""Whether a grid's own metrics are those by which the runs of the workspace were scored."""

from typing import TYPE_CHECKING

from ...db import queries
from ...db.engine import reading
from ...jobs.errors import BadInput, Problem
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
    problems = [
        Problem(
            key="data.metrics",
            message=f"{theirs.name} has another source or other arguments in grid {grid_id}",
            fix="Give the function another name: the scores of both would be averaged",
        )
        for grid_id, settings in stored.items()
        for theirs in settings.metrics
        if theirs.name in mine and theirs != mine[theirs.name]
    ]
    if problems:
        raise BadInput(problems)
