"""Cancel, retry, hold and release runs."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

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
    pasted,
    select_ids,
)

if TYPE_CHECKING:
    from ..orchestrator.loop.context import Context
    from ..orchestrator.requests.actions import Done

    Action = Callable[[Context, Sequence[str]], Done]

# So many runs with the same reason are named one by one.
MOST_NAMED = 3


def retry(
    selector: Selector = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: Json = False,
    workspace: Workspace = None,
) -> None:
    """Retry failed or cancelled runs from their last checkpoint."""
    _try_again(selector, False, yes, dry_run, as_json, workspace)


def rerun(
    selector: Selector = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: Json = False,
    workspace: Workspace = None,
) -> None:
    """Start runs again from scratch, as new attempts.

    Earlier attempts are kept. The result of a completed run leaves the reports until the new
    attempt has completed, and is replaced by the new one's.
    """
    _try_again(selector, True, yes, dry_run, as_json, workspace)


def _try_again(
    words: list[str] | None,
    clean: bool,
    yes: bool,
    dry_run: bool,
    as_json: bool,
    workspace: str | None,
) -> None:
    from ..orchestrator.requests import actions

    _act(
        words,
        "rerun" if clean else "retry",
        partial(actions.retry, clean=clean),
        partial(actions.retryable, clean=clean),
        yes=yes,
        dry_run=dry_run,
        as_json=as_json,
        workspace=workspace,
    )


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
        actions.cancellable,
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

    Runs that have already started continue. A completed run is held for the case that it is rerun.
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
    install: Annotated[
        bool, typer.Option("--install", help="Make passes from cron: write a line into its table.")
    ] = False,
    remove: Annotated[bool, typer.Option("--remove", help="Take that line out again.")] = False,
    status: Annotated[bool, typer.Option("--status", help="Say whether it is there.")] = False,
    table: Annotated[
        str | None,
        typer.Option("--with", help="crontab or scrontab [default: the first that is here]."),
    ] = None,
    workspace: Workspace = None,
) -> None:
    """Keep a workspace running until Ctrl-C or SIGTERM.

    Each pass reads the journals, asks the scheduler for job states and submits the runs that are
    due. With --install passes are made from cron, every minute or as --every says.
    """
    if install or remove or status:
        _in_cron(workspace, table, install=install, remove=remove, every_s=every)
        return
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


def _in_cron(
    workspace: str | None, asked: str | None, *, install: bool, remove: bool, every_s: float
) -> None:
    from ..orchestrator.housekeeping import cron
    from .printing.terminal import say, write

    # It must be there: a line for a folder that is none would fail every minute.
    settings = open_workspace(workspace).config
    table = cron.choose(asked)
    if install:
        write(cron.install(table, settings, every_s=every_s))
        say(f"written to {table}. Take it out again: vtjobs supervise --remove{settings.where}")
    elif remove:
        say(f"removed from {table}" if cron.remove(table, settings) else f"not in {table}")
    else:
        line = cron.installed(table, settings)
        write(line if line is not None else f"not in {table}")


def _act(
    words: list[str] | None,
    what: str,
    action: "Action",
    preview: "Action | None" = None,
    *,
    yes: bool,
    dry_run: bool,
    as_json: bool,
    workspace: str | None,
) -> None:
    """Ask, act and report.

    Args:
        words: select the runs.
        what: the command's name.
        action: changes runs.
        preview: says which runs the action would change; all if absent.
        yes: whether to skip the question.
        dry_run: whether only to print the runs.
        as_json: whether to print the document.
        workspace: as given on the command line.
    """
    from ..orchestrator.requests import actions
    from .printing import terminal

    context = open_workspace(workspace)
    make_pass(context, start=False)
    chosen = select_ids(context, words)
    over = preview(context, chosen).passed_over if preview is not None else {}
    chosen = [run_id for run_id in chosen if run_id not in over]
    if dry_run:
        _pass_over(over)
        terminal.write("".join(f"{run_id}\n" for run_id in chosen), end="")
        return
    replaced = actions.completed_among(context, chosen) if what == "rerun" else []
    confirm(len(chosen), what, yes=yes, replaced=len(replaced))
    done = action(context, chosen)
    done = actions.Done(run_ids=done.run_ids, passed_over=over | done.passed_over)
    if what not in ("cancel", "hold"):
        make_pass(context)
    if as_json:
        terminal.emit_json(done)
    _pass_over(done.passed_over)
    terminal.say(f"{what}: {plural(len(done.run_ids), 'run')}")
    if replaced:
        named = [run_id[:8] for run_id in replaced] if len(replaced) <= MOST_NAMED else ["RUN"]
        terminal.say(_way_back(pasted(context, named), len(replaced)))
    if not done.run_ids:
        raise NothingMatched("nothing was done")


def _way_back(run: str, count: int) -> str:
    """Return how an old result is brought back; after the new start it cannot be."""
    results = "1 result is" if count == 1 else f"{count} results are"
    return (
        f"{results} out of the reports until the new attempt has completed. As long as it has not "
        f"started, this brings the old result back: vtjobs cancel {run} && vtjobs retry {run}"
    )


def _pass_over(reasons: dict[str, str]) -> None:
    """Print why runs were passed over: each run, or one for many with the same reason."""
    from .printing.terminal import say

    alike: dict[str, list[str]] = {}
    for run_id, reason in reasons.items():
        alike.setdefault(reason, []).append(run_id[:8])
    for reason, ids in alike.items():
        if len(ids) > MOST_NAMED:
            say(f"{len(ids)} runs are passed over, such as {ids[0]}, which {reason}")
        else:
            for short in ids:
                say(f"{short} {reason}")
