"""More seeds for some cells of a grid: its runs as the file has them, and the missing ones."""

from collections.abc import Callable, Container, Iterable, Mapping
from types import MappingProxyType

from ...jobs.grid.expansion import Expansion
from ...jobs.run.more_seeds import widened
from ...jobs.values import changed


def seeds_of_cells(
    expansion: Expansion,
    wanted: Mapping[str, int],
    known: Mapping[str, Iterable[int]],
    *,
    stored: bool = False,
    taken: Mapping[str, Container[int]] = MappingProxyType({}),
) -> dict[str, list[int]]:
    """Return the seeds that each cell shall have.

    Its own, and those that follow up to the number wanted.

    Args:
        expansion: of the grid as its file has it.
        wanted: cell -> number of seeds.
        known: cell -> the seeds that it has in the ledger.
        stored: whether the file is the workspace's own, of which only the ledger says which cells
            have which seeds: it may be that of a grid that was widened for some. Cells that are
            only begun from come with those that do.
        taken: cell -> seeds that it must not get: they were imported.
    """
    own: dict[str, set[int]] = {
        cell.cell_id: set(known.get(cell.cell_id, ())) for cell in expansion.cells
    }
    for run in expansion.runs:
        if not stored:
            own[expansion.cells[run.cell].cell_id].add(run.seed)
    return {
        cell_id: widened(seeds, wanted.get(cell_id, 0), taken.get(cell_id, ()))
        for cell_id, seeds in own.items()
    }


def chooser(target: Mapping[str, list[int]]) -> Callable[[Expansion], Expansion]:
    """Return what leaves of a wider expansion the wanted seeds of each cell, and the runs that they
    start from.
    """

    def choose(expansion: Expansion) -> Expansion:
        by_id = {run.run_id: run for run in expansion.runs}
        kept: set[str] = set()
        for run in expansion.runs:
            if run.seed in target.get(expansion.cells[run.cell].cell_id, ()):
                parent: str | None = run.run_id
                while parent is not None and parent not in kept:
                    kept.add(parent)
                    parent = by_id[parent].parent
        return changed(expansion, runs=[run for run in expansion.runs if run.run_id in kept])

    return choose


def left_out(expansion: Expansion, target: Mapping[str, list[int]]) -> list[str]:
    """Return the wanted seeds that a grid does not give, each with its cell.

    `exclude` or `include` names seeds.
    """
    there: dict[str, set[int]] = {cell.cell_id: set() for cell in expansion.cells}
    labels = {
        cell.cell_id: " ".join(cell.labels[name] for name in _NAMES) for cell in expansion.cells
    }
    for run in expansion.runs:
        there[expansion.cells[run.cell].cell_id].add(run.seed)
    return [
        f"{labels.get(cell_id, cell_id)} seed {seed}"
        for cell_id, seeds in target.items()
        for seed in seeds
        if seed not in there.get(cell_id, ())
    ]


_NAMES = ("backbone", "dataset", "head")
