"""Take in results of runs that were trained elsewhere."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..jobs.units import plural, ranges
from .completion import complete_selection
from .options import DryRun, Json, Workspace, existing, open_workspace, pasted

if TYPE_CHECKING:
    from ..jobs.imports.layout import Layout
    from ..orchestrator.loop.context import Context
    from ..orchestrator.requests.import_runs import Import, ImportedCell

# How an option that may be given several times says so.
_SEVERAL = "(repeatable)"


def import_(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="PATH...", help="Files or folders with results."),
    ],
    name: Annotated[
        str | None,
        typer.Option(help="Name of the imported grid [default: that of the first path]."),
    ] = None,
    form: Annotated[
        str | None,
        typer.Option(
            "--as",
            metavar="FORM",
            help=(
                "Form: csv, json, timm, mlflow, wandb or tensorboard [default: as each path looks]."
            ),
        ),
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=COLUMN",
            help=(
                "Column of backbone, dataset, head, recipe, seed, epoch or set, where it has "
                f"another name {_SEVERAL}."
            ),
        ),
    ] = None,
    value: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE", help=f"The same, with one value for all runs {_SEVERAL}."
        ),
    ] = None,
    path: Annotated[
        str | None,
        typer.Option(
            metavar="PATTERN",
            help="Names in the ends of paths: {backbone}/{dataset}/{head}/seed{seed}.",
        ),
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[SET/]METRIC=COLUMN",
            help=f"Column of a metric [default: columns named like metrics] {_SEVERAL}.",
        ),
    ] = None,
    set_name: Annotated[
        str, typer.Option("--set", help="Evaluation set of metrics that name none.")
    ] = "test",
    scale: Annotated[
        list[str] | None,
        typer.Option(
            metavar="METRIC=FACTOR",
            help=f"Factor of a metric: top1=100 makes fractions percent {_SEVERAL}.",
        ),
    ] = None,
    axis: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN", help=f"Further column by which cells differ, such as lr {_SEVERAL}."
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN=VALUE", help=f"Only records with this value in a column {_SEVERAL}."
        ),
    ] = None,
    skip_incomplete: Annotated[
        bool,
        typer.Option(
            "--skip-incomplete", help="Leave out records without a label or a seed, and count them."
        ),
    ] = False,
    into: Annotated[
        str | None,
        typer.Option(
            metavar="GRID",
            help="Grid of vtjobs whose cells get these seeds, by their labels.",
            autocompletion=complete_selection,
        ),
    ] = None,
    seed_offset: Annotated[int, typer.Option(min=0, help="Number added to every seed.")] = 0,
    dry_run: DryRun = False,
    as_json: Json = False,
    workspace: Workspace = None,
) -> None:
    """Import results that were trained elsewhere, to report and compare them.

    They are marked as imported wherever they are shown. Nothing of them can be trained again.
    """
    from ..jobs.imports.layout import pairs
    from ..orchestrator.requests.import_runs import Wanted, prepare_import, store_import
    from .printing import terminal

    wanted = Wanted(
        paths=paths,
        form=form,
        name=name,
        layout=_layout(column, value, path, metric, set_name, scale, axis, seed_offset),
        only=pairs(only or (), "--only", ()),
        skip_incomplete=skip_incomplete,
        into=into,
    )
    # A mistake in what is read makes neither workspace nor ledger.
    context = existing(workspace)
    with terminal.counting("records") as progress:
        found = prepare_import(context, wanted, progress=lambda count: progress(count, count))
    if not dry_run:
        context = open_workspace(workspace, create=True)
        store_import(context, found)
    if as_json:
        terminal.emit_json(found.summary)
        return
    terminal.write(_table(found.summary.cells))
    _say(found.summary, context, dry_run=dry_run)


def _layout(
    column: list[str] | None,
    value: list[str] | None,
    path: str | None,
    metric: list[str] | None,
    set_name: str,
    scale: list[str] | None,
    axis: list[str] | None,
    seed_offset: int,
) -> "Layout":
    from ..jobs.imports.layout import (
        COLUMNS,
        Layout,
        axes_of,
        metrics_of,
        names_in_paths,
        pairs,
        scales_of,
    )

    return Layout(
        columns=pairs(column or (), "--column", COLUMNS),
        values=pairs(value or (), "--value", COLUMNS),
        metrics=metrics_of(metric or ()),
        axes=axes_of(axis or ()),
        scales=scales_of(scale or ()),
        set_name=set_name,
        names=None if path is None else names_in_paths(path),
        seed_offset=seed_offset,
    )


def _table(cells: "list[ImportedCell]") -> str:
    from .printing.terminal import table

    axes = list(dict.fromkeys(name for cell in cells for name in cell.axes))
    heading = [*("backbone", "dataset", "head", "recipe"), *axes, "runs", "seeds"]
    rows = [
        [
            *(cell.backbone, cell.dataset, cell.head, cell.recipe),
            *(cell.axes.get(name, "") for name in axes),
            str(len(cell.seeds)),
            ranges(cell.seeds) + _lacking(cell),
        ]
        for cell in cells
    ]
    return table(heading, rows, right=(len(heading) - 2,))


def _lacking(cell: "ImportedCell") -> str:
    parts = []
    if cell.without_score:
        parts.append(f"no score: {ranges(cell.without_score)}")
    if cell.diverged:
        parts.append(f"not finite: {ranges(cell.diverged)}")
    return f" ({'; '.join(parts)})" if parts else ""


def _say(found: "Import", context: "Context | None", *, dry_run: bool) -> None:
    from .printing.terminal import say

    what = f"{plural(found.runs, 'run')} in {plural(len(found.cells), 'cell')}"
    left = f", {plural(found.left_out, 'record')} left out" if found.left_out else ""
    say(f"{what}, {', '.join(found.metrics) or 'no scores'}{left} (read as {found.form})")
    if dry_run:
        say("Nothing was stored")
        return
    assert context is not None
    grids = [name for name in (found.into, found.grid_id) if name]
    say(f"{plural(found.new, 'run')} imported. See: vtjobs report {pasted(context, grids)}")
