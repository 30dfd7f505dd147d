"""The table of runs: what every run has, and what the listed runs differ in."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ...jobs.errors import BadInput, suggest
from ...jobs.run.design import seed_text
from ...jobs.run.selector import axis_text
from ...jobs.units import format_duration

if TYPE_CHECKING:
    from ...orchestrator.views.runs import RunView

Column = tuple[str, Callable[["RunView"], str]]
"""Heading, and a run's text below it."""

_LABELS: tuple[Column, ...] = (
    ("BACKBONE", lambda run: run.backbone),
    ("DATASET", lambda run: run.dataset),
    ("HEAD", lambda run: run.head),
)
# Shown where the listed runs differ in them.
_FURTHER: tuple[Column, ...] = (
    ("RECIPE", lambda run: run.recipe),
    ("STAGE", lambda run: run.stage),
)
_PROGRESS: tuple[Column, ...] = (
    ("SEED", lambda run: seed_text(run.seed, run.streams)),
    ("STATE", lambda run: run.shown_state),
    ("EPOCH", lambda run: str(run.epoch or "")),
    ("TRIES", lambda run: str(run.attempts)),
    ("TIME", lambda run: format_duration(run.seconds) if run.seconds else ""),
    ("TOP1", lambda run: "" if run.top1 is None else f"{run.top1:.2f}"),
)
_NUMBERS = frozenset(("SEED", "EPOCH", "TRIES", "TIME", "TOP1"))

# Word of --sort -> what runs are sorted by.
SORTS: dict[str, Callable[["RunView"], Any]] = {
    "run": lambda run: run.run_id,
    "grid": lambda run: run.grid_id,
    "backbone": lambda run: run.backbone,
    "dataset": lambda run: run.dataset,
    "head": lambda run: run.head,
    "seed": lambda run: run.seed,
    "state": lambda run: run.shown_state,
    "epoch": lambda run: run.epoch,
    "tries": lambda run: run.attempts,
    "time": lambda run: run.seconds,
    "started": lambda run: run.started_at,
    "ended": lambda run: run.ended_at,
    "top1": lambda run: run.top1,
}


def print_runs(runs: Sequence["RunView"], *, of_one_grid: bool = False) -> None:
    """Print the table of the runs; `of_one_grid`: one was asked for, whatever others have them."""
    from . import terminal

    columns = columns_of(runs, of_one_grid=of_one_grid)
    heading = [name for name, _ in columns]
    rows = [[text(run) for _, text in columns] for run in runs]
    right = tuple(index for index, name in enumerate(heading) if name in _NUMBERS)
    terminal.print_table(heading, rows, right=right, colour=heading.index("STATE"))


def columns_of(runs: Sequence["RunView"], *, of_one_grid: bool = False) -> list[Column]:
    """Return the columns; runs of different cells never have the same labels."""
    axes = sorted({name for run in runs for name in run.axes})
    grid: Column = ("GRID", lambda run: run.grid_id)
    grids = [] if of_one_grid else [grid]
    further = [*_FURTHER, *map(_axis, axes)]
    named = [
        *(column for column in grids if _varies(column, runs)),
        *_LABELS,
        *(column for column in further if _varies(column, runs)),
    ]
    if not _tells_cells_apart(named, runs):
        named.append(("CELL", lambda run: run.cell_id[:8]))
    return [("RUN", lambda run: run.run_id[:8]), *named, *_PROGRESS]


def sorted_by(runs: Sequence["RunView"], word: str) -> list["RunView"]:
    """Return the runs in another order; `-` before the word: from the largest to the smallest.

    Runs without a value come last either way.

    Raises:
        BadInput: there is no such order.
    """
    name = word.removeprefix("-")
    if name not in SORTS:
        raise BadInput(f"--sort {word}: unknown. {suggest(name, SORTS)}")
    value = SORTS[name]
    valued = [run for run in runs if value(run) is not None]
    valued.sort(key=value, reverse=word.startswith("-"))
    return [*valued, *(run for run in runs if value(run) is None)]


def _axis(name: str) -> Column:
    return name, lambda run: axis_text(run.axes[name]) if name in run.axes else ""


def _varies(column: Column, runs: Sequence["RunView"]) -> bool:
    return len({column[1](run) for run in runs}) > 1


def _tells_cells_apart(columns: Sequence[Column], runs: Sequence["RunView"]) -> bool:
    cells: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for run in runs:
        cells[tuple(text(run) for _, text in columns)].add(run.cell_id)
    return all(len(found) == 1 for found in cells.values())
