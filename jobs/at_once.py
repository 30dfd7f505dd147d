"""Do what touches many folders several at a time."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

A = TypeVar("A")
B = TypeVar("B")

# A shared file system takes a millisecond and more for each call, and serves many at a time.
AT_ONCE = 32


def at_once(do: Callable[[A], B], items: Sequence[A]) -> list[B]:
    """Return `do(item)` for each item, in their order; the first error is raised."""
    if len(items) < 2:
        return [do(item) for item in items]
    with ThreadPoolExecutor(min(AT_ONCE, len(items))) as pool:
        return list(pool.map(do, items))
