"""Looks at a comparison that were declared beforehand.

α is spent over them, and what is decided stays decided.
"""

from collections.abc import Callable, Sequence

from ...jobs.values import Value
from ..stats.difference import Difference, holm


class Seen(Value, frozen=True, kw_only=True):
    """What the looks say of one comparison."""

    found: Difference
    """At the look that decided it, else at the last one reached."""
    adjusted: float | None
    alpha: float
    """What is spent at that look."""
    look: int | None
    """Seeds a side; None where there are not enough for the first look."""
    next_look: int | None
    m: int
    """How many comparisons share α."""


def shares(alpha: float, looks: Sequence[int]) -> list[float]:
    """Return what each look spends: α in the parts 1 : 2 : 3 and so on.

    In all no more than α is spent (union bound).
    """
    whole = len(looks) * (len(looks) + 1) / 2
    return [alpha * (number + 1) / whole for number in range(len(looks))]


def look(
    family: Sequence[Callable[[int | None], Difference]],
    seeds: Sequence[int],
    *,
    alpha: float,
    looks: Sequence[int],
    m: int | None = None,
) -> list[Seen]:
    """Go through the looks of a family of comparisons, in their order.

    At each the comparisons that are still open and have enough seeds are tested with that many, by
    Holm over all that are open; those that are separable are decided.

    Args:
        family: each comparison, given how many seeds a side to use (None: all).
        seeds: how many each comparison has, on its smaller side.
        alpha: how often at least one of the family may be called separable at any look where
            nothing is.
        looks: numbers of seeds, ascending.
        m: how many comparisons share α with those that are not in the family, if more.
    """
    m = max(len(family), m or 0)
    decided: dict[int, Seen] = {}
    last: dict[int, Seen] = {}
    for number, (size, spent) in enumerate(zip(looks, shares(alpha, looks), strict=True)):
        coming = looks[number + 1] if number + 1 < len(looks) else None
        still = [index for index in range(len(family)) if index not in decided]
        found = {index: family[index](size) for index in still if seeds[index] >= size}
        adjusted = holm(
            [found[index].p if index in found else None for index in still], m=m - len(decided)
        )
        for index, p in zip(still, adjusted, strict=True):
            if index not in found:
                continue
            last[index] = Seen(
                found=found[index], adjusted=p, alpha=spent, look=size, next_look=coming, m=m
            )
            if p is not None and p <= spent:
                decided[index] = last[index]
    return [
        decided.get(index)
        or last.get(index)
        or Seen(found=one(None), adjusted=None, alpha=0.0, look=None, next_look=looks[0], m=m)
        for index, one in enumerate(family)
    ]
