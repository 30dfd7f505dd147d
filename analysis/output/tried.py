"""The note on settings that were tried and are not shown.

The best of several settings is in part the luck of its seeds (Cawley and Talbot, 2010, "On
over-fitting in model selection"), so a reader has to know how many there were.
"""

from collections.abc import Iterable, Sequence

from ..findings.cell import Cell
from ..findings.comparisons import Comparison

# Up to so many combinations are named; more are counted.
_FEW = 3
_LUCK = "The best of several settings is in part luck: confirm it with new seeds."


def of_cells(cells: Sequence[Cell]) -> list[str]:
    """Return the note below a report."""
    return _note(
        (f"{one.backbone} {one.dataset} {one.head}", one.cell_id, one.tried) for one in cells
    )


def of_comparisons(comparisons: Sequence[Comparison]) -> list[str]:
    """Return the note below comparisons, about both sides of each."""
    sides = []
    for one in comparisons:
        where = f"{one.backbone} {one.dataset}"
        sides.append((f"{where} {one.head}", one.cell_id, one.tried))
        sides.append((f"{where} {one.baseline_head}", one.baseline, one.tried_baseline))
    return _note(sides)


def _note(cells: Iterable[tuple[str, str, int]]) -> list[str]:
    """Return the note about cells, each given as what it is called, its id, and how many were
    tried.
    """
    shown: dict[str, set[str]] = {}
    tried: dict[str, int] = {}
    for name, cell_id, number in cells:
        shown.setdefault(name, set()).add(cell_id)
        tried[name] = max(number, tried.get(name, 0))
    hidden = {name: number for name, number in tried.items() if number > len(shown[name])}
    if not hidden:
        return []
    if len(hidden) > _FEW:
        return [
            f"Of {len(hidden)} combinations of backbone, dataset and head, more settings were tried"
            f" in this workspace than are shown, of one up to {max(hidden.values())}. {_LUCK}"
        ]
    said = "; ".join(
        f"{name}: {number} settings tried in this workspace, {len(shown[name])} shown"
        for name, number in hidden.items()
    )
    return [f"{said}. {_LUCK}"]
