"""What a worker's command does with its names: one after the other, whatever becomes of each."""

import sys
from collections.abc import Callable, Iterable
from typing import TypeVar

from ...jobs.errors import VtjobsError

Asked = TypeVar("Asked")


def each(names: Iterable[Asked], tell: Callable[[Asked], str]) -> int:
    """Print what is to be told of each name, at once; return the worst exit code.

    One that fails is an error on stderr and does not keep the others from their turn.
    """
    worst = 0
    for name in names:
        try:
            print(tell(name), flush=True)
        except VtjobsError as error:
            print(f"error: {error}", file=sys.stderr)
            worst = max(worst, error.exit_code)
    return worst
