"""What stands beside a mean in a table.

The best of its dataset, and what cannot be told from it. Pure.
"""

import math
from collections.abc import Sequence

from ...jobs.values import changed
from ..stats.difference import holm, welch
from .cell import Cell, Marks
from .plan import ComparisonPlan
from .samples import is_watched, why_not


def marks(cells: Sequence[Cell], plan: ComparisonPlan) -> list[Marks]:
    """Mark the cells of a report, those of one dataset among each other.

    Where that would be a look of its own (`samples.is_watched`), nothing is marked.

    Args:
        cells: of one metric and set.
        plan: with α of the tests: of each cell against the best (Welch), by Holm over all pairs of
            the dataset, since the same seeds have chosen the best.
    """
    nothing = Marks(best=False, like_best=None, p_best=None, m=0, alpha=plan.alpha)
    found = [nothing] * len(cells)
    if is_watched(cells, plan):
        return found
    groups: dict[str, list[int]] = {}
    for index, cell in enumerate(cells):
        groups.setdefault(cell.dataset, []).append(index)
    for members in groups.values():
        own = _marks([cells[index] for index in members], nothing, plan)
        for index, marks_of in zip(members, own, strict=True):
            found[index] = marks_of
    return found


def _marks(cells: list[Cell], nothing: Marks, plan: ComparisonPlan) -> list[Marks]:
    """Return the marks of one dataset's cells."""
    found = [nothing] * len(cells)
    there = [index for index, cell in enumerate(cells) if cell.n and not cell.diverged_seeds]
    if len(there) < 2:
        return found
    sign = -1 if cells[0].better == "min" else 1
    # Of equal means always the same one, wherever it stands in the table.
    best = max(there, key=lambda index: (sign * _mean(cells[index]), cells[index].cell_id))
    others = [index for index in there if index != best]
    m = math.comb(len(there), 2)
    ps = [_p(cells[index], cells[best], plan) for index in others]
    for index, p in zip(others, holm(ps, m=m), strict=True):
        found[index] = changed(nothing, like_best=p is None or p > plan.alpha, p_best=p, m=m)
    told_apart = not all(found[index].like_best for index in others)
    is_whole = cells[best].n == cells[best].planned
    is_top = any(found[index].like_best for index in others)
    found[best] = changed(nothing, best=told_apart and is_whole, m=m, is_top=is_top)
    return found


def _mean(cell: Cell) -> float:
    assert cell.mean is not None
    return cell.mean


def _p(cell: Cell, best: Cell, plan: ComparisonPlan) -> float | None:
    if why_not(cell, best, plan):
        return None
    return welch(list(cell.values.values()), list(best.values.values())).p
