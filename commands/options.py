"""What the commands share.

Their options, and the way from a command line to workspace, ledger and runs.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..jobs.config.backends import BACKENDS, names
from ..jobs.errors import BadInput, Refused, suggest
from ..jobs.units import format_duration, plural
from .completion import complete_grid, complete_run, complete_runs, complete_selection

if TYPE_CHECKING:
    from ..db.scheduler_notes import Away
    from ..jobs.config.config import Config
    from ..jobs.run.selector import Selection
    from ..orchestrator.loop.context import Context
    from ..orchestrator.loop.tick import Report

# What could not be asked by this command; it prints what is known, and its exit code says so at the
# end.
unreachable: list[str] = []
# Warnings and notes of this command so far: a command may look more than once.
_told: set[str] = set()

# Workspaces that stay open while a command is repeated; None: none is.
_open: "dict[str, Context] | None" = None

# Above so many runs, a change asks first.
ASK_ABOVE = 10

Workspace = Annotated[
    str | None,
    typer.Option(
        "--workspace",
        "-W",
        help="Workspace folder [default: as configured, else ./runs].",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Output as one JSON value.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Ids only, one per line.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="No confirmation prompt.")]
DryRun = Annotated[bool, typer.Option("--dry-run", "-n", help="Preview only; no action is taken.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", help="Grid setting to override, e.g. train.epochs=10 (repeatable)."),
]
BackendName = Annotated[
    str | None,
    typer.Option(
        "--backend",
        help=f"Backend: {', '.join(BACKENDS)} [default: the grid's, else as configured].",
        autocompletion=names,
    ),
]
NoDataCheck = Annotated[
    bool,
    typer.Option(
        "--no-data-check",
        help="No check that the datasets are there, for nodes with a data folder of their own.",
    ),
]
MaxRuns = Annotated[
    int | None,
    typer.Option(
        "--max-runs",
        min=1,
        help="Maximum number of runs in the grid [default: as configured, else 100000].",
    ),
]


RunId = Annotated[
    str,
    typer.Argument(help="Run id, or the beginning of one.", autocompletion=complete_run),
]
RunSelector = Annotated[
    list[str] | None,
    typer.Argument(
        help="Runs: ids, or the beginnings of some; also grid names and conditions.",
        autocompletion=complete_runs,
    ),
]
Source = Annotated[
    str,
    typer.Argument(help="Grid file, or name of a built-in grid.", autocompletion=complete_grid),
]
Selector = Annotated[
    list[str] | None,
    typer.Argument(
        help="Runs to select: all, run ids, grid names, or conditions such as backbone=swin_t.",
        autocompletion=complete_selection,
    ),
]


def config(workspace: str | None, **overrides: Any) -> "Config":
    from ..jobs.config.config import load_config

    return load_config({"workspace": workspace, **overrides})


def open_workspace(workspace: str | None, *, create: bool = False) -> "Context":
    """Open a workspace to change something in it."""
    return _opened(config(workspace), create=create)


def existing(workspace: str | None) -> "Context | None":
    """Open a workspace to read, or return None where there is none yet."""
    there = config(workspace).workspace.identity.exists()
    return look_into(workspace) if there else None


def _opened(settings: "Config", *, create: bool = False, to_read: bool = False) -> "Context":
    from ..jobs.config.which_workspace import not_found, remember
    from ..jobs.workspace.paths import NoWorkspace
    from ..orchestrator.loop.context import open_context

    try:
        context = open_context(settings, create=create, to_read=to_read)
    except NoWorkspace:
        raise not_found(settings) from None
    if create:
        remember(settings)
    return context


def look_into(workspace: str | None) -> "Context":
    """Open a workspace to read, with the ledger brought up to date.

    Nothing is started, cancelled or submitted. A workspace of somebody else will do.
    """
    key = workspace or ""
    if _open is not None and key in _open:
        context = _open[key]
    else:
        context = _opened(config(workspace), to_read=True)
        if _open is not None:
            _open[key] = context
    look_again(context)
    return context


@contextmanager
def opened_once() -> Iterator[None]:
    """Within this, a workspace that is looked into again and again is opened once."""
    global _open
    _open = {}
    try:
        yield
    finally:
        for context in _open.values():
            context.ledger.engine.dispose()
        _open = None


def look_again(context: "Context") -> None:
    """Bring the ledger up to date once more, as `look_into` does."""
    from ..orchestrator.loop.tick import look

    say_report(context, look(context))


def forget_told() -> None:
    """Say warnings and notes again that were said."""
    _told.clear()


def make_pass(context: "Context", *, start: bool = True) -> "Report":
    """Bring the ledger up to date, repair, and start what is due; say what could not be asked."""
    from ..orchestrator.loop.tick import tick

    report = tick(context, start=start)
    say_report(context, report)
    return report


def say_report(context: "Context", report: "Report") -> None:
    """Say what a pass could not ask, and what keeps runs from starting: each thing once."""
    from .printing.terminal import say

    unreachable.clear()
    for name, fact in report.unreachable.items():
        since = datetime.fromtimestamp(fact.since).strftime("%Y-%m-%d %H:%M:%S")
        unreachable.append(
            f"{name} unreachable since {since} ({fact.reason}); showing the last known states"
        )
    for name, fact in report.slow.items():
        # Once for each silence: its age grows from look to look.
        if (silence := f"{name} {fact.since}") not in _told:
            _told.add(silence)
            say(f"note: {name} did not answer in time ({fact.reason}); {_shown(context, fact)}")
    for problem in report.problems:
        if problem not in _told:
            _told.add(problem)
            say(f"warning: {problem}")


def _shown(context: "Context", fact: "Away") -> str:
    """Return of when the states are that are shown instead of an answer."""
    if fact.answered is None:
        return "showing the last known states"
    age = format_duration(max(0.0, context.clock() - fact.answered))
    return f"showing the states of its last answer, {age} ago"


def pasted(context: "Context", words: list[str]) -> str:
    """Return what selects the same runs in the same workspace, for a command to be pasted."""
    import shlex

    return shlex.join(words) + context.where


def selection(words: list[str] | None, *, default_all: bool = False) -> Any:
    from ..jobs.run.selector import parse_selection

    return parse_selection(words or [], default_all=default_all)


def say_imported(context: "Context", chosen: "Selection") -> None:
    """Say how many of the selected runs were trained elsewhere, if any."""
    from ..analysis.output.notes import imported_text
    from ..db import imported
    from ..db.engine import reading
    from .printing.terminal import say

    with reading(context.ledger.engine) as connection:
        runs = imported.count(connection, chosen)
    if runs:
        say(imported_text(runs, "run"))


def require_style(style: str, known: Sequence[str]) -> None:
    """Refuse an output format that a command does not have.

    Raises:
        BadInput: with those that it has.
    """
    if style not in known:
        raise BadInput(f"--format {style}: unknown. {suggest(style, known)}")


def select_ids(context: "Context", words: list[str] | None) -> list[str]:
    from ..db.engine import reading
    from ..db.selected import select_ids

    with reading(context.ledger.engine) as connection:
        return select_ids(connection, selection(words))


def names_one_grid(context: "Context", chosen: "Selection") -> bool:
    """Whether a selection is one grid by its name, or a part of it."""
    from ..db.engine import reading
    from ..db.selected import named_grids

    with reading(context.ledger.engine) as connection:
        return len(named_grids(connection, chosen)) == 1


def one_or_many(documents: list[Any], words: list[str] | None) -> Any:
    """Return the document of a run that was asked for by its id as it is, and others as a list.

    It depends on what was asked, not on how many runs there happen to be.
    """
    is_one = words is not None and len(words) == 1 and documents[0].run_id.startswith(words[0])
    return documents[0] if is_one else documents


def one_run(context: "Context", word: str) -> str:
    found = select_ids(context, [word])
    if len(found) > 1:
        raise BadInput(
            f"{word!r} is ambiguous ({len(found)} runs match). Type more characters of the run id"
        )
    return found[0]


def confirm(count: int, what: str, *, yes: bool, replaced: int = 0) -> None:
    """Ask before a change of many runs, or of any run whose result is replaced.

    Raises:
        Refused: the user says no, or there is no terminal to ask on.
    """
    if yes or (count <= ASK_ABOVE and not replaced):
        return
    change = f"{what} {plural(count, 'run')}"
    if replaced:
        change += f" and replace {plural(replaced, 'result')}"
    ask(change, yes=yes)


def ask(change: str, *, yes: bool) -> None:
    """Ask before a change that cannot be undone.

    Args:
        change: what it does, such as "cancel 12 runs".
        yes: whether it was confirmed on the command line.

    Raises:
        Refused: the user says no, or there is no terminal to ask on.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise Refused(f"this would {change}. Repeat with --yes to confirm")
    if not typer.confirm(f"{change}?", err=True):
        raise Refused("nothing was done")
