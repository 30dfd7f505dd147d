"""Results: tables, comparisons and published numbers."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..jobs.errors import BadInput, suggest
from ..jobs.units import iso, plural
from .options import (
    Json,
    Quiet,
    Selector,
    Workspace,
    look_into,
    require_style,
    selection,
)
from .printing.tables import print_table
from .repeated import watched
from .result_options import (
    Alpha,
    Anytime,
    Baseline,
    CorrectionName,
    Decimals,
    EquivalenceMargin,
    FamilyName,
    Format,
    MinEffect,
    OnDivergedName,
    OverDatasetsName,
    PlannedMetric,
    PlannedSet,
    Select,
    SetName,
    TestName,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..analysis.findings.cell import Cell
    from ..analysis.findings.comparisons import Comparisons


@watched
def report(
    selector: Selector = None,
    metric: PlannedMetric = None,
    set_name: PlannedSet = None,
    select: Select = None,
    across: Annotated[
        str | None,
        typer.Option(
            "--columns",
            metavar="KEY",
            help="With --wide: one column per value of this setting, e.g. recipe.",
            show_default=False,
        ),
    ] = None,
    detail: Annotated[
        bool,
        typer.Option(
            "--detail",
            help=(
                "Confidence intervals, prediction interval, range, "
                "and the best seed compared with the best expected by chance."
            ),
        ),
    ] = False,
    wide: Annotated[
        bool,
        typer.Option(
            "--wide",
            help="One column per dataset, as in papers; or per set: --wide --set test,v2.",
        ),
    ] = False,
    decimals: Decimals = 2,
    baseline: Baseline = None,
    html: Annotated[
        Path | None,
        typer.Option(
            help="Folder for an HTML report with figures and data (created if missing).",
        ),
    ] = None,
    long: Annotated[
        Path | None,
        typer.Option(
            help=(
                "Write every result as long data: a line per run, set, metric and epoch rule. "
                "A .csv or .parquet file, or - for CSV on the terminal."
            ),
        ),
    ] = None,
    style: Format = "table",
    as_json: Json = False,
    quiet: Quiet = False,
    workspace: Workspace = None,
) -> None:
    """Print mean ± std over seeds and gain over baseline.

    Each row is a cell: all seeds of one combination of settings.
    """
    from ..analysis.findings.cells import described, planned
    from ..analysis.findings.declared import exploratory_notes
    from ..analysis.output import as_csv, render
    from ..analysis.output import by_dataset as by_dataset
    from ..jobs.values import changed
    from .printing import terminal

    _check_layout(detail, wide, across, set_name)
    if (detail or wide) and (html is not None or style == "csv"):
        what = "--html includes all tables" if html is not None else "--format csv has one layout"
        raise BadInput(f"{what}. Remove {'--wide' if wide else '--detail'}")
    sets = _sets(set_name, alone=not (wide or as_json or style in ("csv", "json")))
    given = {"metric": metric, "set": sets[0], "select": select, "baseline": baseline}
    if long is not None:
        others = (*given.values(), detail, wide, html, as_json, quiet, style != "table")
        _write_long(selector, long, workspace, alone=not any(others))
        return
    if html is not None:
        written = _write_page(selector, given, html, workspace)
        terminal.emit_json({name: str(path) for name, path in written.items()}) if as_json else None
        return
    context, chosen, plan = _planned(selector, given, style, workspace)
    plans = [changed(plan, set=name or plan.set) for name in sets]
    cells = [cell for one in plans for cell in planned(context.ledger, chosen, one)]
    if detail:
        cells = [described(cell) for cell in cells]
    if quiet:
        terminal.write("\n".join(dict.fromkeys(cell.cell_id for cell in cells)))
    elif as_json or style == "json":
        terminal.emit_json(cells)
    elif style == "csv":
        terminal.write(as_csv.of_cells(cells), end="")
    elif wide:
        table = by_dataset.of_cells(cells, across=_across(across, cells), decimals=decimals)
        table.notes += exploratory_notes(plan.exploratory)
        print_table(table, style, right=tuple(range(table.labels, len(table.heading))))
    else:
        lay = render.of_descriptions if detail else render.of_cells
        table = lay(cells, decimals=decimals)
        table.notes += exploratory_notes(plan.exploratory)
        print_table(
            table, style, right=(table.labels, *range(table.labels + 2, len(table.heading)))
        )


def _check_layout(detail: bool, wide: bool, across: str | None, sets: str | None) -> None:
    if detail and wide:
        raise BadInput("--detail and --wide cannot be combined")
    if across is not None and (not wide or "," in (sets or "")):
        raise BadInput(f"--columns {across}: needs --wide, and one set of images")


def _across(asked: str | None, cells: "Sequence[Cell]") -> str:
    """Return the setting whose values are the columns.

    Raises:
        BadInput: the table has no column of such a setting.
    """
    from ..analysis.output import wording

    known = wording.columns(cells)
    if asked is not None and asked not in known:
        raise BadInput(
            f"--columns {asked}: unknown, or the same in all cells. {suggest(asked, known)}"
        )
    return asked or "dataset"


def _sets(given: str | None, *, alone: bool) -> list[str | None]:
    """Return the sets of images that a report is asked for; None: the declared one.

    Args:
        given: on the command line, with commas.
        alone: whether the layout has room for one set only.
    """
    if given is None:
        return [None]
    names = list(dict.fromkeys(name.strip() for name in given.split(",")))
    if len(names) > 1 and alone:
        raise BadInput(f"--set {given}: several sets need --wide, --format csv or --json")
    return [*names]


def _write_long(selector: Any, path: Path, workspace: Any, *, alone: bool) -> None:
    from ..analysis.findings.long_data import long_data
    from ..analysis.output import long_table
    from .printing import terminal

    if not alone:
        raise BadInput("--long writes every result, in one layout. Remove the other options")
    context, chosen = _opened(selector, "table", workspace)
    rows = long_data(context.ledger, chosen)
    if str(path) == "-":
        terminal.write(long_table.as_csv(rows), end="")
        return
    long_table.write(rows, path)
    terminal.say(f"{path} written, {plural(len(rows), 'line')}")


def _write_page(
    selector: Any, given: dict[str, Any], folder: Path, workspace: Any
) -> dict[str, Path]:
    from ..analysis.findings.gather import gather
    from ..analysis.output import page
    from ..web import site
    from .printing import terminal

    if folder.exists() and not folder.is_dir():
        raise BadInput(f"--html {folder} is a file. Give a folder (created if missing)")
    context, chosen, plan = _planned(selector, given, "table", workspace)
    document = gather(context.ledger, context.workspace, chosen, plan)
    as_of = f"{(iso(context.clock()) or '')[:19].replace('T', ' ')} UTC"
    written = page.write(document, folder, as_of=as_of, site=True)
    with terminal.counting("pages") as progress:
        first = site.write(context, chosen, folder, report=True, progress=progress)
    terminal.say(
        f"{written['page']} written, {len(written['figures']) // 3} figures in {folder / 'figures'}"
    )
    terminal.say(f"{first} written: grids, cells, runs, failures and usage")
    return {"page": written["page"], "document": written["document"], "site": first}


def compare(
    selector: Selector = None,
    metric: PlannedMetric = None,
    set_name: PlannedSet = None,
    select: Select = None,
    test: TestName = None,
    alpha: Alpha = None,
    margin: EquivalenceMargin = None,
    min_effect: MinEffect = None,
    baseline: Baseline = None,
    anytime: Anytime = False,
    family: FamilyName = None,
    on_diverged: OnDivergedName = None,
    correction: CorrectionName = None,
    over_datasets: OverDatasetsName = None,
    between: Annotated[
        str | None,
        typer.Option(
            metavar="KEY",
            help="Test whether gains differ between backbones, datasets, recipes or values of an "
            "axis.",
            show_default=False,
        ),
    ] = None,
    decimals: Decimals = 2,
    style: Format = "table",
    as_json: Json = False,
    quiet: Quiet = False,
    workspace: Workspace = None,
) -> None:
    """Test each cell against its baseline across seeds.

    With --between, test instead whether a head gains more on one backbone, say, than on another.
    """
    from ..analysis.findings.cells import planned
    from ..analysis.findings.comparisons import compare as judge
    from .printing import terminal

    given = {
        "test": test,
        "alpha": alpha,
        "margin": margin,
        "min_effect": min_effect,
        "metric": metric,
        "set": set_name,
        "select": select,
        "anytime": anytime or None,
        "family": family,
        "on_diverged": on_diverged,
        "correction": correction,
        "over_datasets": over_datasets,
        "baseline": baseline,
    }
    context, chosen, plan = _planned(selector, given, style, workspace)
    if between is not None and quiet:
        raise BadInput("--between has no verdicts of cells. Remove --quiet")
    document = judge(planned(context.ledger, chosen, plan), plan, factor=between)
    if as_json or style == "json":
        terminal.emit_json(document)
    elif quiet:
        word = " exploratory" if document.exploratory else ""
        terminal.write(
            "\n".join(f"{one.cell_id} {one.verdict}{word}" for one in document.comparisons)
        )
    else:
        _print_compared(document, style, decimals)


def _print_compared(document: "Comparisons", style: str, decimals: int) -> None:
    from ..analysis.findings import reversals
    from ..analysis.output import as_csv, between, over_datasets, render
    from .printing import terminal

    # Columns of numbers are counted from the first behind the labels.
    numbers: tuple[int, ...] = (1, 3)
    if document.between:
        as_data, as_table = between.csv_of_between, between.of_between
        numbers = (0, 1, 2)
    elif document.pooled:
        as_data, as_table = as_csv.of_pooled, over_datasets.of_pooled
    elif document.comparisons:
        as_data, as_table = as_csv.of_comparisons, render.of_comparisons
    elif not document.reversals:
        raise BadInput("nothing to compare: no selected cell has a baseline cell in the selection")
    else:
        for line in reversals.reversal_notes(document.reversals):
            terminal.write(line)
        return
    if style == "csv":
        terminal.write(as_data(document), end="")
    else:
        table = as_table(document, decimals=decimals)
        print_table(table, style, right=tuple(table.labels + number for number in numbers))


def variance(
    selector: Selector = None,
    set_name: SetName = "test",
    metric: Annotated[
        str,
        typer.Option(help="Metric for studies of streams; the split by images always uses top1."),
    ] = "top1",
    style: Format = "table",
    as_json: Json = False,
    workspace: Workspace = None,
) -> None:
    """Split the variance over seeds into its sources.

    The sources are the part that generalises to new images, the part due to the finite test set
    and, in a study of streams, each stream of randomness.
    """
    from ..analysis.findings.cells import report as table
    from ..analysis.findings.per_image import variance as parts
    from ..analysis.findings.study import studies
    from ..analysis.output import as_csv, render
    from ..analysis.output.study_table import of_study
    from ..jobs.values import changed
    from .printing import terminal

    context, chosen = _opened(selector, style, workspace)
    found = parts(
        context.workspace, table(context.ledger, chosen, set_name=set_name, with_specs=True)
    )
    of_cells = studies(context.ledger, context.workspace, chosen, metric=metric, set_name=set_name)
    found = [changed(cell, studies=of_cells.get(cell.cell_id, [])) for cell in found]
    if as_json or style == "json":
        terminal.emit_json(found)
    elif style == "csv":
        terminal.write(as_csv.of_variances(found), end="")
    else:
        # Where nothing was replicated there is nothing to split by images.
        plain = [cell for cell in found if cell.n or not cell.studies]
        tables = [render.of_variances(plain)] if plain else []
        for laid in tables + [
            of_study(cell, study) for cell in found for study in cell.studies or []
        ]:
            print_table(laid, style, right=tuple(range(laid.labels, len(laid.heading))))


def _opened(selector: Any, style: str, workspace: Any) -> tuple[Any, Any]:
    from ..analysis.output.layout import FORMATS

    require_style(style, FORMATS)
    context = look_into(workspace)
    return context, selection(selector, default_all=True)


def _planned(
    selector: Any, given: dict[str, Any], style: str, workspace: Any
) -> tuple[Any, Any, Any]:
    from ..analysis.findings.declared import settle

    context, chosen = _opened(selector, style, workspace)
    return context, chosen, settle(context.ledger, chosen, given)
