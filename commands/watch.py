"""Look at runs and their results."""

from typing import TYPE_CHECKING, Annotated

import typer

from .completion import complete_run
from .options import (
    Json,
    Quiet,
    RunId,
    Selector,
    Workspace,
    look_again,
    look_into,
    names_one_grid,
    one_run,
    selection,
    unreachable,
)
from .repeated import watched

if TYPE_CHECKING:
    from ..orchestrator.loop.context import Context
    from ..orchestrator.views.standing import Standing


@watched
def status(
    selector: Selector = None,
    as_json: Json = False,
    quiet: Quiet = False,
    workspace: Workspace = None,
) -> None:
    """Show how many runs are in each state."""
    from ..orchestrator.views.status import status as view
    from .printing import terminal
    from .printing.show import gpu_hours_text

    context = look_into(workspace)
    document = view(context, selection(selector, default_all=True))
    if as_json:
        terminal.emit_json(document)
        return
    if quiet:
        terminal.write("\n".join(grid.grid_id for grid in document.grids))
        return
    met = {word for grid in document.grids for word, count in grid.shown.items() if count}
    every = dict.fromkeys([*document.shown, *sorted(met)])
    # Every state has its column; what is only shown has one where there is any.
    words = [word for word in every if word in met or word in document.runs]
    rows = [
        [grid.grid_id, *(str(grid.shown.get(word, 0)) for word in words)] for grid in document.grids
    ]
    heading = ["GRID", *map(str.upper, words)]
    numbers = tuple(range(1, len(heading)))
    if document.eta is not None:
        heading.append("ETA")
        for row, grid in zip(rows, document.grids, strict=True):
            row.append("" if grid.eta is None else terminal.eta_text(grid.eta).removeprefix("eta "))
    terminal.print_table(heading, rows, right=numbers)
    if document.gpu_hours is not None and document.gpu_hours.total:
        terminal.write(f"GPU-hours: {gpu_hours_text(document.gpu_hours)}")
    for note in document.damaged_journals:
        terminal.say(f"warning: damaged journal, set aside: {note}")


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
    as_json: Json = False,
    quiet: Quiet = False,
    workspace: Workspace = None,
) -> None:
    """List runs with state, progress and result."""
    from ..orchestrator.views import runs as views
    from .printing import terminal
    from .printing.runs import print_runs, sorted_by

    context = look_into(workspace)
    # What comes first is known once all are sorted.
    most = None if sort else limit
    chosen = selection(selector, default_all=True)
    found = views.runs(context, chosen, limit=most)
    if sort:
        found = sorted_by(found, sort)[:limit]
    if as_json:
        terminal.emit_json(found)
    elif quiet:
        terminal.write("\n".join(run.run_id for run in found))
    else:
        print_runs(found, of_one_grid=names_one_grid(context, chosen))


def show(
    run: RunId, as_json: Json = False, quiet: Quiet = False, workspace: Workspace = None
) -> None:
    """Show one run's settings, attempts, results and history."""
    from ..orchestrator.views.details import show as view
    from .printing import terminal
    from .printing.show import lines

    context = look_into(workspace)
    document = view(context, one_run(context, run))
    if as_json:
        terminal.emit_json(document)
    elif quiet:
        terminal.write(document.run_id)
    else:
        terminal.write("\n".join(lines(document)))


def logs(
    run: RunId,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow", "-f", help="Follow the log from attempt to attempt, until the run ends."
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
    workspace: Workspace = None,
) -> None:
    """Print the logs of a run.

    The log of rank 0 has a line per epoch. With `--follow` the command waits for the run to start.
    It starts nothing itself.
    """
    from ..orchestrator.views.standing import standing
    from .printing.follow import Wanted, follow_logs, print_logs

    context = look_into(workspace)
    run_id = one_run(context, run)
    wanted = Wanted(
        run=context.workspace.run(run_id), attempt=attempt, rank=rank, where=context.where
    )
    if not follow:
        print_logs(wanted, standing(context, run_id))
        return
    follow_logs(
        wanted, lambda: _standing_now(context, run_id), lambda: _why_it_waits(context, run_id)
    )
    # The run is settled: a scheduler that is away cannot change that.
    unreachable.clear()


def _standing_now(context: "Context", run_id: str) -> "Standing":
    from ..orchestrator.views.standing import standing

    look_again(context)
    return standing(context, run_id)


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


def why(run: RunId, as_json: Json = False, workspace: Workspace = None) -> None:
    """Explain a run's state and what to do about it."""
    from ..orchestrator.views.why import why as explain
    from .printing import terminal

    context = look_into(workspace)
    document = explain(context, one_run(context, run))
    if as_json:
        terminal.emit_json(document)
        return
    terminal.write(f"{document.run_id[:8]} is {document.shown_state}: {document.sentence}")
    if document.action:
        word = "never" if document.verdict == "never" else "next"
        terminal.write(f"{word}: {document.action}")


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
