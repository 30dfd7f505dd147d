"""How documents look on a terminal: tables, progress, confirmations.

Data on stdout, everything else on stderr. All that vtjobs prints passes through `write` here.
"""

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

from ...jobs.names import one_line, printable
from ...jobs.run.design import seed_text
from ...jobs.units import format_range

if TYPE_CHECKING:
    from ...jobs.run.eta import Eta

_COLOURS = {
    "completed": "green",
    "running": "cyan",
    "queued": "blue",
    "pending": "dim",
    "failed": "red",
    "diverged": "red",
    "blocked": "yellow",
    "cancelled": "yellow",
    "cancelling": "yellow",
    "suspended": "yellow",
    "requeued": "yellow",
    "unknown": "magenta",
    "held": "yellow",
}
PLAIN_EVERY_S = 10.0
# What stands for a sign that a stream's encoding lacks.
_PLAIN = {"±": "+-", "−": "-", "–": "-", "—": "-", "…": "...", "α": "alpha"}


def is_terminal() -> bool:
    """Whether a person watches stdout, and wants colour."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def write(text: str, *, end: str = "\n", to_stderr: bool = False, flush: bool = False) -> None:
    """Print a text on stdout or stderr.

    Names, descriptions, logs and errors come from elsewhere: what a terminal would act on, such as
    an escape sequence, is replaced, and so is what the stream's encoding lacks.
    """
    stream = sys.stderr if to_stderr else sys.stdout
    print(_encodable(printable(text), stream), end=end, file=stream, flush=flush)


def emit_json(value: Any) -> None:
    """Print one JSON value; it may be a typed document, or have some in it."""
    text = json.dumps(value, indent=2, ensure_ascii=True, allow_nan=False, default=_plain)
    # The one control character that JSON leaves as it is.
    write(text.replace("\x7f", "\\u007f"))


def _plain(document: object) -> Any:
    # What most commands print has none, and the codec takes a while to import.
    from ...jobs.documents import to_plain

    return to_plain(document)


def write_coloured(text: str) -> None:
    """Print a text of our own, coloured by escape sequences where a person watches."""
    if not is_terminal():
        write(text)
        return
    from rich.console import Console
    from rich.text import Text

    # What is no style is dropped.
    Console(highlight=False, soft_wrap=True).print(Text.from_ansi(text))


def can_print(signs: str) -> bool:
    """Whether stdout's encoding has these signs."""
    try:
        # In a program that fills the screen, stdout is another stream, without an encoding.
        stream = sys.stdout if getattr(sys.stdout, "encoding", None) else sys.__stdout__
        signs.encode(getattr(stream, "encoding", None) or "ascii")
    except UnicodeEncodeError:
        return False
    return True


def say(text: str) -> None:
    """Print a line for people, on stderr."""
    write(text, to_stderr=True, flush=True)


def _encodable(text: str, stream: TextIO) -> str:
    encoding = stream.encoding or "ascii"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        for sign, plain in _PLAIN.items():
            text = text.replace(sign, plain)
        return text.encode(encoding, "replace").decode(encoding)
    return text


def table(heading: list[str], rows: list[list[str]], *, right: tuple[int, ...] = ()) -> str:
    """Return an aligned table.

    A heading, a line per row, two spaces between columns, no trailing blanks.
    """
    # Widths are those of the signs that will be printed.
    lines = [[_encodable(one_line(cell), sys.stdout) for cell in line] for line in (heading, *rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heading))]
    shown = []
    for line in lines:
        cells = [
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        shown.append("  ".join(cells).rstrip())
    return "\n".join(shown)


def print_table(
    heading: list[str],
    rows: list[list[str]],
    *,
    right: tuple[int, ...] = (),
    colour: int | None = None,
) -> None:
    """Print a table, with the states in one column coloured where a person watches."""
    text = table(heading, rows, right=right)
    if not is_terminal() or colour is None:
        write(text)
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True)
    first, *rest = text.split("\n")
    console.print(Text(first, style="bold"))
    for line, row in zip(rest, rows, strict=True):
        shown = Text(line)
        style = _COLOURS.get(row[colour], "")
        if style:
            shown.highlight_words([row[colour]], style)
        console.print(shown)


def eta_text(eta: "Eta") -> str:
    """Return when runs will have ended: `eta 12–16 min`."""
    if eta.low_s is None or eta.high_s is None:
        return "eta unknown"
    return f"eta {format_range(eta.low_s, eta.high_s)}"


@contextmanager
def counting(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show a bar on a terminal's stderr while within; give what moves it: how many of how many.

    Args:
        what: is counted.
    """
    from rich.console import Console
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    with Bar(console=console, transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Show on a terminal's stderr that something takes a while, while within."""
    from rich.console import Console

    if not sys.stderr.isatty():
        yield
        return
    with Console(stderr=True).status(what):
        yield


class Progress:
    """Live progress of a set of runs on stderr.

    A moving display on a terminal, a line now and then elsewhere.
    """

    def __init__(self) -> None:
        self._live: Any = None
        self._said_at = 0.0
        self._said = ""

    def __enter__(self) -> "Progress":
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(stderr=True), refresh_per_second=4, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, rows: list[Any], words: list[str], report: Any, eta: "Eta | None") -> None:
        """Show where the runs stand, and when they will have ended.

        Args:
            rows: the runs.
            words: what each of them is shown by.
            report: what the last look came to.
            eta: the estimate.
        """
        standing, left = self.line(rows, words), f"  {eta_text(eta)}" if eta is not None else ""
        if report.unreachable:
            left += f"  ({', '.join(report.unreachable)} unreachable)"
        if self._live is not None:
            running = [row for row, word in zip(rows, words, strict=True) if word == "running"]
            self._live.update(self._panel(running[:16], standing + left))
            return
        now = time.monotonic()
        has_changed = standing != self._said and now - self._said_at >= PLAIN_EVERY_S
        if has_changed or not self._said:
            say(standing + left)
            self._said, self._said_at = standing, now

    def line(self, rows: list[Any], words: list[str]) -> str:
        """Return one line: counts by shown word, share of the work done."""
        counts = Counter(words)
        share = sum(_share(row) for row in rows) / len(rows)
        done = sum(row.state == "completed" for row in rows)
        states = ", ".join(f"{number} {state}" for state, number in sorted(counts.items()))
        return f"{done}/{len(rows)} completed ({share:4.0%}): {states}"

    def _panel(self, rows: list[Any], line: str) -> Any:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        grid = Table.grid(padding=(0, 2))
        for row in rows:
            bar = ProgressBar(total=100, completed=100 * _share(row), width=24)
            name = (
                f"{row.run_id[:8]}  {row.backbone} {row.dataset} {row.head} seed"
                f" {seed_text(row.seed, row.streams)}"
            )
            grid.add_row(Text(printable(name)), bar, Text(f"epoch {row.epoch or 0}"))
        return Group(Text(printable(line), style="bold"), grid)


def _share(row: Any) -> float:
    if row.state == "completed":
        return 1.0
    return min(1.0, (row.step or 0) / row.steps) if row.steps else 0.0
