"""A report as one self-contained HTML page, with its figures and their data beside it."""

from pathlib import Path
from typing import Any

from ...jobs.atomic_files import to_json
from ...jobs.documents import to_plain
from ...jobs.names import printable
from ..findings import reversals
from ..findings.cell import Cell
from ..findings.epochs import epoch_text
from ..findings.gather import Report
from . import render, wording
from .figures import cells as of_cells
from .figures import comparisons as of_comparisons
from .figures import curves as of_curves
from .figures.canvas import Drawn
from .figures.over_axis import over_axes
from .figures.parts import shares
from .layout import said
from .over_datasets import of_pooled
from .study_table import of_study

# Cells that get a figure of their own; all are in the tables.
MOST_EACH = 8


def write(document: Report, folder: Path, *, as_of: str = "", site: bool = False) -> dict[str, Any]:
    """Write `report.html`, `report.json` and `figures/` into a folder.

    What is there under these names is replaced.

    Args:
        document: of `gather.gather`.
        folder: made where it is not there.
        as_of: when it was gathered, as the page is to say it.
        site: whether the pages of grids, cells and runs lie beside it, to lead to.

    Returns:
        The paths: `page`, `document`, `figures`.
    """
    drawn = figures(document)
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    paths = [path for figure in drawn for path in figure.write(folder / "figures")]
    (folder / "report.json").write_bytes(to_json(to_plain(document)))
    (folder / "report.html").write_bytes(page(document, drawn, as_of=as_of, site=site).encode())
    return {"page": folder / "report.html", "document": folder / "report.json", "figures": paths}


def figures(document: Report) -> list[Drawn]:
    """Return the figures of a document that have something to show, the run status first."""
    cells, plan = document.cells, document.comparisons
    names = wording.columns(cells)
    by_id = {cell.cell_id: wording.label_of(cell, names) for cell in cells}
    lines = [(by_id[cell_id], own) for cell_id, own in document.states.items() if own]
    lines += [(f"{by_id[cell_id]}, variance study", own) for cell_id, own in document.apart.items()]
    found: list[Drawn | None] = [of_cells.completeness(lines)]
    replicated = [cell for cell in cells if cell.n]
    if replicated:
        found.append(of_cells.strip(replicated))
    if plan.pooled:
        found.append(of_comparisons.pooled_forest(plan))
    if plan.comparisons:
        found.append(of_comparisons.forest(plan))
        found += over_axes(plan)
    found += _curves(document, names)
    found += _studies(document, names)
    for cell in replicated[:MOST_EACH]:
        found.append(of_cells.distribution(cell, wording.label_of(cell, names)))
        found += _sets(document, cell, wording.label_of(cell, names))
    found.append(
        of_comparisons.allocation(cells, document.hours, plan.looks, metric=document.metric)
    )
    found += [
        of_comparisons.critical_difference(one, f"{one.backbone}, {one.recipe}", f"ranks-{number}")
        for number, one in enumerate(document.ranks)
    ]
    return [figure for figure in found if figure is not None]


def _curves(document: Report, names: list[str]) -> list[Drawn | None]:
    panels: dict[str, dict[str, Any]] = {}
    breaks: dict[str, list[int]] = {}
    whole: dict[str, Any] = {}
    of_panel = [name for name in names if name != "head"]
    for cell in document.cells:
        own = {
            int(seed): curve
            for seed, curve in document.curves.get(cell.cell_id, {}).items()
            if curve
        }
        if own:
            panel = wording.label_of(cell, of_panel)
            panels.setdefault(panel, {})[cell.head] = own
            breaks.setdefault(panel, []).extend(document.interrupted.get(cell.cell_id, ()))
            whole[wording.label_of(cell, names)] = own
    metric, set_name = document.metric, document.set
    drawn = of_curves.learning(panels, breaks, metric=metric, set_name=set_name)
    return [
        drawn,
        of_curves.spread(whole, metric=metric),
        of_curves.early(whole, metric=metric),
    ]


def _studies(document: Report, names: list[str]) -> list[Drawn | None]:
    by_id = {cell.cell_id: cell for cell in document.cells}
    return [
        shares(study, wording.label_of(by_id[cell_id], names), f"streams-{cell_id[:8]}-{number}")
        for cell_id, found in document.studies.items()
        if cell_id in by_id
        for number, study in enumerate(found)
    ]


def _sets(document: Report, cell: Cell, label: str) -> list[Drawn | None]:
    found: list[Drawn | None] = []
    sizes = document.sizes.get(cell.cell_id, {})
    for name, of_cell in document.sets.items():
        if cell.cell_id not in of_cell:
            continue
        other = {int(seed): value for seed, value in of_cell[cell.cell_id].items()}
        known = (sizes[cell.set], sizes[name]) if {cell.set, name} <= sizes.keys() else None
        accuracy = known if cell.metric.endswith("top1") else None
        found.append(of_cells.sets(cell, name, other, label, accuracy))
    return found


def page(document: Report, drawn: list[Drawn], *, as_of: str = "", site: bool = False) -> str:
    """Return the page: no script, no network, every figure inside it with its text.

    Args:
        document: what it is about.
        drawn: its figures, the run status first.
        as_of: see `write`.
        site: see `write`.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("vtjobs.analysis.output")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    cells, plan = document.cells, document.comparisons
    first, *others = drawn
    tables = [("Results", render.of_cells(cells))]
    if not plan.comparisons:
        tables[0][1].notes.extend(reversals.reversal_notes(plan.reversals))
    if plan.pooled:
        tables.append(("Comparisons over datasets", of_pooled(plan)))
    if plan.comparisons:
        tables.append(("Comparisons", render.of_comparisons(plan)))
    replicated = [cell for cell in cells if cell.n]
    if replicated:
        tables.append(("Uncertainty of the results", render.of_descriptions(replicated)))
        split = [one for one in document.images if one.std is not None]
        if split:
            tables.append(
                ("How much of the spread generalises to new images", render.of_variances(split))
            )
    by_id = {cell.cell_id: cell for cell in cells}
    for cell_id, found in document.studies.items():
        tables += [
            ("Where the spread comes from", of_study(by_id[cell_id], one))
            for one in found
            if cell_id in by_id
        ]
    without = [f"{one.backbone}: {one.why_not}." for one in document.ranks if one.why_not]
    every = (*document.states.values(), *document.apart.values())
    states = [state for own in every for state in own.values()]
    text = environment.get_template("report.html").render(
        document=document,
        as_of=as_of,
        site=site,
        said=said,
        epoch_text=epoch_text,
        first=first,
        figures=others,
        tables=tables,
        runs=len(states),
        done=states.count("completed"),
        without=without,
    )
    return printable(text)
