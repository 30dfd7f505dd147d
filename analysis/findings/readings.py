"""Reports of the same runs by several sets and metrics."""

from collections.abc import Sequence

from ...db import queries
from ...db.engine import reading
from ...db.ledger import Ledger
from ...jobs.run.selector import Selection
from .cell import Cell
from .cells import report
from .matching import Reading


def report_each(
    ledger: Ledger, selection: Selection, readings: Sequence[Reading], *, sparing: bool
) -> list[Cell]:
    """Return the selected cells of all stages with their specs, once for each set and metric.

    Args:
        ledger: where the results are.
        selection: of runs.
        readings: sets and metrics.
        sparing: whether to leave out, of all metrics but top1, those that no run is scored by.

    Raises:
        NothingMatched: no run is selected.
    """
    if sparing:
        with reading(ledger.engine) as connection:
            scored = queries.scored(connection, selection)
        readings = [one for one in readings if one.metric == "top1" or one in scored]
    return [
        cell
        for one in readings
        for cell in report(
            ledger,
            selection,
            set_name=one.set,
            metric=one.metric,
            with_specs=True,
            every_stage=True,
        )
    ]
