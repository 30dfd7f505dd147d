"""Cells on two evaluation sets, with the line through them."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..jobs.errors import BadInput, NothingMatched
from .options import Json, Selector, Workspace, look_into, require_style, say_imported, selection
from .result_options import CurveMetric, DataFormat, Decimals, FigureFolder

if TYPE_CHECKING:
    from ..analysis.findings.two_sets import TwoSets


def scatter(
    selector: Selector = None,
    x: Annotated[str, typer.Option("--x", help="Evaluation set that predicts.")] = "test",
    y: Annotated[str, typer.Option("--y", help="Evaluation set that is predicted.")] = "v2",
    published: Annotated[
        str | None,
        typer.Option(
            metavar="PAPER[:TABLE]",
            help="Put the models that a paper prints on both sets beside the cells.",
            show_default=False,
        ),
    ] = None,
    metric: CurveMetric = None,
    figure: FigureFolder = None,
    style: DataFormat = "table",
    as_json: Json = False,
    decimals: Decimals = 2,
    workspace: Workspace = None,
) -> None:
    """Compare two evaluation sets over cells, with a line through them.

    A cell below the line scores less on the second set than its score on the first lets expect: it
    fits the first one more than the other cells do. With --published, the line goes through the
    models of a paper as well: `scatter --published thesis` on ImageNet.
    """
    from ..analysis.findings.two_sets import two_sets
    from ..analysis.findings.usual_metric import usual_metric
    from .printing import terminal

    require_style(style, ("table", "csv", "json"))
    if x == y:
        raise BadInput(f"--x and --y are both {x}. Name two sets")
    context = look_into(workspace)
    chosen = selection(selector, default_all=True)
    metric = metric or usual_metric(context.ledger, chosen)
    found = two_sets(context.ledger, chosen, metric=metric, x_set=x, y_set=y, published=published)
    if not found:
        raise NothingMatched(
            f"no selected cell has a seed with {metric} on both {x} and {y}. `vtjobs evaluate`"
            " scores finished runs on further sets"
        )
    if figure is not None:
        if as_json or style != "table":
            raise BadInput("--figure writes its own data. Remove --json or --format")
        _write(found, figure)
    elif as_json or style == "json":
        terminal.emit_json(found)
    elif style == "csv":
        terminal.write(_csv(found), end="")
    else:
        _print(found, decimals)
        say_imported(context, chosen)


def _print(found: Sequence["TwoSets"], decimals: int) -> None:
    from ..analysis.output import wording
    from .printing import terminal

    for one in found:
        names = wording.columns(one.cells)
        rows = [
            [
                *wording.labels(cell, names),
                str(cell.n),
                wording.score(cell.x, cell.x_std, decimals),
                wording.score(cell.y, cell.y_std, decimals),
                _signed(cell.residual, cell.residual_std, decimals),
            ]
            for cell in one.cells
        ]
        heading = [*names, "n", one.x_set, one.y_set, "from the line"]
        terminal.print_table(heading, rows, right=tuple(range(len(names), len(heading))))
        terminal.say(_line(one, decimals))
    terminal.say(
        f"{found[0].metric} at the last epoch; ± is the sample standard deviation over seeds."
    )


def _signed(value: float | None, std: float | None, decimals: int) -> str:
    if value is None:
        return "—"
    spread = "" if std is None else f" ± {std:.{decimals}f}"
    # A residual that is rounded to zero has no sign of its own.
    return f"{round(value, decimals) + 0.0:+.{decimals}f}{spread}"


def _line(one: "TwoSets", decimals: int) -> str:
    from ..analysis.output.wording import as_range
    from ..jobs.units import plural

    left = f" {plural(one.without, 'cell')} without a seed on both sets." if one.without else ""
    points = plural(len(one.cells), "cell")
    if one.published:
        points += f" and {len(one.published)} published models"
    if one.line is None:
        return f"{one.dataset}: no line: that takes three cells that differ on {one.x_set}.{left}"
    line = one.line
    slope = f"slope {line.slope:.{decimals}f} {as_range(line.slope_interval, decimals)}"
    r2 = "" if line.r2 is None else f", R² {line.r2:.2f}"
    return (
        f"{one.dataset}: {one.y_set} = {line.slope:.{decimals}f} · {one.x_set}"
        f" {line.intercept:+.{decimals}f} ({slope}{r2}; least squares over {points}).{left}"
    )


def _csv(found: Sequence["TwoSets"]) -> str:
    from ..analysis.output import wording
    from ..analysis.output.csv_text import csv_text

    cells = [(one, cell) for one in found for cell in one.cells]
    names = wording.columns([cell for _, cell in cells])
    values = ("n", "x", "y", "x_std", "y_std", "residual", "residual_std")
    heading = [*names, "x_set", "y_set", "metric", *values, "table"]
    rows = [
        [
            *wording.labels(cell, names),
            *(one.x_set, one.y_set, one.metric),
            *("" if (value := getattr(cell, name)) is None else value for name in values),
            "",
        ]
        for one, cell in cells
    ]
    # Of a published model the columns of a cell that it has.
    for one in found:
        for model in one.published:
            known = {
                "backbone": model.backbone,
                "dataset": one.dataset,
                "head": model.method,
                "x_set": one.x_set,
                "y_set": one.y_set,
                "metric": one.metric,
                **{name: getattr(model, name) for name in ("x", "y", "residual", "table")},
            }
            rows.append(["" if (value := known.get(key)) is None else value for key in heading])
    return csv_text(heading, rows)


def _write(found: Sequence["TwoSets"], folder: Path) -> None:
    from ..analysis.output.figures.two_sets import scatter as draw
    from .printing import terminal

    drawn = draw(found)
    folder.mkdir(parents=True, exist_ok=True)
    for path in drawn.write(folder):
        terminal.write(str(path))
