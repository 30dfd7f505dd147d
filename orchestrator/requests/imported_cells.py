"""Which cell each run is of that was trained elsewhere."""

from collections.abc import Mapping, Sequence
from typing import Any

from ...db import queries
from ...db.engine import reading
from ...db.records import CellRow
from ...jobs.errors import BadInput, NothingMatched, Problem
from ...jobs.imports.layout import LABELS, NO_RECIPE
from ...jobs.imports.runs import FoundRun, Key
from ...jobs.run.selector import Selection, axis_text
from ...jobs.run.settings import STAGE
from ...jobs.run.spec import BASELINE, CellSpec, canonical, digest
from ...jobs.workspace.stored_grid import FrozenCell
from ..loop.context import Context
from .labels import grid_named


def cells_of(
    context: Context | None, name: str, found: Mapping[Key, FoundRun], into: str | None
) -> dict[Key, FrozenCell]:
    """Return the cell of each run: one of its own, or one of the grid to import into."""
    if into is None:
        return {key: _own_cell(name, key) for key in found}
    if context is None:
        raise NothingMatched(f"--into {into}: there is no workspace yet")
    with reading(context.ledger.engine) as connection:
        grid_id = grid_named(connection, into, context.where)
        members = Selection(names=(grid_id,))
        rows = queries.list_runs(connection, members)
        known = queries.cell_rows(connection, {row.cell_id for row in rows}, members)
    begun = {row.parent for row in rows if not _is_taught(known[row.cell_id])}
    # A table has no line for what is only a later stage's beginning.
    last = {row.cell_id for row in rows if row.run_id not in begun}
    cells = [cell for cell_id, cell in known.items() if cell_id in last]
    return _matched(cells, found, into, where=context.where)


def _is_taught(cell: CellRow) -> bool:
    """Whether its runs only learn from those of an earlier stage."""
    settings = cell.settings
    taught = None if settings is None else settings.head.distillation
    return taught is not None and taught.teacher == STAGE


def _own_cell(name: str, key: Key) -> FrozenCell:
    labels = dict(zip(LABELS, key.labels, strict=True))
    axes = dict(key.axes)
    shared = [name, axes, {label: text for label, text in labels.items() if label != "head"}]
    return FrozenCell(
        cell_id=digest(canonical(["imported", *shared, labels["head"]])),
        match_id=digest(canonical(["imported", *shared])),
        stage="",
        labels=labels,
        axes=axes,
        is_baseline=labels["head"] == BASELINE,
        parent=None,
        spec=None,
    )


def _matched(
    known: Sequence[CellRow], found: Mapping[Key, FoundRun], into: str, *, where: str
) -> dict[Key, FrozenCell]:
    """Return the grid's cell that each run is of.

    Raises:
        BadInput: a run is of none, or may be of several.
    """
    cells: dict[Key, FrozenCell] = {}
    problems: dict[str, Problem] = {}
    for key, run in found.items():
        fitting = [row for row in known if _fits(row, key)]
        if len(fitting) == 1:
            cells[key] = _frozen(fitting[0])
            continue
        what = " ".join([*key.labels[:3], *(f"{name}={text}" for name, text in key.axes)])
        count = f"{len(fitting)} cells" if fitting else "no cell"
        message = f"{into} has {count} with {what}"
        fix = (
            "Tell them apart: --axis COLUMN, or the column recipe"
            if fitting
            else f"Names must be those of the grid; see: vtjobs report {into}{where}"
        )
        problems.setdefault(what, Problem(message=message, file=run.source, fix=fix))
    if problems:
        raise BadInput(list(problems.values())[:8])
    return cells


def _fits(row: CellRow, key: Key) -> bool:
    labels = dict(zip(LABELS, key.labels, strict=True))
    same = all(getattr(row, name) == text for name, text in labels.items() if name != "recipe")
    named = all(name in row.axes and _same(row.axes[name], text) for name, text in key.axes)
    return same and named and labels["recipe"] in (row.recipe, NO_RECIPE)


def _same(value: Any, text: str) -> bool:
    """Whether a text is an axis's value, however its number is written."""
    if text == axis_text(value):
        return True
    try:
        return not isinstance(value, bool | str) and float(text) == float(value)
    except (TypeError, ValueError):
        return False


def _frozen(row: CellRow) -> FrozenCell:
    return FrozenCell(
        cell_id=row.cell_id,
        match_id=row.match_id,
        stage=row.stage,
        labels={name: getattr(row, name) for name in LABELS},
        axes=row.axes,
        is_baseline=row.is_baseline,
        parent=None,
        spec=CellSpec.stored(row.spec),
    )
