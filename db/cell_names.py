"""What a grid calls cells that another grid had before it.

A cell is known by its content, and the table of cells has the names that the first grid with this
content gave it: its labels, and its values of axes. Another grid may name the same cell otherwise,
such as where it varies something that the first one did not.
"""

import contextlib
from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, or_, select

from ..jobs.errors import DamagedFile
from ..jobs.workspace.paths import Workspace
from ..jobs.workspace.stored_grid import FrozenGrid, read_grid
from . import models as m
from .parts import in_parts
from .rows import Row, cell_row, insert_new

NAMES = ("stage", "backbone", "dataset", "head", "recipe", "axes")


def keep(connection: Connection, frozen: FrozenGrid) -> None:
    """Keep the names of a grid's cells that are not those in the table of cells."""
    mine = {cell.cell_id: cell_row(cell) for cell in frozen.cells}
    others = []
    for part in in_parts(mine):
        columns = (m.cells.c[name] for name in ("cell_id", *NAMES))
        query = select(*columns).where(m.cells.c.cell_id.in_(part))
        for there in connection.execute(query).mappings():
            names = {name: mine[there["cell_id"]][name] for name in NAMES}
            if any(there[name] != value for name, value in names.items()):
                others.append({"grid_id": frozen.grid_id, "cell_id": there["cell_id"], **names})
    if others:
        connection.execute(insert_new(connection, m.cell_names), others)


def keep_all(connection: Connection, workspace: Workspace) -> None:
    """Keep the names in all grids of a ledger that had no place for them before."""
    for grid_id in connection.execute(select(m.grids.c.grid_id)).scalars().all():
        # A damaged file is told by whoever needs it.
        with contextlib.suppress(DamagedFile):
            frozen = read_grid(workspace, grid_id)
            if frozen is not None:
                keep(connection, frozen)


def of_grids(connection: Connection, grid_ids: Iterable[str]) -> dict[tuple[str, str], Row]:
    """Return the names that these grids have for cells beside the first ones, by grid and cell."""
    found = {}
    for part in in_parts(grid_ids):
        query = select(m.cell_names).where(m.cell_names.c.grid_id.in_(part))
        for row in connection.execute(query).mappings():
            found[row["grid_id"], row["cell_id"]] = {name: row[name] for name in NAMES}
    return found


def have_one_of(name: str, given: Sequence[str]) -> Any:
    """Return the condition that a cell has one of these values in any grid.

    Args:
        name: one of `NAMES`.
        given: the values.
    """
    elsewhere = select(m.cell_names.c.cell_id).where(m.cell_names.c[name].in_(given))
    return or_(m.cells.c[name].in_(given), m.cells.c.cell_id.in_(elsewhere))


def values(connection: Connection, name: str) -> set[str]:
    """Return all that cells have under a name, in any grid."""
    columns = (m.cells.c[name], m.cell_names.c[name])
    return {
        text
        for column in columns
        for text in connection.execute(select(column).distinct()).scalars()
    }
