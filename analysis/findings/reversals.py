"""Conclusions that contradict each other.

Of two methods one is the better here and the other one there. Pure.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from statistics import NormalDist
from typing import Any

from ...jobs.documents import Document
from ..stats.difference import holm, welch_of_summaries
from .cell import Cell
from .plan import ComparisonPlan
from .samples import is_watched

# What two cells of one dataset may differ in to be compared; the rest of their labels is where.
FACTORS = ("head", "backbone")
_WHERE = ("backbone", "head", "recipe", "stage")


class Reversal(Document, frozen=True, kw_only=True):
    """Two heads, or two backbones, of which one is the better here and the other one there."""

    factor: str
    """head or backbone: what is compared."""
    dataset: str
    levels: list[str]
    """The two of them."""
    above: list[dict[str, Any]]
    """Where the first is the larger: the labels of the place, and the `difference` there."""
    below: list[dict[str, Any]]
    """Where it is the smaller."""


def reversals(cells: Sequence[Cell], plan: ComparisonPlan) -> list[Reversal]:
    """Return where two heads, or two backbones, change places between recipes, backbones, heads or
    settings.

    Both differences must be separable (Welch, by Holm over all that are looked at for this dataset
    and pair); signs alone turn by luck. A mean over both places would hide it (Touvron's thesis,
    section 6.3.4). Where that would be a look of its own (`samples.is_watched`), none is looked
    for.

    Args:
        cells: of a report.
        plan: with α of the tests.
    """
    found: list[Reversal] = []
    if is_watched(cells, plan):
        return found
    # No t test can separate what a normal one, which knows the deviation, does not.
    least = NormalDist().inv_cdf(1 - plan.alpha / 2)
    for factor, dataset, levels, places in _pairs(cells):
        distances = [_distance(one, other) for one, other in places]
        if max(distances) < least or min(distances) > -least:
            continue
        adjusted = holm([_p(one, other) for one, other in places])
        certain = [
            (_difference(one, other), _labels(one, factor))
            for p, (one, other) in zip(adjusted, places, strict=True)
            if p is not None and p <= plan.alpha
        ]
        above = [{"difference": by, **where} for by, where in certain if by > 0]
        below = [{"difference": by, **where} for by, where in certain if by < 0]
        if above and below:
            found.append(
                Reversal(factor=factor, dataset=dataset, levels=levels, above=above, below=below)
            )
    return found


def _difference(one: Cell, other: Cell) -> float:
    assert one.mean is not None and other.mean is not None
    return one.mean - other.mean


def _distance(one: Cell, other: Cell) -> float:
    """Return a difference in its standard errors; 0 where there are none."""
    if one.std is None or other.std is None:
        return 0.0
    error = math.sqrt(one.std**2 / one.n + other.std**2 / other.n)
    return _difference(one, other) / error if error else 0.0


def _p(one: Cell, other: Cell) -> float | None:
    if one.mean is None or other.mean is None or one.std is None or other.std is None:
        return None
    return welch_of_summaries(one.mean, one.std, one.n, other.mean, other.std, other.n).p


def _pairs(
    cells: Sequence[Cell],
) -> Iterator[tuple[str, str, list[str], list[tuple[Cell, Cell]]]]:
    """Yield factor, dataset, two levels of it, and the pairs of cells that differ in it alone,
    where there are two.
    """
    there = [cell for cell in cells if cell.n and not cell.diverged_seeds]
    for factor in FACTORS:
        by_setting: dict[str, dict[str, dict[str, Cell]]] = {}
        for cell in there:
            setting = str(sorted(_labels(cell, factor).items()))
            by_setting.setdefault(cell.dataset, {}).setdefault(setting, {})[
                getattr(cell, factor)
            ] = cell
        for dataset, places in sorted(by_setting.items()):
            levels = sorted({level for own in places.values() for level in own})
            for one, other in itertools.combinations(levels, 2):
                both = [
                    (own[one], own[other])
                    for _, own in sorted(places.items())
                    if {one, other} <= own.keys() and own[one].candidates == own[other].candidates
                ]
                if len(both) > 1:
                    yield factor, dataset, [one, other], both


def _labels(cell: Cell, factor: str) -> dict[str, Any]:
    labels = {name: getattr(cell, name) for name in _WHERE if name != factor}
    return {name: label for name, label in labels.items() if label} | cell.axes


def reversal_notes(found: Sequence[Reversal]) -> list[str]:
    """Return each in a sentence."""
    lines = []
    for one in found:
        first, second = one.levels
        sides = [
            "; ".join(f"{_setting_name(where, one)} ({where['difference']:+.2f})" for where in side)
            for side in (one.above, one.below)
        ]
        lines.append(
            f"Reversal on {one.dataset}: {first} scores higher than {second} with {sides[0]}, "
            f"but lower with {sides[1]}. No single ranking of these {one.factor}s holds for "
            "both."
        )
    return lines


def _setting_name(where: dict[str, Any], one: Reversal) -> str:
    """Name a place by what it has of its own among all places of a reversal."""
    every = [*one.above, *one.below]
    own = [
        str(value)
        for name, value in where.items()
        if name != "difference" and len({str(other.get(name)) for other in every}) > 1
    ]
    return " ".join(own)
