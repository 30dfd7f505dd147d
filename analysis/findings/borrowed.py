"""What other people's seeds spread, where one's own are too few to tell. Pure."""

import math

from ...jobs.documents import Document
from ..stats.difference import Difference
from .cell import Cell
from .matching import DATASETS, IN_PROTOCOL, SETS
from .plan import ComparisonPlan
from .published import PAPERS, Published, records
from .samples import is_watched, planned_for, why_not

# The metric of a record that is a standard deviation of top1.
_TYPICAL = "std_typical"
# Backbones whose own deviations the thesis prints (figure 6.7), and sums up in its text.
_SUMMARISED = ("resnet50",)


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


def borrowed(
    cell: Cell, baseline: Cell, found: Difference, plan: ComparisonPlan
) -> Borrowed | None:
    """Return what a difference would be worth if its runs spread as printed ones do.

    None where there are seeds enough for a test, or more are planned; where a look is declared, or
    something else keeps the difference from a test; and where no paper prints a deviation over
    seeds on these data. A mean's own has their number; what a text calls usual for a model may be
    of a number that it does not say. It is no test: models, recipes and sets of
    hyper-parameters differ in their noise.

    Args:
        cell: of the comparison.
        baseline: what it is compared with.
        found: their difference.
        plan: of the comparison.
    """
    n, m = found.n, found.n_baseline
    if found.difference is None or min(n, m) != 1 or is_watched((cell, baseline), plan):
        return None
    if planned_for(cell, baseline, plan) > 1 or why_not(cell, baseline, plan):
        return None
    where = (cell.dataset, cell.set)
    spreads = [
        (std, f"{paper}:{record.table}")
        for paper in PAPERS
        for record in records(paper).values()
        if (std := _spread(record, cell.metric)) and where == _data(paper, record.dataset)
    ]
    if not spreads:
        return None
    low, high = min(std for std, _ in spreads), max(std for std, _ in spreads)
    per_std = abs(found.difference) / math.sqrt(1 / n + 1 / m)
    return Borrowed(
        low=low,
        high=high,
        count=len(spreads),
        tables=sorted({table for _, table in spreads}),
        errors=[per_std / high, per_std / low],
    )


def _spread(record: Published, metric: str) -> float | None:
    """Return a record's standard deviation over seeds of a metric, in points.

    A text may print one as usual for a model: 0.11 for PatchConvNet-S60, 0.2 for DeiT-B.
    """
    if record.metric == _TYPICAL:
        # Not a summary of deviations that are printed themselves.
        is_one = record.backbone not in ("none", *_SUMMARISED) and not record.variant
        return record.mean if is_one and metric == "top1" else None
    return record.std if record.metric == metric and _is_over_seeds(record) else None


def _is_over_seeds(record: Published) -> bool:
    """Whether a record's deviation is said to be over so many runs, on images of a test set."""
    is_split = (record.protocol or "").startswith("separability")
    return record.n_seeds is not None and not (is_split or record.doubtful or record.cited)


def _data(paper: str, dataset: str) -> tuple[str, str]:
    """Return the dataset and the set of ours that a record's name stands for."""
    base, set_name = SETS.get(dataset, (DATASETS.get(dataset, dataset), "test"))
    return IN_PROTOCOL.get((paper, base), base), set_name
