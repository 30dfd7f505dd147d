"""What two sides differ in, as tables."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...jobs.units import plural
from . import terminal

if TYPE_CHECKING:
    from ...orchestrator.views.differences import Difference, Differences

# A longer list of values is cut; `--json` has all.
MOST_CHARACTERS = 60


def print_differences(found: "Differences") -> None:
    """Print a table for each kind of difference, and a line where there is none."""
    terminal.write(_sides(found))
    tables = {
        "SETTINGS": found.settings,
        "GRID": found.grids,
        "ENVIRONMENT": found.environment,
        "RESULTS": found.results,
    }
    for title, rows in tables.items():
        if rows:
            terminal.write("")
            terminal.print_table([title, "FIRST", "SECOND"], _lines(rows))
    if not found.settings:
        terminal.write("\nThe settings are the same.")
    if (parting := found.first_epoch) is not None:
        terminal.write(
            f"\nThey part at epoch {parting.epoch}: {parting.metric} on {parting.set} is"
            f" {parting.first:.6g} and {parting.second:.6g}."
        )
    elif found.epochs:
        terminal.write(f"\nAll values of {plural(found.epochs, 'epoch')} are equal.")


def _sides(found: "Differences") -> str:
    if len(found.first) == len(found.second) == 1:
        return f"first: run {found.first[0]}; second: run {found.second[0]}"
    shared = found.runs
    return (
        f"first: {plural(len(found.first), 'run')}; second: {plural(len(found.second), 'run')};"
        f" in both: {shared.both}"
    )


def _lines(rows: Sequence["Difference"]) -> list[list[str]]:
    return [[row.where, _text(row.first), _text(row.second)] for row in rows]


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, list):
        text = ", ".join(map(_text, value))
    elif isinstance(value, float):
        text = f"{value:.6g}"
    else:
        text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 1]}…"
