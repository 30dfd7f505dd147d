"""What a selection leaves out of the grid that declared a comparison.

Whoever may choose seeds or heads with the results at hand finds a difference where there is none.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from ...db import queries, selected
from ...db.engine import Connection, reading
from ...db.ledger import Ledger
from ...jobs.run.selector import Selection
from ...jobs.units import plural, ranges
from ...jobs.values import Value
from .cell import Cell
from .cells import of_plan
from .plan import ComparisonPlan
from .samples import family_sizes, pairs

# What cells are named by that are left out; the rest is counted.
_AXES = ("head", "dataset", "backbone", "recipe")


class Part(Value, frozen=True, kw_only=True):
    """A part of a declared comparison."""

    left_out: str
    """Seeds, heads, datasets … that are missing, in words."""
    family_sizes: dict[str, int]
    """Of the whole comparison: dataset, or "" for the table -> comparisons that share α."""
    planned: Mapping[str, int]
    """Cell -> its seeds in the whole comparison."""


def the_grid(connection: Connection, selection: Selection) -> str | None:
    """Return the one grid that all selected runs belong to; None where there are several.

    A grid that is named counts, also where a newer one shares its runs.
    """
    grids = set(selected.named_grids(connection, selection))
    if len(grids) != 1:
        grids = {row.grid_id for row in queries.list_runs(connection, selection)}
    return grids.pop() if len(grids) == 1 else None


def selected_part(ledger: Ledger, selection: Selection, plan: ComparisonPlan) -> Part | None:
    """Return what a selection leaves out of the declared comparison; None where it is the whole.

    The whole is what the last declaration holds, also where a smaller file was submitted again.
    """
    with reading(ledger.engine) as connection:
        grid_id = the_grid(connection, selection)
        assert grid_id is not None, "only one grid's comparison is declared"
        everything = Selection(names=(grid_id,))
        rows = queries.list_runs(connection, selection)
        chosen = {(row.cell_id, row.seed) for row in rows}
        declared = _declared(plan)
        if not declared:
            # An older version did not keep the runs: they are the grid's.
            every = queries.list_runs(connection, everything)
            declared = {(row.cell_id, row.seed) for row in every}
    missing = declared - chosen
    if not missing:
        return None
    whole = of_plan(ledger, everything, plan)
    # Runs that others only start from are no part of a comparison.
    compared = {cell.cell_id for cell in whole}
    missing = {(cell_id, seed) for cell_id, seed in missing if cell_id in compared}
    if not missing:
        return None
    return Part(
        left_out=_left_out(whole, chosen, missing),
        family_sizes=dict(family_sizes(pairs(whole, plan), plan)),
        planned=Counter(cell_id for cell_id, _ in declared),
    )


def _declared(plan: ComparisonPlan) -> set[tuple[str, int]]:
    """Return cell and seed of each declared run."""
    return {
        (cell, seed)
        for part in plan.declared[-1].design
        for cell in part.cells
        for seed in part.seeds
    }


def _left_out(
    whole: Sequence[Cell], chosen: set[tuple[str, int]], missing: set[tuple[str, int]]
) -> str:
    """Name what is missing: values of an axis that are missing altogether, then cells and seeds."""
    there = {cell_id for cell_id, _ in chosen}
    kept = [cell for cell in whole if cell.cell_id in there]
    rest = [cell for cell in whole if cell.cell_id not in there]
    words = []
    for axis in _AXES:
        known = {getattr(cell, axis) for cell in kept}
        lost = list(dict.fromkeys(getattr(cell, axis) for cell in rest))
        gone = [value for value in lost if value not in known]
        words += [_named(axis, gone)] if gone else []
        rest = [cell for cell in rest if getattr(cell, axis) in known]
    words += [plural(len(rest), "cell")] if rest else []
    seeds = sorted({seed for cell_id, seed in missing if cell_id in there})
    named = f"seed{'s' if len(seeds) > 1 else ''} {ranges(seeds)}"
    return ", ".join([*words, *([named] if seeds else [])])


def _named(noun: str, values: Sequence[object]) -> str:
    return f"{noun}{'s' if len(values) > 1 else ''} {' and '.join(map(str, values))}"
