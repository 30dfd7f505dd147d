"""How large a grid may be."""

import math
from collections.abc import Mapping, Sequence

from ..errors import BadInput
from ..strict_yaml import Document
from .entries import Entry
from .schema import Grid


def check_size(
    grid: Grid, document: Document, parts: Mapping[str, Sequence[Entry]], max_runs: int
) -> None:
    """Refuse at once what is far too large to be gone through.

    Args:
        grid: the grid.
        document: where it stands, for the message.
        parts: `backbone`, `dataset` and `head` -> what the grid lists of it.
        max_runs: the largest grid to take.

    Raises:
        BadInput: it has more runs.
    """
    runs = len(grid.replicates)
    for part, listed in parts.items():
        runs *= sum(math.prod(_lengths(grid, f"{part}.{entry.name}.")) for entry in listed)
    runs *= math.prod(
        len(values) for path, values in grid.axes.items() if path.split(".")[0] not in parts
    )
    runs *= max(1, len(grid.variants))
    # What exclusions and stages leave is known only afterwards.
    most = max_runs * (100 if grid.exclude or grid.stages else 1)
    if runs > most:
        raise too_many(document, f"{runs:,} runs", max_runs)


def _lengths(grid: Grid, prefix: str) -> list[int]:
    return [len(values) for path, values in grid.axes.items() if path.startswith(prefix)]


def too_many(document: Document, runs: str, max_runs: int) -> BadInput:
    """Return the error of a grid that is too large."""
    message = f"{runs} (limit {max_runs:,}; raise it with --max-runs)"
    return BadInput(document.problem((), message))
