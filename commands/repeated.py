"""`--watch`: what a command shows, again and again until Ctrl-C.

Watching reads only: it starts, cancels and submits nothing, and however many watch, a scheduler is
asked as seldom as by one.
"""

import contextlib
import functools
import inspect
import sys
import time
from collections.abc import Callable
from typing import Annotated, Any

import typer

from ..jobs.errors import BadInput, VtjobsError

EVERY_S = 5
# Longer numbers are the beginning of a run's id.
_MOST_DIGITS = 4

Watch = Annotated[
    int | None,
    typer.Option(
        "--watch",
        "-w",
        min=1,
        metavar="[SECONDS]",
        help=f"Repeat every so many seconds, {EVERY_S} if none are given, until Ctrl-C.",
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
        for name, word in (("as_json", "--json"), ("quiet", "--quiet")):
            if given.get(name):
                raise BadInput(f"--watch and {word} cannot be combined")
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
        VtjobsError: it could not be shown the first time. Later errors stand below what was shown
            last.
    """
    from .printing.screen import leave, screen

    text = _captured(show)
    with screen(every_s) as put:
        # Ctrl-C is how one stops to watch.
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                put(text)
                time.sleep(every_s)
                text = _again(show, text)
    leave(text)


def _again(show: Callable[[], None], last: str) -> str:
    try:
        return _captured(show)
    except VtjobsError as error:
        kept, _, _ = last.partition("\nerror: ")
        return f"{kept}\nerror: {error}\n"


def _captured(show: Callable[[], None]) -> str:
    """Return what a command prints, its remarks last."""
    from .options import forget_told, unreachable
    from .printing.screen import Captured

    data, remarks = Captured(sys.stdout), Captured(sys.stderr)
    forget_told()
    with contextlib.redirect_stdout(data), contextlib.redirect_stderr(remarks):
        show()
    lines = "".join(f"error: {line}\n" for line in unreachable)
    unreachable.clear()
    return data.getvalue() + remarks.getvalue() + lines
