"""Look at runs and their results."""

import re
from typing import TYPE_CHECKING, Annotated

import typer

from ..jobs.errors import BadInput, NothingMatched
from ..jobs.units import parse_duration_s, plural
from .completion import complete_run
from .options import (
    Json,
    Quiet,
    RunSelector,
    Selector,
    Workspace,
    look_again,
    look_into,
    names_one_grid,
    one_or_many,
    require_style,
    select_ids,
    selection,
    unreachable,
)
from .repeated import watched

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..orchestrator.loop.context import Context
    from ..orchestrator.views.standing import Standing
    from ..orchestrator.views.status import GridCounts, Status


@watched
def status(
    selector: Selector = None,
    archived: Annotated[
        bool, typer.Option("--archived", help="Also grids that were put away.")
    ] = False,
    as_json: Json = False,
    quiet: Quiet = False,
    workspace: Workspace = None,
) -> None:
    """Show how many runs are in each state."""
    from ..orchestrator.views.status import status as view
    from .printing import terminal
    from .printing.show import gpu_hours_text

    context = look_into(workspace)
    chosen = selection(selector, default_all=True)
    document = view(context, chosen)
    if as_json:
        terminal.emit_json(document)
        return
    # Whoever names a grid wants to see it.
    everything = archived or bool(chosen.names)
    grids = [grid for grid in document.grids if everything or not grid.archived]
    if quiet:
        terminal.write("\n".join(grid.grid_id for grid in grids))
        return
    _print_counts(document, grids)
    if document.gpu_hours is not None and document.gpu_hours.total:
        terminal.write(f"GPU-hours: {gpu_hours_text(document.gpu_hours)}")
    if hidden := len(document.grids) - len(grids):
        verb = "is" if hidden == 1 else "are"
        terminal.say(
            f"{plural(hidden, 'archived grid')} {verb} left out:"
            f" vtjobs status --archived{context.where}"
        )
    for note in document.damaged_journals:
        terminal.say(f"warning: damaged journal, set aside: {note}")


def _print_counts(document: "Status", grids: "Sequence[GridCounts]") -> None:
    """Print how many runs of each grid are in each state.

    Args:
        document: says which states have a column, and whether there is an estimate.
        grids: those to print.
    """
    from .printing import terminal

    met = {word for grid in grids for word, count in grid.shown.items() if count}
    every = dict.fromkeys([*document.shown, *sorted(met)])
    # Every state has its column; what is only shown has one where there is any.
    words = [word for word in every if word in met or word in document.runs]
    rows = [[grid.grid_id, *(str(grid.shown.get(word, 0)) for word in words)] for grid in grids]
    heading = ["GRID", *map(str.upper, words)]
    numbers = tuple(range(1, len(heading)))
    if document.eta is not None:
        heading.append("ETA")
        for row, grid in zip(rows, grids, strict=True):
            row.append("" if grid.eta is None else terminal.eta_text(grid.eta).removeprefix("eta "))
    if any(grid.tags for grid in grids):
        heading.append("TAGS")
        for row, grid in zip(rows, grids, strict=True):
            row.append(", ".join(grid.tags))
    terminal.print_table(heading, rows, right=numbers)


@watched
def runs(
    selector: Selector = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Maximum number of runs [default: all].")
    ] = None,
    sort: Annotated[
        str | None,
        typer.Option(
            help="Column to sort by, e.g. state; -top1: largest first [default: as in the grid].",
        ),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            help=(
                "Columns to show, with commas, e.g. run,head,reason,host,train.lr "
                "[default: labels, what differs, and progress]."
            )
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(help="Only runs that started or ended in this time, e.g. 90m or 2d."),
    ] = None,
    each: Annotated[
        bool,
        typer.Option("--each", help="A line for each run, also where many wait alike."),
    ] = False,
    style: Annotated[
        str, typer.Option("--format", "-f", help="Output format: table, csv or json.")
    ] = "table",
    as_json: Json = False,
    quiet: Quiet = False,
    workspace: Workspace = None,
) -> None:
    """List runs with state, progress and result."""
    from ..orchestrator.views import runs as views
    from .printing import runs as printing
    from .printing import terminal
    from .printing.pager import paged

    require_style(style, ("table", "csv", "json"))
    after = _before_now(since)
    context = look_into(workspace)
    # What comes first is known once all are sorted.
    most = None if sort else limit
    chosen = selection(selector, default_all=True)
    begin = None if after is None else context.clock() - after
    found = views.runs(context, chosen, limit=most, since=begin)
    if sort:
        found = printing.sorted_by(found, sort)
    found = found[:limit]
    if as_json or style == "json":
        terminal.emit_json(found)
        return
    if quiet:
        terminal.write("\n".join(run.run_id for run in found))
        return
    named = printing.columns_of(found, of_one_grid=names_one_grid(context, chosen))
    if columns is not None:
        named = printing.columns_named(columns, found, now=context.clock())
    if style == "csv":
        terminal.write(printing.as_csv(found, named), end="")
    else:
        # Whoever asks for columns or an order means each run.
        alike = not (each or columns or sort)
        paged(lambda: printing.print_runs(found, named, alike_at_once=alike))


def show(
    selector: RunSelector = None,
    as_json: Json = False,
    quiet: Quiet = False,
    workspace: Workspace = None,
) -> None:
    """Show settings, attempts, results and history of runs."""
    from ..orchestrator.views.details import show as view
    from .printing import terminal
    from .printing.pager import paged
    from .printing.show import lines

    context = look_into(workspace)
    documents = [view(context, run_id) for run_id in select_ids(context, selector)]
    if as_json:
        terminal.emit_json(one_or_many(documents, selector))
    elif quiet:
        terminal.write("\n".join(document.run_id for document in documents))
    else:
        text = "\n\n".join("\n".join(lines(document)) for document in documents)
        paged(lambda: terminal.write(text))


def logs(
    selector: RunSelector = None,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow", "-f", help="Follow the logs from attempt to attempt, until the runs end."
        ),
    ] = False,
    attempt: Annotated[
        int | None,
        typer.Option(min=1, help="Number of the attempt [default: the newest with a log]."),
    ] = None,
    rank: Annotated[
        int | None,
        typer.Option(min=0, help="Rank to print [default: all ranks]."),
    ] = None,
    tail: Annotated[
        int | None, typer.Option(min=1, help="Only the last lines of each log.")
    ] = None,
    grep: Annotated[
        str | None,
        typer.Option(
            help=(
                "Only lines that match this regular expression, of all attempts unless "
                "--attempt names one."
            )
        ),
    ] = None,
    workspace: Workspace = None,
) -> None:
    """Print the logs of runs.

    The log of rank 0 has a line per epoch. With `--follow` the command waits for runs to start. It
    starts nothing itself.
    """
    from ..orchestrator.views.standing import standings
    from .printing import terminal
    from .printing.follow import Wanted, follow_logs, print_logs

    pattern = _pattern(grep)
    context = look_into(workspace)
    run_ids = select_ids(context, selector)
    several = len(run_ids) > 1
    wanted = [
        Wanted(
            run=context.workspace.run(run_id),
            attempt=attempt,
            rank=rank,
            tail=tail,
            grep=pattern,
            mark=f"{run_id[:8]} " if several else "",
            where=context.where,
        )
        for run_id in run_ids
    ]
    if not follow:
        without: list[NothingMatched] = []
        found = standings(context, run_ids)
        for one, run_id in zip(wanted, run_ids, strict=True):
            try:
                if run_id not in found:
                    raise NothingMatched(f"{run_id[:8]} was deleted")
                print_logs(one, found[run_id])
            except NothingMatched as error:
                without.append(error)
        # Of several runs some may not have started.
        if len(without) == len(wanted):
            raise without[0]
        for missing in without:
            terminal.say(str(missing))
        return
    follow_logs(
        wanted,
        lambda: _standings_now(context, run_ids),
        # Of many runs most wait; `runs` shows which.
        None if several else lambda run_id: _why_it_waits(context, run_id),
    )
    # The runs are settled: a scheduler that is away cannot change that.
    unreachable.clear()


def _before_now(since: str | None) -> int | None:
    """Return a length of time in seconds.

    Raises:
        BadInput: it cannot be read.
    """
    try:
        return None if since is None else parse_duration_s(since)
    except ValueError as error:
        raise BadInput(f"--since {since}: {error}") from None


def _pattern(grep: str | None) -> re.Pattern[str] | None:
    try:
        return None if grep is None else re.compile(grep)
    except re.error as error:
        raise BadInput(f"--grep {grep}: not a regular expression ({error})") from None


def _standings_now(context: "Context", run_ids: list[str]) -> dict[str, "Standing"]:
    from ..orchestrator.views.standing import standings

    look_again(context)
    return standings(context, run_ids)


def _why_it_waits(context: "Context", run_id: str) -> str:
    from ..jobs.errors import SchedulerUnreachable
    from ..orchestrator.views.why import why as explain

    try:
        return explain(context, run_id).sentence
    except SchedulerUnreachable as error:
        return str(error)


@watched
def failures(
    selector: Selector = None,
    as_json: Json = False,
    quiet: Quiet = False,
    workspace: Workspace = None,
) -> None:
    """Show what went wrong, grouped by cause."""
    from ..orchestrator.views.failures import failures as view
    from .printing import terminal

    context = look_into(workspace)
    groups = view(context, selection(selector, default_all=True))
    if as_json:
        terminal.emit_json(groups)
    elif quiet:
        terminal.write("\n".join(run_id for group in groups for run_id in group.run_ids))
    elif not groups:
        terminal.say("no failures")
    else:
        for group in groups:
            common = " ".join(f"{name}={value}" for name, value in group.common.items())
            where = f" ({group.place})" if group.place else ""
            terminal.write(f"{group.runs} x {group.failure}: {group.message}{where}")
            terminal.write(
                f"    {common or 'nothing in common'}; hosts {', '.join(group.hosts) or '-'};"
                f" see: {group.next}"
            )
            if group.remedy:
                terminal.write(f"    next: {group.remedy}")


def why(selector: RunSelector = None, as_json: Json = False, workspace: Workspace = None) -> None:
    """Explain the state of runs and what to do about it."""
    from ..orchestrator.views.why import why as explain
    from .printing import terminal
    from .printing.why import lines

    context = look_into(workspace)
    documents = [explain(context, run_id) for run_id in select_ids(context, selector)]
    if as_json:
        terminal.emit_json(one_or_many(documents, selector))
        return
    for line in lines(documents):
        terminal.write(line)


def diff(
    first: Annotated[
        str,
        typer.Argument(
            help="Run id, grid name or condition, such as head=drloc.", autocompletion=complete_run
        ),
    ],
    second: Annotated[
        str, typer.Argument(help="What to compare it with.", autocompletion=complete_run)
    ],
    as_json: Json = False,
    workspace: Workspace = None,
) -> None:
    """Show what two runs, cells or grids differ in.

    Of two single runs also software, hardware, results and the first epoch that differs.
    """
    from ..orchestrator.views.differences import differences
    from .printing import terminal
    from .printing.differences import print_differences

    context = look_into(workspace)
    found = differences(context, selection([first]), selection([second]))
    if as_json:
        terminal.emit_json(found)
    else:
        print_differences(found)
