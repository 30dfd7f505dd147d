"""The note on settings that were tried and are not shown.

The best of several settings is in part the luck of its seeds (Cawley and Talbot, 2010, "On
over-fitting in model selection"), so a reader has to know how many there were.
"""

from collections.abc import Iterable, Iterator, Sequence

from ..findings.cell import Cell
from ..findings.comparisons import Comparison
from ..findings.pooled import PooledComparison

# Up to so many combinations are named; more are counted.
_FEW = 3
_LUCK = "The best of several settings is in part luck: confirm it with new seeds."

# What a cell is called, its stage, its id, and how many settings were tried.
_Shown = tuple[str, str, str, int]


def of_cells(cells: Sequence[Cell]) -> list[str]:
    """Return the note below a report."""
    return _note(
        (_called(one.backbone, one.dataset, one.head), one.stage, one.cell_id, one.tried)
        for one in cells
    )


def of_comparisons(
    comparisons: Sequence[Comparison], pooled: Sequence[PooledComparison] = ()
) -> list[str]:
    """Return the note below comparisons, about both sides of each."""
    return _note([*_of_each(comparisons), *_of_pooled(pooled)])


def _of_each(comparisons: Sequence[Comparison]) -> Iterator[_Shown]:
    for one in comparisons:
        ours = _called(one.backbone, one.dataset, one.head)
        theirs = _called(one.backbone, one.dataset, one.baseline_head)
        yield ours, one.stage, one.cell_id, one.tried
        yield theirs, one.stage, one.baseline, one.tried_baseline


def _of_pooled(pooled: Sequence[PooledComparison]) -> Iterator[_Shown]:
    for one in pooled:
        for on in one.datasets:
            ours = _called(one.backbone, on.dataset, one.head)
            theirs = _called(one.backbone, on.dataset, one.baseline_head)
            yield ours, one.stage, on.cell_id, on.tried
            yield theirs, one.stage, on.baseline, on.tried_baseline


def _called(*names: str) -> str:
    """Return names without the settings in brackets that a label has."""
    return " ".join(name.partition("(")[0] for name in names)


def _note(cells: Iterable[_Shown]) -> list[str]:
    shown: dict[tuple[str, str], set[str]] = {}
    tried: dict[tuple[str, str], int] = {}
    for name, stage, cell_id, number in cells:
        # Of a cell that has not begun the number is 0.
        if number:
            shown.setdefault((name, stage), set()).add(cell_id)
            tried[name, stage] = max(number, tried.get((name, stage), 0))
    hidden = {key: number for key, number in tried.items() if number > len(shown[key])}
    if not hidden:
        return []
    if len(hidden) > _FEW:
        return [
            f"Of {len(hidden)} combinations of backbone, dataset and head, more settings were tried"
            f" in this workspace than are shown, of one up to {max(hidden.values())}. {_LUCK}"
        ]
    said = "; ".join(
        f"{key[0]}: {number} settings tried in this workspace, {len(shown[key])} shown"
        for key, number in hidden.items()
    )
    return [f"{said}. {_LUCK}"]
