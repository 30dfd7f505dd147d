"""Texts that a command printed, captured and shown on a screen in place of each other.

They have passed through `terminal` before they come here.
"""

import contextlib
import io
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import TextIO


class Captured(io.StringIO):
    """A text that is printed as the stream would be that it is for: its encoding, its colours."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._stream.encoding or "ascii"

    def isatty(self) -> bool:
        return self._stream.isatty()


def fills_screen() -> bool:
    """Whether stdout is a terminal whose screen can be filled."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown", "")


@contextlib.contextmanager
def screen(every_s: int) -> Iterator[Callable[[str], None]]:
    """Give a function that shows a captured text in place of the one before."""
    if not fills_screen():
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


def leave(text: str) -> None:
    """Leave a captured text on a terminal whose screen was filled."""
    if fills_screen():
        sys.stdout.write(text)
