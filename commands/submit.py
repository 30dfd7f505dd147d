"""Plan, submit and run."""

import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..jobs.config.backends import require_known
from ..jobs.errors import BadInput, VtjobsError
from ..jobs.units import format_duration, plural
from .options import (
    BackendName,
    DryRun,
    Json,
    MaxRuns,
    NoDataCheck,
    RunId,
    Set,
    Source,
    Workspace,
    config,
    existing,
    make_pass,
    one_run,
    open_workspace,
    pasted,
)
from .waiting import wait_for

if TYPE_CHECKING:
    from ..jobs.grid.entries import Given
    from ..orchestrator.loop.context import Context
    from ..orchestrator.requests.submit import Prepared
    from ..orchestrator.requests.summary import Estimate, Planned, Summary


def submit(
    source: Source,
    wait: Annotated[
        bool,
        typer.Option(
            "--wait",
            help="Wait until the runs have ended; exit code 4 if any did not complete.",
        ),
    ] = False,
    canary: Annotated[
        bool,
        typer.Option(
            "--canary",
            help="One run per backbone, dataset and head first; the rest once these pass an epoch.",
        ),
    ] = False,
    hold: Annotated[
        bool,
        typer.Option("--hold", help="Hold all runs until `vtjobs release`."),
    ] = False,
    amend: Annotated[
        str | None,
        typer.Option(
            help=(
                "Reason for changing the declared `compare` after runs have started, or the runs "
                "that it compares after they have results."
            )
        ),
    ] = None,
    dry_run: DryRun = False,
    settings: Set = None,
    max_runs: MaxRuns = None,
    backend: BackendName = None,
    no_data_check: NoDataCheck = False,
    as_json: Json = False,
    workspace: Workspace = None,
) -> None:
    """Expand a grid into runs and submit the new ones.

    Submitting the same grid again is safe.
    """
    if dry_run:
        plan(source, settings, max_runs, backend, no_data_check, as_json, workspace)
        return
    from ..orchestrator.requests.declarations import late
    from ..orchestrator.requests.submit import submit as store
    from .printing import terminal

    # First, so that a grid with a mistake in it makes neither workspace nor ledger.
    grid = prepared(workspace, source, settings, max_runs, backend)
    if not no_data_check:
        check_data(workspace, grid)
    with _told_when_interrupted(workspace, grid.frozen.grid_id):
        context = open_workspace(workspace, create=True)
        make_pass(context, start=False)
        if found := late(context, grid.frozen):
            terminal.say(f"warning: {found}")
        document = store(context, grid, hold=hold, canary=canary, amend=amend)
        make_pass(context)
    if as_json:
        terminal.emit_json(document)
    terminal.say(submitted(document))
    if left := leftover(document):
        terminal.say(left)
    if canary:
        terminal.say(
            "only the canary runs start now. The first pass after they have passed starts the rest:"
            " on this machine the queue makes passes, elsewhere `vtjobs supervise` does"
        )
    if wait:
        wait_for(context, [document.grid_id])
    else:
        _say_what_follows(context, grid, document)


def _say_what_follows(context: "Context", grid: "Prepared", document: "Summary") -> None:
    """Say how the runs go on, where to watch them and how to stop them; or that none does."""
    from ..jobs.workspace.reach import read_reach
    from ..orchestrator.views.status import held_of
    from .printing.terminal import say

    settings = grid.frozen.settings
    backend = context.backend(settings.backend)
    name = pasted(context, [settings.grid_id])
    again = to_retry(context, document)
    waiting = document.new + document.pending + document.queued
    if not waiting + document.running:
        say(f"Nothing starts. {again}" if again else f"Nothing is left to do: vtjobs report {name}")
        return
    goes_on = backend.goes_on
    seen = read_reach(context.workspace, settings.backend)
    if seen is not None and not seen.answers:
        install = pasted(context, ["supervise", "--install"])
        goes_on = (
            f"Jobs cannot retry or hand on: a node did not reach {settings.backend} ({seen})."
            f" Passes do it. From cron: vtjobs {install}"
        )
    held = held_of(context, settings.grid_id)
    if held < waiting + document.running:
        say(goes_on)
    if held:
        say(f"{plural(held, 'run')} on hold. Start: vtjobs release {name}")
    if again:
        say(again)
    say(f"Watch: vtjobs status {name}. Stop: vtjobs cancel {name}")


def to_retry(context: "Context", document: "Summary") -> str:
    """Return how runs of a submission that did not complete before are tried again, or ""."""
    lost = document.failed + document.cancelled + document.blocked
    name = pasted(context, [document.grid_id])
    return f"{plural(lost, 'run')} did not complete. Try again: vtjobs retry {name}" if lost else ""


@contextmanager
def _told_when_interrupted(workspace: str | None, grid_id: str) -> Iterator[None]:
    """Say on Ctrl-C what was submitted.

    Whether the workspace holds the whole grid, and how to go on.
    """
    try:
        yield
    except KeyboardInterrupt:
        from ..jobs.workspace.stored_grid import read_grid
        from .printing.terminal import say

        if read_grid(config(workspace).workspace, grid_id) is None:
            say(f"grid {grid_id}: nothing was submitted")
        else:
            say(f"grid {grid_id}: stored. Run the same command again to submit the rest")
        raise


def submitted(document: "Summary") -> str:
    """Return what was, or would be, submitted, in a line."""
    parts = [f"{document.new} new"]
    for state in (
        "completed",
        "running",
        "queued",
        "pending",
        "failed",
        "diverged",
        "cancelled",
        "blocked",
    ):
        if number := getattr(document, state):
            parts.append(f"{number} already {state}")
    return f"grid {document.grid_id}: {plural(document.runs, 'run')}, {', '.join(parts)}"


def leftover(document: "Summary", *, planned: bool = False) -> str:
    """Return what is left of the submission before and how to cancel it, or ""."""
    left = document.leftover
    if left is None:
        return ""
    runs, wait = ("run", "waits or runs") if left.runs == 1 else ("runs", "wait or run")
    what = f"{left.runs} {runs} of {left.grid_id} that this grid does not have still {wait}"
    how = "Cancel with" if not planned else "Once this grid is submitted, cancel with"
    return f"{what}. {how}: {left.cancel}"


def plan(
    source: Source,
    settings: Set = None,
    max_runs: MaxRuns = None,
    backend: BackendName = None,
    no_data_check: NoDataCheck = False,
    as_json: Json = False,
    workspace: Workspace = None,
) -> None:
    """Show what submitting a grid would do, without writing anything.

    Prints the number of new, existing and excluded runs, the allocations and the estimated hours.
    """
    from ..orchestrator.requests.declarations import warning
    from ..orchestrator.requests.summary import summary
    from .printing import terminal

    grid = prepared(workspace, source, settings, max_runs, backend)
    if not no_data_check:
        check_data(workspace, grid)
    context = existing(workspace)
    document = summary(context, grid)
    if context is not None and (found := warning(context, grid.frozen)):
        terminal.say(f"warning: {found}")
    if as_json:
        terminal.emit_json(document)
        return
    terminal.write(submitted(document))
    if left := leftover(document, planned=True):
        terminal.write(left)
    for rule, number in document.excluded.items():
        terminal.write(f"excluded by {rule}: {number}")
    for allocation in document.allocations:
        where = f"{plural(allocation.count, 'allocation')} on {allocation.backend}"
        if allocation.places > allocation.count:
            where += f" for {plural(allocation.places, 'job')}"
        lanes = f"{plural(allocation.at_a_time, 'run')} at a time"
        if allocation.nodes > 1:
            lanes += f" on {allocation.nodes} nodes"
        terminal.write(f"{where}: {lanes}, {_each(allocation)} each")
        for line in _asked(allocation):
            terminal.write(line)
    terminal.write(_hours(document.estimate))


def _each(allocation: "Planned") -> str:
    if allocation.per_gpu > 1:
        return f"1/{allocation.per_gpu} GPU"
    if allocation.gpus:
        return plural(allocation.gpus, "GPU")
    return plural(allocation.ranks, "CPU rank")


def _asked(allocation: "Planned") -> Iterator[str]:
    """Yield what one job asks for, and when the scheduler expects the first to start."""
    if allocation.asks:
        yield f"each job asks for: {shlex.join(allocation.asks)}"
    if allocation.starts_at is not None:
        seconds = allocation.starts_at - time.time()
        when = f"in {format_duration(seconds)}" if seconds >= 1 else "at once"
        yield f"{allocation.backend} expects the first job to start {when}"


def _hours(estimate: "Estimate") -> str:
    """Return what the runs will take, and of how many nothing is known."""
    from .printing.terminal import eta_text

    unknown = plural(estimate.runs_without_history, "run")
    if estimate.run_hours is None or estimate.gpu_hours is None:
        return f"estimate: unknown ({unknown} without history)"
    least = "at least " if estimate.runs_without_history else ""
    text = f"estimate: {least}{estimate.run_hours:.2f} run-hours"
    text += f", {least}{estimate.gpu_hours:.2f} GPU-hours"
    if estimate.eta is not None and estimate.eta.slots:
        text += f", {eta_text(estimate.eta)} with {plural(estimate.eta.slots, 'run')} at a time"
    if estimate.runs_without_history:
        text += f"; {unknown} without history not counted"
    return text


def check_data(workspace: str | None, grid: "Prepared") -> None:
    """Refuse a grid whose data is missing; say what cannot be seen from here."""
    from ..orchestrator.requests.data_check import require_data
    from .printing.terminal import say

    if grid.data.is_complete:
        return
    if (warning := require_data(existing(workspace), grid)) is not None:
        say(f"warning: {warning}")


def prepared(
    workspace: str | None,
    source: str,
    settings: list[str] | None,
    max_runs: int | None,
    backend: str | None,
    choose: Any = None,
) -> Any:
    """Read, check and expand a grid, and tell its warnings; `choose` may leave runs out."""
    import time

    from ..orchestrator.requests.submit import prepare
    from .printing.terminal import say

    settings_found = config(workspace)
    limit = max_runs or settings_found.get("max_runs")
    if backend is not None:
        require_known(backend, "--backend: ")
    changes = _changes(settings)
    grid = prepare(
        settings_found,
        source,
        changes=changes,
        max_runs=limit,
        at=time.time(),
        backend=backend,
        choose=choose,
    )
    for warning in grid.warnings:
        say(f"warning: {warning}")
    return grid


def _changes(settings: list[str] | None) -> "Given":
    from ..jobs.strict_yaml import parse

    found: Given = {}
    for setting in settings or []:
        path, equals, value = setting.partition("=")
        if not equals or not path:
            raise BadInput(f"--set {setting}: write PATH=VALUE, such as train.epochs=10")
        found[path] = parse(f"v: {value}".encode(), file=f"--set {path}").data["v"]
    return found


def run(run: RunId, workspace: Workspace = None) -> None:
    """Execute one run in the foreground on this machine.

    Prints the run's output on this terminal. The run must be pending.
    """
    from ..orchestrator.requests.foreground import run_here

    context = open_workspace(workspace)
    make_pass(context, start=False)
    state = run_here(context, one_run(context, run))
    make_pass(context, start=False)
    if state != "completed":
        raise VtjobsError(f"the run ended in state {state}")
