"""`--watch`: what a command shows, again and again until Ctrl-C.

Watching reads only: it starts, cancels and submits nothing, and however many watch, a scheduler is
asked as seldom as by one.
"""

import contextlib
import functools
import inspect
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..jobs.errors import BadInput, VtjobsError

if TYPE_CHECKING:
    from .printing.screen import Seen

EVERY_S = 5
# Longer numbers are the beginning of a run's id.
_MOST_DIGITS = 3
# Options that write files, or data for programs.
_NOT_WATCHED = {
    "as_json": "--json",
    "quiet": "--quiet",
    "html": "--html",
    "long": "--long",
    "figure": "--figure",
}

Watch = Annotated[
    int | None,
    typer.Option(
        "--watch",
        "-w",
        min=1,
        metavar="[SECONDS]",
        help=f"Refresh until Ctrl-C; seconds between refreshes [default: {EVERY_S}].",
    ),
]


def watched(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the option `--watch`."""
    signature = inspect.signature(command)

    @functools.wraps(command)
    def once_or_repeated(*, watch: int | None = None, **given: Any) -> None:
        if watch is None:
            command(**given)
            return
        _refuse(given)
        repeat(lambda: command(**given), every_s=watch)

    parameter = inspect.Parameter(
        "watch", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Watch
    )
    parameters = [*signature.parameters.values(), parameter]
    once_or_repeated.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=parameters
    )
    once_or_repeated.__annotations__ = {**command.__annotations__, "watch": Watch}
    return once_or_repeated


def _refuse(given: dict[str, Any]) -> None:
    """Refuse options that make no sense again and again."""
    words = [word for name, word in _NOT_WATCHED.items() if given.get(name)]
    style = given.get("style", "table")
    words += [f"--format {style}"] if style != "table" else []
    if words:
        raise BadInput(f"--watch and {words[0]} cannot be combined. Remove one of them")


def with_seconds(words: list[str]) -> list[str]:
    """Return a command line in which `--watch` has its seconds."""
    found: list[str] = []
    for index, word in enumerate(words):
        found.append(word)
        following = words[index + 1] if index + 1 < len(words) else ""
        is_number = following.isdecimal() and len(following) <= _MOST_DIGITS
        if word in ("-w", "--watch") and not is_number:
            found.append(str(EVERY_S))
    return found


def repeat(show: Callable[[], None], *, every_s: int) -> None:
    """Show something every few seconds until Ctrl-C.

    On a terminal it fills the screen, and its last state stays there at the end. Elsewhere it is
    printed whenever it has changed.

    Raises:
        VtjobsError: it could not be shown the first time. Later errors stand above what was shown
            last.
    """
    from .options import opened_once
    from .printing.screen import leave, screen

    with opened_once():
        seen = _look(show)
        try:
            with screen(every_s) as put:
                # Ctrl-C is how one stops to watch.
                with contextlib.suppress(KeyboardInterrupt):
                    while True:
                        put(seen)
                        time.sleep(every_s)
                        seen = _look_again(show, seen)
        finally:
            leave(seen)


def _look_again(show: Callable[[], None], last: "Seen") -> "Seen":
    """Look once more; where that fails, what was seen last stays, below the error."""
    from .printing.screen import remarks_of

    try:
        return _look(show)
    except BrokenPipeError:
        raise
    except (VtjobsError, OSError) as error:
        # A file system or a database that is away for a while comes back.
        text = str(error)
        return last.with_remarks(remarks_of(lambda: _say_error(text)))


def _look(show: Callable[[], None]) -> "Seen":
    """Return what a command prints, and what it remarks."""
    from .options import forget_told, unreachable
    from .printing.screen import captured

    forget_told()

    def show_all() -> None:
        show()
        for line in unreachable:
            _say_error(line)

    try:
        return captured(show_all)
    finally:
        unreachable.clear()


def _say_error(text: str) -> None:
    from .printing.terminal import say

    say(f"error: {text}")
