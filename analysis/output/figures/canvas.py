"""What all figures share.

Colours, sizes, and how they are written, the same byte for byte every time.
"""

import io
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ....jobs.names import printable
from ..csv_text import csv_text

# Okabe and Ito 2008: told apart with any kind of colour blindness.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
GREY = "#777777"
FAINT = "#DDDDDD"
STATE_COLOURS = {
    "completed": "#009E73",
    "running": "#56B4E9",
    "queued": "#BFDFF2",
    "pending": "#EEEEEE",
    "diverged": "#000000",
    "failed": "#D55E00",
    "blocked": "#E69F00",
    "cancelled": "#CC79A7",
    "cancelling": "#CC79A7",
    "unknown": "#F0E442",
}
# A figure with more lines than this is read by nobody; its data has all of them.
MOST_LINES = 120
WIDTH = 9.6

_STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "vtjobs",
    "pdf.fonttype": 42,
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 9.0,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "text.parse_math": False,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
}


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """A figure, its data and its text."""

    name: str
    """The stem of its files."""
    title: str
    text: str
    """What it shows, for who cannot see it."""
    heading: list[str]
    rows: list[list[Any]]
    figure: Any

    def __post_init__(self) -> None:
        # The layout is solved by steps, and would come out a little different each time that it is
        # drawn.
        with styled():
            self.figure.draw_without_rendering()
        self.figure.set_layout_engine("none")

    @cached_property
    def svg(self) -> str:
        """It as SVG without a date, a maker and a declaration, to stand inside a page."""
        with styled():
            stream = io.StringIO()
            self.figure.savefig(
                stream, format="svg", metadata={"Date": None, "Creator": None, "Title": self.title}
            )
        text = stream.getvalue()
        return printable(text[text.index("<svg") :])

    def csv(self) -> str:
        """Return its data; an empty field is a number that does not exist."""
        rows = [["" if value is None else value for value in row] for row in self.rows]
        return csv_text(self.heading, rows)

    def write(self, folder: Path) -> list[Path]:
        """Write it as SVG, PDF and CSV into a folder; return the files."""
        with styled():
            stream = io.BytesIO()
            self.figure.savefig(
                stream, format="pdf", metadata={"CreationDate": None, "Title": self.title}
            )
        contents = {"svg": self.svg.encode(), "pdf": stream.getvalue(), "csv": self.csv().encode()}
        paths = []
        for suffix, content in contents.items():
            paths.append(folder / f"{self.name}.{suffix}")
            paths[-1].write_bytes(content)
        return paths


def styled() -> AbstractContextManager[Any]:
    """Return the style that a figure is made and written in."""
    import matplotlib

    return matplotlib.rc_context(_STYLE)


def new_figure(height: float, *, width: float = WIDTH) -> Any:
    """Return an empty figure, sizes in inches, that belongs to no window."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height))


def cut(lines: Sequence[Any], what: str) -> tuple[list[Any], str]:
    """Return the lines that are drawn, and what to say of the others."""
    if len(lines) <= MOST_LINES:
        return list(lines), ""
    return (
        list(lines[:MOST_LINES]),
        f" The first {MOST_LINES} of {len(lines)} {what} are drawn; the CSV file has all.",
    )
