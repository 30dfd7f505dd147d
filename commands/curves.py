"""Learning curves, in the terminal, as a figure or as data."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..jobs.errors import BadInput, suggest
from .options import (
    Json,
    Quiet,
    Selector,
    Workspace,
    look_into,
    require_style,
    say_imported,
    selection,
)
from .repeated import watched
from .result_options import CurveMetric, DataFormat, FigureFolder

if TYPE_CHECKING:
    from ..analysis.findings.curves import CellCurve
    from ..orchestrator.loop.context import Context

# More charts than this are scrolled past; a figure has them side by side.
MOST_CHARTS = 12

CurveSet = Annotated[
    str,
    typer.Option(
        "--set",
        help="Evaluation set; training: metrics of training, such as train_loss, lr or grad_norm.",
    ),
]
By = Annotated[
    str | None,
    typer.Option(
        help=(
            "One chart for each combination of the other settings, with a line per value of this "
            "one, e.g. head [default: one chart]."
        )
    ),
]
Over = Annotated[
    str | None,
    typer.Option(
        help="Show the gain over the cells with this head, seed by seed, e.g. supervised."
    ),
]


@watched
def curve(
    selector: Selector = None,
    metric: CurveMetric = None,
    set_name: CurveSet = "test",
    by: By = None,
    over: Over = None,
    first: Annotated[
        int, typer.Option("--from-epoch", min=0, help="First epoch to show, for a closer look.")
    ] = 0,
    single: Annotated[
        bool, typer.Option("--single", help="Single seeds instead of mean and deviation.")
    ] = False,
    height: Annotated[int, typer.Option(min=5, max=100, help="Lines of a chart.")] = 16,
    figure: FigureFolder = None,
    style: DataFormat = "table",
    as_json: Json = False,
    quiet: Quiet = False,
    workspace: Workspace = None,
) -> None:
    """Draw learning curves with mean and deviation over seeds.

    A curve is no test: it shows how far seeds lie apart, and gives no verdict.
    """
    from ..analysis.findings.curves import from_epoch, learning_curves
    from ..jobs.units import plural
    from .printing import terminal

    require_style(style, ("table", "csv", "json"))
    context = look_into(workspace)
    chosen = selection(selector, default_all=True)
    curves = learning_curves(context.ledger, chosen, metric=metric, set_name=set_name)
    if over is not None:
        from ..analysis.findings.gains import gains

        curves = gains(curves, over=over)
    if first:
        every, curves = curves, from_epoch(curves, first)
        if lacking := len(every) - len(curves):
            cells = plural(lacking, "cell")
            terminal.say(f"{cells} without a value from epoch {first} on left out")
    charts = _charts(curves, by)
    if figure is not None:
        if as_json or quiet or style != "table":
            raise BadInput("--figure writes its own data. Remove --json, --quiet or --format")
        _write(context, charts, figure, first)
    elif as_json or style == "json":
        terminal.emit_json(curves)
    elif quiet:
        terminal.write("\n".join(curve.cell_id for curve in curves))
    elif style == "csv":
        terminal.write(_csv(curves), end="")
    else:
        _print(charts, single=single, height=height, first=first)
        say_imported(context, chosen)


def _charts(curves: Sequence["CellCurve"], by: str | None) -> dict[str, list["CellCurve"]]:
    """Return title -> the curves of one chart.

    Raises:
        BadInput: the cells have no such setting.
    """
    from ..analysis.output import wording

    if by is None:
        return {"": list(curves)}
    names = wording.columns(curves)
    axes = {name for curve in curves for name in curve.axes}
    known = dict.fromkeys([*names, *sorted(axes)])
    if by not in known:
        raise BadInput(f"--by {by}: unknown. {suggest(by, known)}")
    found: dict[str, list[CellCurve]] = {}
    for curve in curves:
        title = wording.title_of(curve, [name for name in names if name != by])
        found.setdefault(title, []).append(curve)
    return found


def _print(charts: dict[str, list["CellCurve"]], *, single: bool, height: int, first: int) -> None:
    from .printing import terminal
    from .printing.curve import MOST_DRAWN, notes, print_curves

    shown = dict(list(charts.items())[:MOST_CHARTS])
    for index, (title, curves) in enumerate(shown.items()):
        if index:
            terminal.write("")
        print_curves(curves, single=single, height=height, title=title, first=first)
    every = [curve for curves in charts.values() for curve in curves]
    for line in notes(every, single=single):
        terminal.say(line)
    if len(charts) > len(shown):
        terminal.say(f"The first {len(shown)} of {len(charts)} charts. Select fewer cells.")
    if any(len(curves) > MOST_DRAWN for curves in shown.values()):
        terminal.say(f"A chart draws its first {MOST_DRAWN} cells. Select fewer, or use --by.")


def _csv(curves: Sequence["CellCurve"]) -> str:
    from ..analysis.output import wording
    from ..analysis.output.csv_text import csv_text

    names = wording.columns(curves)
    heading = [*names, "set", "metric", "over", "seed", "run", "epoch", "value"]
    rows = [
        [
            *wording.labels(curve, names),
            curve.set,
            curve.metric,
            curve.over or "",
            seed,
            curve.runs[seed],
            epoch,
            value,
        ]
        for curve in curves
        for seed, own in curve.seeds.items()
        for epoch, value in own.items()
    ]
    return csv_text(heading, rows)


def _write(
    context: "Context", charts: dict[str, list["CellCurve"]], folder: Path, first: int
) -> None:
    from ..analysis.findings.curves import interruptions
    from ..analysis.output import wording
    from ..analysis.output.figures.curves import learning
    from .printing import terminal

    panels = {
        title or "all cells": {
            wording.label_of(curve, wording.columns(curves)): curve.curves
            for curve in curves
            if curve.points
        }
        for title, curves in charts.items()
    }
    breaks = {
        title or "all cells": [
            epoch for epoch in interruptions(context.ledger, curves) if epoch >= first
        ]
        for title, curves in charts.items()
    }
    one = next(iter(charts.values()))[0]
    gained = one.over is not None
    drawn = learning(panels, breaks, metric=one.metric, set_name=one.set, gained=gained)
    assert drawn is not None, "there is a value, or an error was raised"
    folder.mkdir(parents=True, exist_ok=True)
    for path in drawn.write(folder):
        terminal.write(str(path))
