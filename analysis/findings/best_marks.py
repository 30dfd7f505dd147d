"""What stands beside a mean in a table.

The best of its dataset, and what cannot be told from it. Pure.
"""

import math
from collections.abc import Sequence
from typing import Any

from ..stats.difference import holm, welch
from ..stats.summary import values_of
from .declared import Plan
from .samples import why_not


def marks(cells: Sequence[dict[str, Any]], plan: Plan) -> list[dict[str, Any]]:
    """Mark the cells of a report, those of one dataset among each other.

    Where the plan is of looks, or of any time, nothing is marked: that would be a look of its own.

    Args:
        cells: of one metric and set.
        plan: with α of the tests: of each cell against the best (Welch), by Holm over all pairs of
            the dataset, since the same seeds have chosen the best.

    Returns:
        For each cell: `best`, the best mean, of a cell with all its seeds, unless none of the
            others can be told from
        it; `like_best`, which cannot be told from the best mean, or not be tested (None where there
        is nothing to tell: no value, a diverged run, or it is the best itself); `p_best` and `m`,
        of that test and the number of pairs; and its `alpha`.
    """
    nothing = {"best": False, "like_best": None, "p_best": None, "m": 0, "alpha": plan.alpha}
    found: list[dict[str, Any]] = [dict(nothing) for _ in cells]
    if plan.looks or plan.anytime:
        return found
    groups: dict[str, list[int]] = {}
    for index, cell in enumerate(cells):
        groups.setdefault(cell["dataset"], []).append(index)
    for members in groups.values():
        _mark([cells[index] for index in members], [found[index] for index in members], plan)
    return found


def _mark(cells: list[dict[str, Any]], found: list[dict[str, Any]], plan: Plan) -> None:
    there = [index for index, cell in enumerate(cells) if cell["n"] and not cell["diverged_seeds"]]
    if len(there) < 2:
        return
    sign = -1 if cells[0]["better"] == "min" else 1
    # Of equal means always the same one, wherever it stands in the table.
    best = max(there, key=lambda index: (sign * cells[index]["mean"], cells[index]["cell_id"]))
    others = [index for index in there if index != best]
    m = math.comb(len(there), 2)
    ps = [_p(cells[index], cells[best], plan) for index in others]
    for index, p in zip(others, holm(ps, m=m), strict=True):
        found[index] |= {"like_best": p is None or p > plan.alpha, "p_best": p, "m": m}
    told_apart = not all(found[index]["like_best"] for index in others)
    found[best]["best"] = told_apart and cells[best]["n"] == cells[best]["planned"]


def _p(cell: dict[str, Any], best: dict[str, Any], plan: Plan) -> float | None:
    if why_not(cell, best, plan):
        return None
    return welch(list(values_of(cell).values()), list(values_of(best).values())).p
