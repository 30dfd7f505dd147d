"""How often classifiers decide differently."""

from typing import TYPE_CHECKING, Annotated

import typer

from ..jobs.errors import NothingMatched
from .options import Json, Selector, Workspace, look_into, require_style, selection
from .printing.tables import print_table
from .result_options import Decimals, Format, SetName

if TYPE_CHECKING:
    from ..analysis.findings.disagreement import Disagreements


def _nothing(found: "Disagreements", set_name: str) -> str:
    """Return why there is no table."""
    from ..analysis.findings.disagreement import OTHER_IMAGES

    if any(one.why == OTHER_IMAGES for one in found.without):
        return f"on {set_name} {OTHER_IMAGES}, so seeds have no images in common; see --runs"
    return (
        f"no selected run has stored predictions on {set_name}: completed runs with a classifier"
        " have them, unless an older version trained them"
    )


def disagreement(
    selector: Selector = None,
    set_name: SetName = "test",
    by_run: Annotated[
        bool,
        typer.Option("--runs", help="One row per run instead of per cell."),
    ] = False,
    style: Format = "table",
    as_json: Json = False,
    decimals: Decimals = 2,
    workspace: Workspace = None,
) -> None:
    """Show how often methods, and seeds, choose different classes.

    Each number is the share of the same test images on which two classifiers differ. Classifiers
    with equal accuracy may still decide differently.
    """
    from ..analysis.findings.cells import report
    from ..analysis.findings.disagreement import disagreements
    from ..analysis.output import disagreement_table
    from ..analysis.output.layout import FORMATS
    from .printing import terminal

    require_style(style, FORMATS)
    context = look_into(workspace)
    chosen = selection(selector, default_all=True)
    cells = report(context.ledger, chosen, set_name=set_name, with_specs=True)
    found = disagreements(context.workspace, cells, by_run=by_run)
    if as_json or style == "json":
        terminal.emit_json(found)
        return
    if not found.tables:
        raise NothingMatched(_nothing(found, set_name))
    if style == "csv":
        terminal.write(disagreement_table.as_csv(found.tables), end="")
        return
    for number, table in enumerate(found.tables):
        # Cells that are in no table are told once, below the last one.
        without = found.without if number == len(found.tables) - 1 else []
        laid = disagreement_table.of_disagreement(table, without, decimals=decimals)
        print_table(laid, style, right=tuple(range(laid.labels, len(laid.heading))))
