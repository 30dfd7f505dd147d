"""From the ledger to what each page shows. Nothing is tested or judged while runs are to come."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from ..analysis.findings.cells import planned
from ..analysis.findings.comparisons import compare
from ..analysis.findings.curves import CellCurve, learning_curves
from ..analysis.findings.declared import exploratory_notes, settle
from ..analysis.findings.usual_metric import usual_metric
from ..analysis.output import wording
from ..analysis.output.layout import Table
from ..analysis.output.render import of_comparisons
from ..db import queries
from ..db.engine import reading
from ..db.results import TRAINING, values_by_epoch
from ..jobs.errors import BadInput, NothingMatched
from ..jobs.run.metrics import MAIN
from ..jobs.run.selector import Selection
from ..jobs.run.spec import BASELINE
from ..jobs.run.states import RunState
from ..jobs.values import Value, changed
from ..orchestrator.loop.context import Context
from ..orchestrator.views import cells, details, failures, runs, spent
from ..orchestrator.views.cells import CellView
from ..orchestrator.views.eta import Etas
from ..orchestrator.views.logs import tail
from ..orchestrator.views.status import Status, status
from .addresses import Address, Kind
from .documents import (
    Activity,
    CellPage,
    Chart,
    Failures,
    GridPage,
    Group,
    Line,
    LogFile,
    MatrixRow,
    Overview,
    PageDocument,
    RunPage,
    Usage,
)

# Rows of a grid that get a chart: the others have theirs on the pages of their cells.
MOST_CHARTS = 6
# Runs of a group that are listed.
MOST_RUNS = 200
# Lines of a log below a run.
TAIL_LINES = 60
# What a run's page draws of training.
_LOSSES = ("train_loss", "loss")

_DONE = (RunState.COMPLETED, RunState.DIVERGED, RunState.FAILED, RunState.CANCELLED)


class Source(Value, frozen=True, kw_only=True):
    """What pages are made from."""

    context: Context
    selection: Selection
    """The runs that pages are about; others have none."""
    left: Etas
    """When they will have ended: of a hundred thousand runs, the dearest of all questions."""


def document_of(source: Source, address: Address) -> PageDocument | None:
    """Return what a page shows; None: there is no such grid, cell or run."""
    try:
        return _BUILDERS[address.kind](source, address.name)
    except NothingMatched:
        return None


def _overview(source: Source, _: str) -> Overview:
    context = source.context
    found = status(context, source.selection, left=source.left)
    with reading(context.ledger.engine) as connection:
        settings = queries.grid_settings(connection)
    return Overview(
        status=found,
        descriptions={
            grid.grid_id: settings[grid.grid_id].description
            for grid in found.grids
            if settings[grid.grid_id].description
        },
        failed=sum(found.runs[state] for state in (RunState.FAILED, RunState.DIVERGED)),
    )


def _grid(source: Source, name: str) -> GridPage:
    context = source.context
    chosen = changed(source.selection, everything=False, prefixes=(), names=(name,))
    found = status(context, chosen, left=source.left)
    grid = next((grid for grid in found.grids if grid.grid_id == name), None)
    if grid is None:
        raise NothingMatched(f"no grid {name}")
    with reading(context.ledger.engine) as connection:
        description = queries.grid_settings(connection, {name})[name].description
    seen = _cells(context, chosen)
    headings, heads, rows = _matrix(seen)
    drawn = rows[:MOST_CHARTS]
    return GridPage(
        grid=grid,
        description=description,
        headings=headings,
        heads=heads,
        rows=rows,
        charts=_charts_of_rows(context, chosen, drawn),
        undrawn=len(rows) - len(drawn),
        metric=" or ".join(dict.fromkeys(cell.metric for cell in seen)),
        comparison=_comparison(context, chosen) if _is_over(found) else None,
    )


def _matrix(seen: Sequence[cells.CellView]) -> tuple[list[str], list[str], list[MatrixRow]]:
    """Return the headings of the labels, the heads, and the rows."""
    headings = [name for name in wording.columns(seen) if name != "head"]
    # The baseline stands first, as in papers.
    heads = sorted({cell.head for cell in seen}, key=lambda head: (head != BASELINE, head))
    rows: dict[tuple[str, ...], dict[str, cells.CellView]] = {}
    for cell in seen:
        rows.setdefault(tuple(wording.labels(cell, headings)), {})[cell.head] = cell
    found = [
        MatrixRow(labels=list(labels), cells=[of_row.get(head) for head in heads])
        for labels, of_row in rows.items()
    ]
    return headings, heads, found


def _is_over(found: Status) -> bool:
    return bool(found.runs[RunState.COMPLETED]) and sum(found.runs.values()) == sum(
        found.runs[state] for state in _DONE
    )


def _comparison(context: Context, selection: Selection) -> Table | None:
    """Return each cell against its baseline; None where there is nothing to compare."""
    try:
        plan = settle(context.ledger, selection, {})
        found = compare(planned(context.ledger, selection, plan), plan)
    except (BadInput, NothingMatched):
        # Grids that planned different things are compared by nobody but their user.
        return None
    if not found.comparisons:
        return None
    table = of_comparisons(found)
    table.notes += exploratory_notes(plan.exploratory)
    return table


def _curves(context: Context, selection: Selection) -> list[CellCurve]:
    try:
        return learning_curves(context.ledger, selection)
    except (BadInput, NothingMatched):
        # Nothing has been scored yet.
        return []


def _charts_of_rows(
    context: Context, selection: Selection, rows: Sequence[MatrixRow]
) -> list[Chart]:
    wanted = [cell.cell_id for row in rows for cell in row.cells if cell]
    if not wanted:
        return []
    curves = {one.cell_id: one for one in _curves(context, selection.narrowed("cell", *wanted))}
    charts = []
    for row in rows:
        of_row = [curves[cell.cell_id] for cell in row.cells if cell and cell.cell_id in curves]
        lines = [_mean(one, one.head) for one in of_row if one.points]
        if lines:
            charts.append(
                Chart(
                    title=" ".join(filter(None, row.labels)),
                    text="Mean over seeds at each epoch; band: one sample standard deviation.",
                    metric=f"{of_row[0].metric} on {of_row[0].set}",
                    lines=lines,
                )
            )
    return charts


def _mean(curve: CellCurve, label: str) -> Line:
    return Line(
        label=label,
        epochs=[point.epoch for point in curve.points],
        values=[point.mean for point in curve.points],
        low=[None if point.std is None else point.mean - point.std for point in curve.points],
        high=[None if point.std is None else point.mean + point.std for point in curve.points],
    )


def _single(label: str, values: Mapping[int, float]) -> Line:
    epochs = sorted(values)
    nothing: list[float | None] = [None] * len(epochs)
    return Line(
        label=label,
        epochs=epochs,
        values=[values[epoch] for epoch in epochs],
        low=nothing,
        high=nothing,
        single=True,
    )


def _cells(context: Context, chosen: Selection) -> list[CellView]:
    """Return the selected cells, each by the metric that its runs are scored by."""
    usual = usual_metric(context.ledger, chosen)
    seen = cells.cells(context, chosen, metric=usual)
    if usual == MAIN["classification"]:
        return seen
    # Of a stage that others begin with.
    before = cells.cells(context, chosen, metric=MAIN["classification"])
    return [one if one.n or not other.n else other for one, other in zip(seen, before, strict=True)]


def _cell(source: Source, name: str) -> CellPage:
    context, chosen = source.context, source.selection.narrowed("cell", name)
    seen = _cells(context, chosen)
    if not seen:
        raise NothingMatched(f"no cell {name}")
    curve = next(iter(_curves(context, chosen)), None)
    chart = None
    if curve is not None and curve.points:
        seeds = [_single(f"seed {seed}", values) for seed, values in curve.curves.items()]
        chart = Chart(
            title="Learning curve",
            text=(
                "Mean over seeds at each epoch, one sample standard deviation around it, and each"
                " seed."
            ),
            metric=f"{curve.metric} on {curve.set}",
            lines=[_mean(curve, "mean"), *seeds],
        )
    return CellPage(cell=seen[0], chart=chart, runs=runs.runs(context, chosen), curve=curve)


def _run(source: Source, name: str) -> RunPage:
    context, selection = source.context, source.selection
    # A run of another selection has no page here.
    with reading(context.ledger.engine) as connection:
        queries.list_runs(connection, selection.narrowed("run", name), limit=1)
    shown = details.show(context, name)
    logs = _logs(context, name)
    lines: list[str] = []
    if logs:
        path = context.workspace.run(name).logs(logs[0].attempt) / logs[0].name
        # Somebody may clean up meanwhile.
        with suppress(FileNotFoundError):
            lines = tail(path)[-TAIL_LINES:]
    return RunPage(run=shown, charts=_charts_of_run(context, name), logs=logs, tail=lines)


def _logs(context: Context, run_id: str) -> list[LogFile]:
    folder = context.workspace.run(run_id)
    return [
        LogFile(attempt=number, name=path.name, bytes=path.stat().st_size)
        for number in sorted(folder.attempts(), reverse=True)
        for path in failures.logs_of(context, run_id, number)
        if path.exists()
    ]


def _charts_of_run(context: Context, run_id: str) -> list[Chart]:
    with reading(context.ledger.engine) as connection:
        values = values_by_epoch(connection, run_id)
    main = MAIN["classification"]
    scores: dict[str, dict[int, float]] = {}
    losses: dict[str, dict[int, float]] = {}
    for (epoch, set_name, metric), value in values.items():
        if set_name == TRAINING and metric in _LOSSES:
            losses.setdefault(metric, {})[epoch] = value
        elif set_name != TRAINING and metric in MAIN.values():
            main = metric
            scores.setdefault(set_name, {})[epoch] = value
    charts = []
    if scores:
        lines = [_single(set_name, of_set) for set_name, of_set in scores.items()]
        charts.append(
            Chart(title="Score", text=f"{main} at each epoch, by set.", metric=main, lines=lines)
        )
    if losses:
        lines = [_single(metric, of_metric) for metric, of_metric in losses.items()]
        charts.append(
            Chart(title="Loss", text="Loss of training at each epoch.", metric="loss", lines=lines)
        )
    return charts


def _activity(source: Source, _: str) -> Activity:
    context, selection = source.context, source.selection
    counts = status(context, selection, left=source.left).runs
    groups = []
    for state in (RunState.RUNNING, RunState.QUEUED, RunState.PENDING, RunState.BLOCKED):
        if not counts[state]:
            continue
        groups.append(
            Group(
                title=state.capitalize(),
                runs=runs.runs(context, selection.narrowed("state", state), limit=MOST_RUNS),
                total=counts[state],
            )
        )
    return Activity(groups=groups)


def _failures(source: Source, _: str) -> Failures:
    try:
        return Failures(groups=failures.failures(source.context, source.selection))
    except NothingMatched:
        return Failures(groups=[])


def _usage(source: Source, _: str) -> Usage:
    try:
        by_grid, by_user = spent.spent_by(source.context, source.selection, [["grid"], ["user"]])
    except NothingMatched:
        return Usage(by_grid=[], by_user=[])
    return Usage(by_grid=by_grid, by_user=by_user)


_BUILDERS: dict[Kind, Callable[[Source, str], PageDocument]] = {
    Kind.OVERVIEW: _overview,
    Kind.ACTIVITY: _activity,
    Kind.FAILURES: _failures,
    Kind.USAGE: _usage,
    Kind.GRID: _grid,
    Kind.CELL: _cell,
    Kind.RUN: _run,
}
