"""What other people's seeds spread, where one's own are too few to tell. Pure."""

import math

from ...jobs.documents import Document
from .cell import Cell
from .matching import DATASETS, IN_PROTOCOL, SETS
from .published import PAPERS, records


class Borrowed(Document, frozen=True, kw_only=True):
    """Printed standard deviations over seeds on the same data, for a difference without a test."""

    low: float
    """The smallest that is printed."""
    high: float
    """The largest."""
    count: int
    """How many are printed."""
    tables: list[str]
    """Papers and tables that print them, such as relvit:2."""
    errors: list[float]
    """The difference in standard errors, if runs spread as `high` and as `low` say."""


def borrowed(cell: Cell, difference: float | None, n: int, m: int) -> Borrowed | None:
    """Return what a difference would be worth if its runs spread as printed ones do.

    None where there are seeds enough for a test, or nothing is printed of these data. It is no
    test: models, recipes and sets of hyper-parameters differ in their noise.

    Args:
        cell: of the comparison.
        difference: of its means; None: there is none.
        n: seeds of the cell.
        m: seeds of its baseline.
    """
    if difference is None or min(n, m) != 1:
        return None
    where = (cell.dataset, cell.set)
    found = [
        (record.std, f"{paper}:{record.table}")
        for paper in PAPERS
        for record in records(paper).values()
        if record.std and record.metric == cell.metric and where in _data(paper, record.dataset)
    ]
    if not found:
        return None
    low, high = min(std for std, _ in found), max(std for std, _ in found)
    per_std = abs(difference) / math.sqrt(1 / n + 1 / m)
    return Borrowed(
        low=low,
        high=high,
        count=len(found),
        tables=sorted({table for _, table in found}),
        errors=[per_std / high, per_std / low],
    )


def _data(paper: str, dataset: str) -> set[tuple[str, str]]:
    """Return the datasets and sets of ours that a record's name stands for."""
    base, set_name = SETS.get(dataset, (DATASETS.get(dataset, dataset), "test"))
    return {(base, set_name), (IN_PROTOCOL.get((paper, base), base), set_name)}
