"""Which grid gets the places that are free. Values in, values out."""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
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
