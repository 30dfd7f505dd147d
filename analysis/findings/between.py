"""Whether a head gains more in one place than in another: differences of gains. Pure.

DRLoc's authors argue so from two gains side by side (Liu et al. 2021, section 4.1: a CvT without
positional embeddings gains less). Here the difference of the two has an interval and a test.
"""

import itertools
from collections.abc import Sequence
from typing import Any

from ...jobs.documents import Document
from ...jobs.errors import BadInput, suggest
from ...jobs.run.comparing import Correction, Family
from ..stats.difference import Difference, difference_of, holm, paired
from .cell import LABELS, Cell
from .pair import difference, ends
from .plan import ComparisonPlan
from .samples import Sides, is_watched, pairs, sides, why_not


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
    """What the gains have in common: dataset, backbone, recipe, stage and axes, without the factor;
    `over NAME` where the baseline's value of an axis is another one.
    """
    gains: list[float | None]
    """Head minus baseline at both levels."""
    n: list[int]
    """Seeds of the head and of its baseline at the first level, then at the second."""
    by_seed: bool
    """Whether the difference was taken seed by seed: the runs of a later stage may start from the
    same weights at both levels.
    """
    difference: float | None
    """The first gain minus the second."""
    interval: list[float] | None
    """Of the difference, at 1 - α, not corrected."""
    df: float | None
    """Degrees of freedom."""
    p: float | None
    """Two-sided."""
    p_adjusted: float | None
    """By Holm, over all differences of the table, or of its dataset."""
    is_significant: bool
    """Whether the adjusted p is at most α."""
    why_not: str
    """Why there is no test; empty where there is one."""


_Gain = tuple[Cell, Cell, Difference]

# What two gains of one head may differ in. Stages start from each other.
_NAMES = tuple(name for name in LABELS if name not in ("head", "stage"))


def between(cells: Sequence[Cell], plan: ComparisonPlan, factor: str) -> list[GainDifference]:
    """Return how the gains of each head differ between the levels of a factor.

    The four cells are different ones, so that their errors add up; degrees of freedom follow
    Satterthwaite. With Welch's test this is the contrast of four means, with the paired one that of
    two means of differences. In a grid of stages both levels may start from the same weights: there
    the difference is taken for each seed that all four cells have, and its mean is tested.

    Args:
        cells: of a report.
        plan: test, α, and whether a dataset is a family of its own.
        factor: backbone, dataset, recipe, or an axis.

    Raises:
        BadInput: the gains do not differ in the factor, it would be a look of its own, or the plan
            corrects otherwise than by Holm.
    """
    _require_plain(cells, plan)
    gains = [
        (cell, baseline, difference(cell, baseline, plan)) for cell, baseline in pairs(cells, plan)
    ]
    groups: dict[str, dict[str, _Gain]] = {}
    for gain in gains:
        level = _level(gain[0], factor)
        if level is not None:
            groups.setdefault(_place(gain, factor), {})[level] = gain
    both = [
        (group[one], group[other], [one, other])
        for group in groups.values()
        for one, other in itertools.combinations(group, 2)
        if _are_apart(group[one], group[other])
    ]
    if not both:
        known = _factors([cell for cell, _, _ in gains])
        raise BadInput(f"--between {factor}: no two gains differ in it. {suggest(factor, known)}")
    found = [_compared(one, other, levels, plan) for one, other, levels in both]
    families = [plan.family_of(str(_where(one, factor).get("dataset", ""))) for one, _, _ in both]
    adjusted = _adjusted([one.p for one in found], families)
    return [
        GainDifference(
            factor=factor,
            levels=levels,
            head=one[0].head,
            baseline_head=one[1].head,
            where=_where(one, factor),
            gains=[one[2].difference, other[2].difference],
            n=[one[2].n, one[2].n_baseline, other[2].n, other[2].n_baseline],
            by_seed=_by_seed(one, other),
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


def _require_plain(cells: Sequence[Cell], plan: ComparisonPlan) -> None:
    if is_watched(cells, plan):
        raise BadInput(
            "--between: the comparison has declared interim analyses, or is valid at any time. A"
            " difference of gains would be one more look"
        )
    for given, what, fix in (
        (plan.is_pooled, f"over_datasets: {plan.over_datasets}", "--over-datasets each"),
        (
            plan.correction is not Correction.HOLM,
            f"correction: {plan.correction}",
            "--correction holm",
        ),
        (plan.family is Family.SCREEN, "family: screen", "--family table"),
    ):
        if given:
            raise BadInput(f"--between corrects by Holm and does not know {what}. Add {fix}")


def _are_apart(one: _Gain, other: _Gain) -> bool:
    """Whether two gains have no cell in common, so that their errors add up."""
    return {one[0].cell_id, one[1].cell_id}.isdisjoint({other[0].cell_id, other[1].cell_id})


def _by_seed(one: _Gain, other: _Gain) -> bool:
    return bool(one[0].stage or other[0].stage)


def _compared(one: _Gain, other: _Gain, levels: Sequence[str], plan: ComparisonPlan) -> Difference:
    for (cell, baseline, _), level in zip((one, other), levels, strict=True):
        # Such as diverged runs.
        if why := why_not(cell, baseline, plan):
            by = None
            if one[2].difference is not None and other[2].difference is not None:
                by = one[2].difference - other[2].difference
            return Difference(
                n=one[2].n, n_baseline=other[2].n, difference=by, why_not=f"{level}: {why}"
            )
    if not _by_seed(one, other):
        return difference_of(one[2], other[2], alpha=plan.alpha)
    ours, theirs = (
        _gain_of_seeds(sides(cell, baseline, plan)) for cell, baseline, _ in (one, other)
    )
    return paired(ours, theirs, alpha=plan.alpha)


def _gain_of_seeds(both: Sides) -> dict[int, float]:
    ours, theirs = both
    return {seed: value - theirs[seed] for seed, value in ours.items() if seed in theirs}


def _adjusted(ps: Sequence[float | None], families: Sequence[str]) -> list[float | None]:
    """Return p values by Holm, those of each family among each other."""
    found: dict[int, float | None] = {}
    for family in dict.fromkeys(families):
        members = [index for index, name in enumerate(families) if name == family]
        found |= zip(members, holm([ps[index] for index in members]), strict=True)
    return [found[index] for index in range(len(ps))]


def _level(cell: Cell, factor: str) -> str | None:
    value = getattr(cell, factor) if factor in _NAMES else cell.axes.get(factor)
    return None if value in (None, "") else str(value)


def _where(gain: _Gain, factor: str) -> dict[str, Any]:
    cell, baseline, _ = gain
    labels = {name: getattr(cell, name) for name in (*_NAMES, "stage")} | cell.axes
    over = {
        f"over {name}": value
        for name, value in baseline.axes.items()
        if name in cell.axes and name != factor and value != cell.axes[name]
    }
    return {
        name: value
        for name, value in {**labels, **over}.items()
        if name != factor and value not in (None, "")
    }


def _place(gain: _Gain, factor: str) -> str:
    """Name what two gains must have in common, the baseline's own axes included."""
    cell, baseline, _ = gain
    others = {name: value for name, value in baseline.axes.items() if name != factor}
    parts = [cell.head, baseline.head, _where(gain, factor), others]
    return repr([sorted(part.items()) if isinstance(part, dict) else part for part in parts])


def _factors(cells: Sequence[Cell]) -> list[str]:
    """Return what cells differ in beside their head."""
    names = dict.fromkeys([*_NAMES, *(axis for cell in cells for axis in cell.axes)])
    return [name for name in names if len({_level(cell, name) for cell in cells}) > 1]
