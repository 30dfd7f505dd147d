"""Whether a head gains more in one place than in another: differences of gains. Pure.

DRLoc's authors argue so from two gains side by side (Liu et al. 2021, section 4.1: a CvT without
positional embeddings gains less). Here the difference of the two has an interval and a test.
"""

import itertools
from collections.abc import Sequence
from typing import Any

from ...jobs.documents import Document
from ...jobs.errors import BadInput, suggest
from ..stats.difference import Difference, difference_of, holm
from .cell import LABELS, Cell
from .pair import difference, ends
from .plan import ComparisonPlan
from .samples import is_watched, pairs


class GainDifference(Document, frozen=True, kw_only=True):
    """One head's gain at one level of a factor, minus its gain at another level."""

    factor: str
    """Such as backbone: what the two gains differ in."""
    levels: list[str]
    """Its two values, the first one's gain minus the second one's."""
    head: str
    """Whose gains they are."""
    baseline_head: str
    """The head that both gains are over."""
    where: dict[str, Any]
    """What the gains have in common: dataset, backbone, recipe, stage and axes, without the factor.
    """
    gains: list[float | None]
    """Head minus baseline at both levels."""
    difference: float | None
    """The first gain minus the second."""
    interval: list[float] | None
    """Of the difference, at 1 - α, not corrected."""
    df: float | None
    """Degrees of freedom (Satterthwaite)."""
    p: float | None
    """Two-sided."""
    p_adjusted: float | None
    """By Holm, over all differences of the table."""
    is_significant: bool
    """Whether the adjusted p is at most α."""
    why_not: str
    """Why there is no test; empty where there is one."""


_Gain = tuple[Cell, Cell, Difference]


def between(cells: Sequence[Cell], plan: ComparisonPlan, factor: str) -> list[GainDifference]:
    """Return how the gains of each head differ between the levels of a factor.

    The two gains are of different cells, so their errors add up, and degrees of freedom follow
    Satterthwaite: with Welch's test the contrast of four means, with the paired one that of two
    means of differences.

    Args:
        cells: of a report.
        plan: test and α.
        factor: backbone, dataset, recipe, or an axis.

    Raises:
        BadInput: the gains do not differ in the factor, or it would be a look of its own.
    """
    if is_watched(cells, plan):
        raise BadInput(
            "--between: the comparison has declared interim analyses, or is valid at any time. A"
            " difference of gains would be one more look"
        )
    gains = [
        (cell, baseline, difference(cell, baseline, plan)) for cell, baseline in pairs(cells, plan)
    ]
    groups: dict[str, dict[str, _Gain]] = {}
    for gain in gains:
        level = _level(gain[0], factor)
        if level is not None:
            groups.setdefault(_where_text(gain, factor), {})[level] = gain
    both = [
        (group[one], group[other], [one, other])
        for group in groups.values()
        for one, other in itertools.combinations(group, 2)
        # Over one baseline the gains differ as their heads do: that is an ordinary comparison.
        if group[one][1].cell_id != group[other][1].cell_id
    ]
    if not both:
        known = _factors([cell for cell, _, _ in gains])
        raise BadInput(f"--between {factor}: no two gains differ in it. {suggest(factor, known)}")
    found = [difference_of(one[2], other[2], alpha=plan.alpha) for one, other, _ in both]
    adjusted = holm([one.p for one in found])
    return [
        GainDifference(
            factor=factor,
            levels=levels,
            head=one[0].head,
            baseline_head=one[1].head,
            where=_where(one[0], factor),
            gains=[one[2].difference, other[2].difference],
            difference=this.difference,
            interval=ends(this.interval),
            df=this.df,
            p=this.p,
            p_adjusted=p,
            is_significant=p is not None and p <= plan.alpha,
            why_not=this.why_not,
        )
        for (one, other, levels), this, p in zip(both, found, adjusted, strict=True)
    ]


def _level(cell: Cell, factor: str) -> str | None:
    value = getattr(cell, factor) if factor in _NAMES else cell.axes.get(factor)
    return None if value in (None, "") else str(value)


# Labels that two gains of one head may differ in.
_NAMES = tuple(name for name in (*LABELS, "recipe", "stage") if name != "head")


def _where(cell: Cell, factor: str) -> dict[str, Any]:
    labels = {name: getattr(cell, name) for name in _NAMES} | cell.axes
    return {name: value for name, value in labels.items() if name != factor and value}


def _where_text(gain: _Gain, factor: str) -> str:
    cell, baseline, _ = gain
    return str([cell.head, baseline.head, sorted(_where(cell, factor).items(), key=str)])


def _factors(cells: Sequence[Cell]) -> list[str]:
    """Return what cells differ in beside their head."""
    names = dict.fromkeys([*_NAMES, *(axis for cell in cells for axis in cell.axes)])
    return [name for name in names if len({_level(cell, name) for cell in cells}) > 1]
