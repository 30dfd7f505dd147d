"""The product of a grid's axes and variants."""

import itertools
from collections.abc import Iterator, Mapping

from ..run.spec import VARIANT
from .entries import Given
from .schema import Grid


def combinations(grid: Grid, chosen: Mapping[str, str], given: Given) -> Iterator[Given]:
    """Yield every combination of values for one backbone, dataset and head.

    Args:
        grid: its axes and variants.
        chosen: backbone, dataset, head -> name of the setting; an axis over an argument of another
            one does not count.
        given: what an earlier stage has decided.
    """
    live = []
    for path, values in grid.axes.items():
        room, _, rest = path.partition(".")
        if room in chosen and rest.split(".")[0] != chosen[room]:
            continue
        live.append([(path, value) for value in ([given[path]] if path in given else values)])
    if grid.variants:
        names = [given[VARIANT]] if VARIANT in given else grid.variants
        live.append([(VARIANT, name) for name in names])
    for combination in itertools.product(*live):
        yield dict(combination)
