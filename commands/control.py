"""Cancel, retry, hold and release runs."""

from typing import Annotated, Any

import typer

from ..jobs.errors import NothingMatched
from ..jobs.units import plural
from .options import (
    DryRun,
    Json,
    Selector,
    Workspace,
    Yes,
    confirm,
    make_pass,
    open_workspace,
    select_ids,
)


def retry(
    selector: Selector = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: Json = False,
    workspace: Workspace = None,
) -> None:
    """Retry failed or cancelled runs from their last checkpoint."""
    from ..orchestrator.requests import actions

    def action(context: Any, chosen: list[str]) -> Any:
        return actions.retry(context, chosen, clean=False)

    _act(selector, "retry", action, yes=yes, dry_run=dry_run, as_json=as_json, workspace=workspace)


def rerun(
    selector: Selector = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: Json = False,
    workspace: Workspace = None,
) -> None:
    """Start runs again from scratch, as new attempts.

    Earlier attempts are kept.
    """
    from ..orchestrator.requests import actions

    def action(context: Any, chosen: list[str]) -> Any:
        return actions.retry(context, chosen, clean=True)

    _act(selector, "rerun", action, yes=yes, dry_run=dry_run, as_json=as_json, workspace=workspace)


def cancel(
    selector: Selector = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: Json = False,
    workspace: Workspace = None,
) -> None:
    """Stop runs and prevent them from starting."""
    from ..orchestrator.requests import actions

    _act(
        selector,
        "cancel",
        actions.cancel,
        yes=yes,
        dry_run=dry_run,
        as_json=as_json,
        workspace=workspace,
    )


def hold(
    selector: Selector = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: Json = False,
    workspace: Workspace = None,
) -> None:
    """Prevent runs from starting until they are released.

    Runs that have already started continue.
    """
    from ..orchestrator.requests import actions

    _act(
        selector,
        "hold",
        actions.hold,
        yes=yes,
        dry_run=dry_run,
        as_json=as_json,
        workspace=workspace,
    )


def release(
    selector: Selector = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: Json = False,
    workspace: Workspace = None,
) -> None:
    """Release held runs so that they can start.

    This also releases runs that wait for a canary or that a circuit breaker stopped.
    """
    from ..orchestrator.requests import actions

    _act(
        selector,
        "release",
        actions.release,
        yes=yes,
        dry_run=dry_run,
        as_json=as_json,
        workspace=workspace,
    )


def supervise(
    once: Annotated[
        bool, typer.Option("--once", help="One pass, then exit; for cron or scrontab.")
    ] = False,
    every: Annotated[float, typer.Option(min=1, help="Seconds between passes.")] = 30.0,
    workspace: Workspace = None,
) -> None:
    """Keep a workspace running until Ctrl-C or SIGTERM.

    Each pass reads the journals, asks the scheduler for job states and submits the runs that are
    due.
    """
    import signal
    import threading

    from ..orchestrator.loop.supervise import alone, describe
    from ..orchestrator.loop.supervise import supervise as keep_going
    from .printing.terminal import say

    context = open_workspace(workspace)
    context.be_patient()
    if once:
        if text := describe(make_pass(context)):
            say(text)
        return
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    with alone(context):
        keep_going(context, stop, say, every_s=every)


def _act(
    words: list[str] | None,
    what: str,
    action: Any,
    *,
    yes: bool,
    dry_run: bool,
    as_json: bool,
    workspace: str | None,
) -> None:
    from .printing import terminal

    context = open_workspace(workspace)
    make_pass(context, start=False)
    chosen = select_ids(context, words)
    if dry_run:
        terminal.write("\n".join(chosen))
        return
    confirm(len(chosen), what, yes=yes)
    done = action(context, chosen)
    if what not in ("cancel", "hold"):
        make_pass(context)
    if as_json:
        terminal.emit_json(done)
    for run_id, reason in done.passed_over.items():
        terminal.say(f"{run_id[:8]} {reason}")
    terminal.say(f"{what}: {plural(len(done.run_ids), 'run')}")
    if not done.run_ids:
        raise NothingMatched("nothing was done")
