"""Which grid gets the places that are free, and which gives one back. Values in, values out."""

import heapq
from collections.abc import Mapping, Sequence

from ..values import Value


class Claim(Value, frozen=True, kw_only=True):
    """A grid that wants places."""

    grid_id: str
    wanted: int
    """Places for what is due."""
    live: int
    """Places that it has."""
    free: Mapping[str, int]
    """Places that each limit leaves, by the limit's name; grids under one limit share it."""


def share(claims: Sequence[Claim]) -> dict[str, int]:
    """Deal out free places, each to the grid that has fewest; return the places by grid.

    A grid that is at one of its limits leaves those that are not to the others.
    """
    free: dict[str, int] = {}
    for claim in claims:
        for name, places in claim.free.items():
            free[name] = min(places, free.get(name, places))
    dealt = {claim.grid_id: 0 if claim.free else claim.wanted for claim in claims}
    queue = [
        (claim.live, order, claim)
        for order, claim in enumerate(claims)
        if claim.free and claim.wanted > 0
    ]
    heapq.heapify(queue)
    while queue:
        live, order, claim = heapq.heappop(queue)
        if any(free[name] <= 0 for name in claim.free):
            continue
        for name in claim.free:
            free[name] -= 1
        dealt[claim.grid_id] += 1
        if dealt[claim.grid_id] < claim.wanted:
            heapq.heappush(queue, (live + 1, order, claim))
    return dealt


def gives_way(*, mine: int, place: int, theirs: int, asked: int) -> bool:
    """Return whether a grid gives one of its places back for another grid's that waits.

    As in `share`, the grid that has fewest comes first. One that has nothing gets its turn in any
    case, others only where the giver still has as many afterwards: so nobody gives to and fro.

    Args:
        mine: GPUs, or cores, that the giver has at work.
        place: those of the place that it would give back.
        theirs: those that the other grid has at work.
        asked: those of the place for which it waits.
    """
    return place > 0 and (theirs == 0 or mine - place >= theirs + asked)
