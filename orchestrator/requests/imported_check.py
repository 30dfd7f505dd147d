"""Whether runs to submit are of seeds that were imported into the same cells."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ...db import imported, queries
from ...db.engine import reading
from ...jobs.errors import BadInput, Problem
from ...jobs.units import ranges
from ..loop.context import Context

if TYPE_CHECKING:
    from .submit import Prepared


def require_no_imported_seeds(context: Context, prepared: "Prepared") -> None:
    """Refuse runs of a cell and a seed that an imported run is of.

    A table has one score for a seed: one of the two would be lost.

    Raises:
        BadInput: there are such runs; nothing was done.
    """
    frozen = prepared.frozen
    by_cell: dict[str, list[int]] = {}
    for _, cell, index, _ in frozen.runs:
        by_cell.setdefault(frozen.cells[cell].cell_id, []).append(index)
    taken = imported_seeds(context, by_cell)
    labels = {cell.cell_id: cell.labels for cell in frozen.cells}
    problems = [
        Problem(
            key="seeds",
            message=f"{_named(labels[cell_id])}: imported runs are of seeds {ranges(both)}",
            fix="Give the grid other seeds, or import those runs with another --seed-offset",
        )
        for cell_id, seeds in by_cell.items()
        if (both := sorted(taken.get(cell_id, set()).intersection(seeds)))
    ]
    if problems:
        raise BadInput(problems)


def imported_seeds(context: Context, cell_ids: Iterable[str]) -> dict[str, set[int]]:
    """Return cell -> the seeds that were imported into it."""
    with reading(context.ledger.engine) as connection:
        grids = queries.grid_settings(connection).values()
        if not any(grid.imported is not None and grid.imported.into for grid in grids):
            return {}
        return imported.seeds_of(connection, cell_ids)


def _named(labels: dict[str, str]) -> str:
    return " ".join(labels[name] for name in ("backbone", "dataset", "head"))
