"""Cells with what their runs do and what they have scored: what `vtjobs top` lists."""

import math
from statistics import fmean, stdev

from ...db import overview, queries
from ...db.engine import reading
from ...jobs.documents import Document
from ...jobs.run.selector import Selection
from ...jobs.run.spec import Axes
from ..loop.context import Context


class CellView(Document, frozen=True, kw_only=True):
    """One cell while it runs: no test is made of its numbers."""

    cell_id: str
    backbone: str
    dataset: str
    head: str
    recipe: str
    stage: str
    axes: Axes
    states: dict[str, int]
    """State -> runs in it."""
    n: int
    """Seeds with a score."""
    mean: float | None
    std: float | None
    """Sample standard deviation over seeds (ddof 1)."""
    metric: str
    """Of mean and deviation, on the test set."""

    @property
    def planned(self) -> int:
        """Runs of the cell, whatever their state."""
        return sum(self.states.values())


def cells(
    context: Context, selection: Selection, *, metric: str = "top1", set_name: str = "test"
) -> list[CellView]:
    """Return the selected cells by their labels.

    Raises:
        NothingMatched, BadInput: the selection means nothing.
    """
    with reading(context.ledger.engine) as connection:
        counts = overview.cell_counts(connection, selection, metric=metric, set_name=set_name)
        rows = queries.cell_rows(connection, {one.cell_id for one in counts}, selection)
    found = []
    for one in counts:
        row = rows[one.cell_id]
        values = [value for value in one.values if math.isfinite(value)]
        found.append(
            CellView(
                cell_id=one.cell_id,
                backbone=row.backbone,
                dataset=row.dataset,
                head=row.head,
                recipe=row.recipe,
                stage=row.stage,
                axes=row.axes,
                states=one.states,
                n=len(values),
                mean=fmean(values) if values else None,
                std=stdev(values) if len(values) > 1 else None,
                metric=metric,
            )
        )
    return sorted(
        found, key=lambda cell: (cell.dataset, cell.backbone, cell.stage, cell.head, str(cell.axes))
    )
