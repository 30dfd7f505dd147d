"""`--watch`: what a command shows, again and again until Ctrl-C.

Watching reads only: it starts, cancels and submits nothing, and however many watch, a scheduler is
asked as seldom as by one.
"""

import contextlib
import functools
import inspect
import io
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Annotated, Any, TextIO

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
    text = _captured(show)
    with _screen(every_s) as put:
        # Ctrl-C is how one stops to watch.
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                put(text)
                time.sleep(every_s)
                text = _again(show, text)
    if _fills_screen():
        sys.stdout.write(text)


def _again(show: Callable[[], None], last: str) -> str:
    try:
        return _captured(show)
    except VtjobsError as error:
        kept, _, _ = last.partition("\nerror: ")
        return f"{kept}\nerror: {error}\n"


def _captured(show: Callable[[], None]) -> str:
    """Return what a command prints, its remarks last."""
    from .options import forget_told, unreachable

    data, remarks = _Captured(sys.stdout), _Captured(sys.stderr)
    forget_told()
    with contextlib.redirect_stdout(data), contextlib.redirect_stderr(remarks):
        show()
    lines = "".join(f"error: {line}\n" for line in unreachable)
    unreachable.clear()
    return data.getvalue() + remarks.getvalue() + lines


class _Captured(io.StringIO):
    """A text that is printed as the stream would be that it is for: its encoding, its colours."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._stream.encoding or "ascii"

    def isatty(self) -> bool:
        return self._stream.isatty()


def _fills_screen() -> bool:
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown", "")


@contextlib.contextmanager
def _screen(every_s: int) -> Iterator[Callable[[str], None]]:
    """Give a function that shows a text in place of the one before."""
    if not _fills_screen():
        yield _Changes().put
        return
    from rich.console import Console, Group
    from rich.live import Live
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True)
    with Live(console=console, screen=True, auto_refresh=False) as live:

        def put(text: str) -> None:
            at = time.strftime("%H:%M:%S")
            lines, room = text.count("\n"), console.height - 2
            more = f"; first {room} of {lines} lines" if lines > room else ""
            heading = Text(f"{at}, every {every_s} s, Ctrl-C ends{more}", style="dim")
            body = Text.from_ansi(text)
            body.no_wrap, body.overflow = True, "crop"
            live.update(Group(heading, body), refresh=True)

        yield put


class _Changes:
    """Prints a text whenever it differs from the one before."""

    def __init__(self) -> None:
        self._last = ""

    def put(self, text: str) -> None:
        if text == self._last:
            return
        separator = f"\n{time.strftime('%H:%M:%S')}\n" if self._last else ""
        sys.stdout.write(separator + text)
        sys.stdout.flush()
        self._last = text
