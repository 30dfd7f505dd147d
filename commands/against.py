"""Results beside what papers print."""

from typing import TYPE_CHECKING, Annotated

import typer

from ..jobs.errors import BadInput
from .options import Json, Selector, Workspace, look_into, require_style, selection
from .printing.tables import print_table
from .result_options import Format

if TYPE_CHECKING:
    from ..analysis.findings.cell import Cell
    from ..analysis.findings.matching import Reading


def against(
    paper: Annotated[
        str,
        typer.Argument(
            metavar="PAPER[:TABLE]",
            help=(
                "Paper and table, e.g. drloc:4, relvit:2 or thesis:6.6. A paper alone counts, for "
                "each of its tables, the numbers that can be compared."
            ),
        ),
    ],
    selector: Selector = None,
    alpha: Annotated[
        float,
        typer.Option(min=1e-6, max=0.5, help="Family-wise significance level of a table."),
    ] = 0.05,
    margin: Annotated[
        float | None,
        typer.Option(
            help="Equivalence margin ± for `reproduced`, in percentage points [default: none].",
        ),
    ] = None,
    wide: Annotated[
        bool,
        typer.Option("--wide", help="One column per dataset, as in papers: theirs, then ours."),
    ] = False,
    style: Format = "table",
    as_json: Json = False,
    workspace: Workspace = None,
) -> None:
    """Compare your results with a paper's published results.

    A cell is compared where its settings are those of the table's ready grid. Each number is
    reproduced, reproduced with a shift, different, inconclusive, or not comparable for a stated
    reason.
    """
    from ..analysis.findings.against import against as judge
    from ..analysis.findings.against import readings_of
    from ..analysis.output import as_csv, published_table
    from ..analysis.output.layout import FORMATS
    from .printing import terminal

    require_style(style, FORMATS)
    if margin is not None and not 0 < margin < float("inf"):
        raise BadInput(f"--margin {margin:g}: a number above 0, in points")
    if wide and (":" not in paper or style == "csv"):
        raise BadInput("--wide lays out one table, as text, Markdown or LaTeX. Remove --wide")
    style = "json" if as_json else style
    cells = _cells(readings_of(paper), selector, workspace, sparing=":" not in paper)
    if ":" not in paper:
        _print_coverage(paper, cells, alpha, margin, style)
        return
    document = judge(paper, cells, alpha=alpha, margin=margin)
    if style == "json":
        terminal.emit_json(document)
    elif style == "csv":
        terminal.write(as_csv.of_published(document), end="")
    elif wide:
        print_table(published_table.as_printed(document), style, right=())
    else:
        laid = published_table.of_rows(document)
        print_table(laid, style, right=tuple(range(laid.labels, len(laid.heading) - 3)))


def _cells(
    readings: list["Reading"], selector: Selector, workspace: Workspace, *, sparing: bool
) -> list["Cell"]:
    """Return the selected cells of all stages, once for each set and metric.

    Args:
        readings: sets and metrics.
        selector: of runs.
        workspace: of the ledger.
        sparing: whether to leave out what no run is scored by, but for top1.
    """
    from ..analysis.findings.readings import report_each

    context, chosen = look_into(workspace), selection(selector, default_all=True)
    return report_each(context.ledger, chosen, readings, sparing=sparing)


def _print_coverage(
    paper: str, cells: list["Cell"], alpha: float, margin: float | None, style: str
) -> None:
    from ..analysis.findings.coverage import coverage
    from ..analysis.output import as_csv, published_table
    from .printing import terminal

    counts = coverage(paper, cells, alpha=alpha, margin=margin)
    if style == "json":
        terminal.emit_json(counts)
    elif style == "csv":
        terminal.write(as_csv.of_coverage(counts), end="")
    else:
        laid = published_table.of_coverage(counts)
        print_table(laid, style, right=tuple(range(laid.labels, len(laid.heading) - 1)))
