"""The terminal face of vtjobs.

Puts the commands together, and turns every error into a message and an exit code.
"""

import errno
import gc
import io
import keyword
import os
import signal
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Annotated

import typer

from .commands.groups import Command, Commands
from .jobs.errors import BadInput, SchedulerUnreachable, VtjobsError

# So many objects are made before the garbage collector looks for cycles. A short command makes
# about as many while it imports, and none of them is garbage: looking takes a tenth of its time.
OBJECTS = 100_000
# The exit code after Ctrl-C; newer parsers return it themselves.
INTERRUPTED = 130

# Command -> the module of `commands` that has its function. They are named, not imported: a command
# pays for its own module alone.
COMMANDS = {
    **dict.fromkeys(("submit", "plan", "run"), "submit"),
    **dict.fromkeys(("cancel", "retry", "rerun", "hold", "release", "supervise"), "control"),
    **dict.fromkeys(("status", "runs", "show", "logs"), "watch"),
    "wait": "waiting",
    "top": "live",
    "ui": "pages",
    **dict.fromkeys(("failures", "why", "diff"), "watch"),
    "curve": "curves",
    **dict.fromkeys(("eff", "cost", "usage", "metrics"), "costs"),
    **dict.fromkeys(("report", "compare", "variance"), "results"),
    "disagreement": "disagreement",
    "mcnemar": "weights",
    "scatter": "scatter",
    "against": "against",
    "evaluate": "weights",
    "visualize": "visualize",
    "export": "exporting",
    "import": "importing",
    **dict.fromkeys(("power", "topup"), "seeds"),
    **dict.fromkeys(("catalog", "measure"), "catalog"),
    "notify": "notify",
    **dict.fromkeys(("note", "tag", "archive"), "labels"),
    **dict.fromkeys(("delete", "gc", "doctor", "schema", "init"), "housekeeping"),
}
# Commands of two words: the first -> what they are for, their module, and the second words.
SUBCOMMANDS = {
    "data": (
        "Prepare and verify datasets and pretrained weights.",
        "housekeeping",
        ("prepare", "verify", "list"),
    ),
    "ledger": (
        "Upgrade or rebuild the database that indexes a workspace.",
        "housekeeping",
        ("upgrade", "rebuild"),
    ),
    "papers": ("Show and check published results.", "papers", ("show", "audit")),
    "config": ("Show settings and their origin.", "housekeeping", ("show",)),
}


def application(words: Sequence[str] = ()) -> typer.Typer:
    """Return the command line, with the one command that these words begin with.

    To import and to make all of them takes a tenth of a short command's time. All are there where
    no command is named, for completion, and for `help`, which shows any.
    """
    app = typer.Typer(
        name="vtjobs",
        cls=Commands,
        help="Run grids of vision experiments and get a results table with honest error bars.",
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(every_command)
    name = words[0] if words else ""
    is_one = name in {*COMMANDS, *SUBCOMMANDS} and "_VTJOBS_COMPLETE" not in os.environ
    for command in COMMANDS:
        if command == name or not is_one:
            app.command(command, cls=Command)(_function(COMMANDS[command], command))
    if not is_one:
        app.command("help", cls=Command)(show_help)
    for first, (about, module, seconds) in SUBCOMMANDS.items():
        if first == name or not is_one:
            group = typer.Typer(help=about, no_args_is_help=True, rich_markup_mode=None)
            for second in seconds:
                group.command(second, cls=Command)(_function(module, f"{first}_{second}"))
            app.add_typer(group, name=first)
    return app


def _function(module: str, name: str) -> Callable[..., None]:
    # `import` is a word of Python's.
    name = f"{name}_" if keyword.iskeyword(name) else name
    found: Callable[..., None] = getattr(import_module(f".commands.{module}", __package__), name)
    return found


def _write(text: str, *, end: str = "\n", to_stderr: bool = False) -> None:
    from .commands.printing.terminal import write

    write(text, end=end, to_stderr=to_stderr)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        _write(f"vtjobs {version('vtjobs')}")
        raise typer.Exit


def every_command(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Version number."),
    ] = False,
) -> None:
    """Run grids of vision experiments and get a results table with honest error bars."""


def show_help(
    ctx: typer.Context,
    command: Annotated[list[str] | None, typer.Argument(help="Command to explain.")] = None,
) -> None:
    """Show the help of vtjobs or of one command."""
    assert ctx.parent is not None
    found = ctx.parent.command
    for name in command or ():
        known = getattr(found, "commands", {})
        if name not in known:
            raise BadInput(f"no command {name!r}. See: vtjobs --help")
        found = known[name]
    words = ["vtjobs", *(command or ())]
    _write(found.get_help(type(ctx)(found, info_name=" ".join(words))))


def main() -> None:
    """Run the command line; every error is one message and an exit code."""
    sys.unraisablehook = _not_lost
    gc.set_threshold(OBJECTS)
    try:
        code = application(sys.argv[1:])(standalone_mode=False) or _unreachable()
        sys.stdout.flush()
    except VtjobsError as error:
        code = _tell(error)
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except BrokenPipeError:
        code = _reader_left()
    except OSError as error:
        # A full disk, a folder that is not ours: nothing of vtjobs's own doing.
        _write(f"error: {error}", to_stderr=True)
        # No program makes a name too long for a file system; a person types it.
        code = BadInput.exit_code if error.errno == errno.ENAMETOOLONG else 1
    except SystemExit as error:
        # The parser answers a closed pipe with an exit of its own.
        if not isinstance(error.__context__, BrokenPipeError):
            raise
        code = _reader_left()
    except Exception as error:
        if not hasattr(error, "show") or not hasattr(error, "exit_code"):
            raise
        shown = io.StringIO()
        error.show(shown)
        _write(shown.getvalue(), end="", to_stderr=True)
        code = error.exit_code
    if code == INTERRUPTED:
        _write("interrupted", to_stderr=True)
    # At its end the interpreter looks for cycles once more. `db` closes its connections itself.
    gc.freeze()
    sys.exit(code if isinstance(code, int) else 0)


def _not_lost(unraisable: "sys.UnraisableHookArgs") -> None:
    """Deliver a Ctrl-C again that fell into a clean-up of the interpreter, where Python drops
    exceptions.
    """
    if not issubclass(unraisable.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(unraisable)
        return
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.01)


def _unreachable() -> int:
    """Say what could not be asked, and return the exit code for it."""
    from .commands.options import unreachable

    for line in unreachable:
        _write(f"error: {line}", to_stderr=True)
    return SchedulerUnreachable.exit_code if unreachable else 0


def _reader_left() -> int:
    """Drop what nobody reads any more; that is no failure."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return 0


def _tell(error: VtjobsError) -> int:
    if "--json" in sys.argv:
        from .commands.printing.terminal import emit_json

        try:
            emit_json({"error": {"message": str(error), "exit_code": error.exit_code}})
            sys.stdout.flush()
        except BrokenPipeError:
            # The error itself stands on stderr, and in the exit code.
            _reader_left()
    for line in str(error).splitlines() or [type(error).__doc__ or "failed"]:
        _write(f"error: {line}", to_stderr=True)
    return error.exit_code


if __name__ == "__main__":
    main()
