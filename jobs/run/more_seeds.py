"""Which seeds come after those that are there."""

import itertools
from collections.abc import Container, Iterable


def widened(known: Iterable[int], count: int, taken: Container[int] = ()) -> list[int]:
    """Return so many seeds, ascending: the known ones, and those that follow the last of them.

    Args:
        known: the seeds that are there.
        count: how many are wanted.
        taken: seeds that are passed over.
    """
    found = sorted(set(known))
    after = found[-1] + 1 if found else 0
    fresh = (seed for seed in itertools.count(after) if seed not in taken)
    return [*found, *itertools.islice(fresh, max(0, count - len(found)))]
