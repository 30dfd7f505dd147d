"""What stands beside a mean in a table: the best of its dataset, and what cannot be told from it. Pure."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from .describe import values_of
from .difference import ALPHA, holm, welch


def marks(cells: Sequence[dict[str, Any]], *, alpha: float = ALPHA) -> list[dict[str, Any]]:
    """Mark the cells of a report, those of one dataset among each other.

    Args:
        cells: of one metric and set.
        alpha: of the tests against the best (Welch, by Holm over those of the dataset).

    Returns:
        For each cell: `best`, the best mean of the complete cells, unless none of the others can be told from it;
        `like_best`, which cannot be told from it, seeds that are too few for a test included (None where there is
        nothing to tell: no value, a diverged run, or it is the best itself); `p_best` and `m`, of that test and their
        number; `incomplete`; and `other_n`, another number of seeds than most cells of the dataset have.
    """
    found: list[dict[str, Any]] = [
        {"best": False, "like_best": None, "p_best": None, "m": 0, "alpha": alpha, "incomplete": False,
         "other_n": False}
        for _ in cells
    ]  # fmt: skip
    groups: dict[str, list[int]] = {}
    for index, cell in enumerate(cells):
        groups.setdefault(cell["dataset"], []).append(index)
    for members in groups.values():
        _mark([cells[index] for index in members], [found[index] for index in members], alpha)
    return found


def _mark(cells: list[dict[str, Any]], found: list[dict[str, Any]], alpha: float) -> None:
    usual = Counter(sorted((cell["n"] for cell in cells if cell["n"]), reverse=True)).most_common(1)
    for cell, own in zip(cells, found, strict=True):
        own["incomplete"] = cell["n"] < cell["planned"]
        own["other_n"] = bool(cell["n"]) and cell["n"] != usual[0][0]
    there = [index for index, cell in enumerate(cells) if cell["n"] and not cell["diverged_seeds"]]
    complete = [index for index in there if not found[index]["incomplete"]]
    if not complete or len(there) < 2:
        return
    sign = -1 if cells[0]["better"] == "min" else 1
    # Of equal means always the same one, wherever it stands in the table.
    best = max(complete, key=lambda index: (sign * cells[index]["mean"], cells[index]["cell_id"]))
    others = [index for index in there if index != best]
    values = [list(values_of(cell).values()) for cell in cells]
    adjusted = holm([welch(values[index], values[best]).p for index in others])
    for index, p in zip(others, adjusted, strict=True):
        found[index] |= {"like_best": p is None or p > alpha, "p_best": p, "m": len(others)}
    found[best]["best"] = not all(found[index]["like_best"] for index in others)
