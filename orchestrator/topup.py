"""More seeds for some cells of a grid: its runs as the file has them, and the missing ones."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from ..jobs.expand import Expansion


def seeds_of_cells(expansion: Expansion, wanted: Mapping[str, int]) -> dict[str, list[int]]:
    """Return the seeds that each cell shall have: its own, and the smallest others up to the number wanted."""
    own: dict[str, list[int]] = {cell.cell_id: [] for cell in expansion.cells}
    for run in expansion.runs:
        own[expansion.cells[run.cell].cell_id].append(run.seed)
    found = {}
    for cell_id, seeds in own.items():
        known, fresh = set(seeds), 0
        while len(known) < wanted.get(cell_id, 0):
            known.add(fresh)
            fresh += 1
        found[cell_id] = sorted(known)
    return found


def chooser(target: Mapping[str, list[int]]) -> Callable[[Expansion], Expansion]:
    """Return what leaves of a wider expansion the wanted seeds of each cell, and the runs that they start from."""

    def choose(expansion: Expansion) -> Expansion:
        by_id = {run.run_id: run for run in expansion.runs}
        kept: set[str] = set()
        for run in expansion.runs:
            if run.seed in target.get(expansion.cells[run.cell].cell_id, ()):
                parent: str | None = run.run_id
                while parent is not None and parent not in kept:
                    kept.add(parent)
                    parent = by_id[parent].parent
        return replace(expansion, runs=[run for run in expansion.runs if run.run_id in kept])

    return choose
