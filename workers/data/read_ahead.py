"""Items read ahead by threads, in the order in which they are asked for."""

import itertools
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")

# Items that are read ahead by each thread.
_AHEAD = 2


def turns_of(rank: int, world_size: int, size: int) -> range:
    """Return a rank's turns: as many on every rank. One at `size` or above has no item."""
    return range(rank, -(-size // world_size) * world_size, world_size)


def read_ahead(
    turns: range, size: int, read: Callable[[int], Item], *, threads: int
) -> Iterator[Item | None]:
    """Yield the item of each turn, and None of a turn that has none.

    Args:
        turns: as `turns_of` returns them.
        size: number of items.
        read: called in a thread.
        threads: how many.
    """
    with ThreadPoolExecutor(threads) as pool:
        begun: deque[Future[Item]] = deque()
        left = iter([index for index in turns if index < size])
        try:
            for index in turns:
                more = itertools.islice(left, _AHEAD * threads - len(begun))
                begun.extend(pool.submit(read, one) for one in more)
                yield begun.popleft().result() if index < size else None
        finally:
            pool.shutdown(cancel_futures=True)
