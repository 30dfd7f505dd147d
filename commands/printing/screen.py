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

from ...jobs.values import Value, changed


class Seen(Value, frozen=True):
    """What a command printed."""

    text: str
    remarks: str
    """What it said on stderr."""
    at: str
    """The time of day when it was printed."""

    def with_remarks(self, remarks: str) -> "Seen":
        """Return the same text with other remarks."""
        return changed(self, remarks=remarks)


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


def captured(show: Callable[[], None]) -> Seen:
    """Return what is printed, instead of printing it."""
    data, remarks = _Captured(sys.stdout), _Captured(sys.stderr)
    with contextlib.redirect_stdout(data), contextlib.redirect_stderr(remarks):
        show()
    return Seen(data.getvalue(), remarks.getvalue(), time.strftime("%H:%M:%S"))


def remarks_of(show: Callable[[], None]) -> str:
    """Return what is said on stderr, instead of saying it."""
    return captured(show).remarks


def fills_screen() -> bool:
    """Whether stdout is a terminal whose screen can be filled."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown", "")


@contextlib.contextmanager
def screen(every_s: int) -> Iterator[Callable[[Seen], None]]:
    """Give a function that shows something in place of what was shown before."""
    if not fills_screen():
        yield _Changes().put
        return
    from rich.console import Console, Group
    from rich.live import Live
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True)
    with Live(console=console, screen=True, auto_refresh=False) as live:

        def put(seen: Seen) -> None:
            # Remarks come first: what is below the screen's last line is seen by nobody.
            above = seen.remarks.count("\n")
            room, lines = console.height - 1 - above, seen.text.count("\n")
            more = f"; first {room} of {lines} lines" if lines > room else ""
            heading = Text(f"as of {seen.at}, every {every_s} s, Ctrl-C ends{more}", style="dim")
            parts = [heading, Text(seen.remarks.rstrip("\n"), style="yellow"), _body(seen.text)]
            live.update(Group(*(part for part in parts if part.plain)), refresh=True)

        def _body(text: str) -> Text:
            body = Text.from_ansi(text)
            body.no_wrap, body.overflow = True, "crop"
            return body

        yield put


class _Changes:
    """Prints a text whenever it differs from the one before."""

    def __init__(self) -> None:
        self._last: tuple[str, str] | None = None

    def put(self, seen: Seen) -> None:
        now = (seen.text, seen.remarks)
        if now == self._last:
            return
        separator = f"\n{time.strftime('%H:%M:%S')}\n" if self._last else ""
        sys.stdout.write(separator + seen.text)
        sys.stdout.flush()
        sys.stderr.write(seen.remarks)
        self._last = now


def leave(seen: Seen) -> None:
    """Leave on a terminal what its screen was filled with."""
    if fills_screen():
        sys.stdout.write(seen.text)
        sys.stderr.write(seen.remarks)
