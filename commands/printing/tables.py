"""Print a table of results in the style that was asked for."""

from typing import Any


def print_table(table: Any, style: str, *, right: tuple[int, ...]) -> None:
    """Print a table in the style that was asked for, its notes on stderr where it is for a
    terminal.
    """
    from ...analysis.output import layout
    from . import terminal

    if style == "table":
        terminal.print_table(table.heading, _starred(table), right=right)
        for note in layout.said(table, "*"):
            terminal.say(note)
    else:
        lay = {"markdown": layout.markdown, "latex": layout.latex}[style]
        terminal.write(lay(table), end="")


def _starred(table: Any) -> list[list[str]]:
    """Return the body for a terminal.

    * for bold, and scores one below the other whatever stands behind them.
    """
    signs = (" *", " †", " ‡", " †‡")
    body = [
        [text + " *" if (row, column) in table.bold else text for column, text in enumerate(line)]
        for row, line in enumerate(table.body)
    ]
    for column in range(table.labels, len(table.heading)):
        width = max(
            (len(sign) for line in body for sign in signs if line[column].endswith(sign)), default=0
        )
        for line in body:
            mark = max((len(sign) for sign in signs if line[column].endswith(sign)), default=0)
            line[column] += " " * (width - mark)
    return body
