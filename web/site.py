"""The pages as files: a folder that a browser opens without a server, and that can be copied."""

from collections.abc import Callable
from pathlib import Path

from ..db import queries
from ..db.engine import reading
from ..jobs.atomic_files import to_json
from ..jobs.documents import to_plain
from ..jobs.run.selector import Selection
from ..jobs.run.states import RunState
from ..jobs.units import iso
from ..orchestrator.loop.context import Context
from ..orchestrator.views.eta import etas
from ..orchestrator.views.status import status
from .addresses import Address, Kind
from .gather import Source, document_of
from .render import PAGES, Frame, files, page

# Runs that have a page: those that did not complete come first.
MOST_RUN_PAGES = 1000


def write(
    context: Context,
    selection: Selection,
    folder: Path,
    *,
    report: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Path:
    """Write a page, and its document as JSON, for all that is selected.

    What is there under these names is replaced.

    Args:
        context: workspace and ledger.
        selection: of runs.
        folder: made where it is not there.
        report: whether `report.html` lies there, to lead to.
        progress: is told how many pages are done, and how many there are.

    Returns:
        The first page.

    Raises:
        NothingMatched: no run is selected.
    """
    source = Source(context=context, selection=selection, left=etas(context, selection))
    addresses = _addresses(source)
    frame = Frame(
        workspace=str(context.workspace.root),
        as_of=iso(context.clock()) or "",
        where=context.where,
        suffix=".html",
        report=report,
        known=frozenset(address.path for address in addresses),
    )
    for name, content in files().items():
        _put(folder / "static" / name, content)
    for number, address in enumerate(addresses):
        progress(number, len(addresses))
        document = document_of(source, address)
        if document is not None:
            text = page(document, address, frame)
            _put(folder / f"{address.path}.html", text.encode())
            _put(folder / f"{address.path}.json", to_json(to_plain(document)))
    progress(len(addresses), len(addresses))
    return folder / f"{Kind.OVERVIEW}.html"


def _addresses(source: Source) -> list[Address]:
    context, selection = source.context, source.selection
    with reading(context.ledger.engine) as connection:
        rows = queries.list_runs(connection, selection)
    cells = dict.fromkeys(row.cell_id for row in rows if row.streams is None)
    late = sorted(rows, key=lambda row: row.state == RunState.COMPLETED)
    grids = [grid.grid_id for grid in status(context, selection, left=source.left).grids]
    return [
        *(Address(kind) for kind, _ in PAGES),
        *(Address(Kind.GRID, grid_id) for grid_id in grids),
        *(Address(Kind.CELL, cell_id) for cell_id in cells),
        *(Address(Kind.RUN, row.run_id) for row in late[:MOST_RUN_PAGES]),
    ]


def _put(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
