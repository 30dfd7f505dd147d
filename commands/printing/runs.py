"""The table of runs: what every run has, and what the listed runs differ in."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ...jobs.errors import BadInput, suggest
from ...jobs.run.design import seed_text
from ...jobs.run.selector import axis_text
from ...jobs.units import format_duration, ranges, seconds_of

if TYPE_CHECKING:
    from ...orchestrator.views.runs import RunView

Column = tuple[str, Callable[["RunView"], str]]
"""Heading, and a run's text below it."""

_IDS: tuple[Column, ...] = (
    ("RUN", lambda run: run.run_id[:8]),
    ("GRID", lambda run: run.grid_id),
    ("CELL", lambda run: run.cell_id[:8]),
)
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
# Shown where a listed run was trained on masks, or on objects.
_OTHER_SCORES: tuple[Column, ...] = (
    ("MIOU", lambda run: "" if run.miou is None else f"{run.miou:.2f}"),
    ("AP_BOX", lambda run: "" if run.ap_box is None else f"{run.ap_box:.2f}"),
)
_NUMBERS = frozenset(("SEED", "EPOCH", "TRIES", "TIME", "TOP1", "MIOU", "AP_BOX", "AGE"))
# What data has in place of a column's text.
_RAW: dict[str, Callable[["RunView"], Any]] = {
    "RUN": lambda run: run.run_id,
    "CELL": lambda run: run.cell_id,
    "TIME": lambda run: run.seconds,
    "TOP1": lambda run: run.top1,
    "MIOU": lambda run: run.miou,
    "AP_BOX": lambda run: run.ap_box,
    "STEP": lambda run: run.step,
}
# So many runs that wait alike are one line.
MANY = 4
_WAITING = frozenset(("pending", "queued", "blocked"))

# Word of --sort -> what runs are sorted by. Axes are words too.
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
    "miou": lambda run: run.miou,
    "ap_box": lambda run: run.ap_box,
    "recipe": lambda run: run.recipe,
    "stage": lambda run: run.stage,
    "host": lambda run: run.host,
    "reason": lambda run: run.reason or None,
    "scheduler": lambda run: run.scheduler,
    "step": lambda run: run.step,
    "eta": lambda run: None if run.eta is None else run.eta.high_s,
}


def print_runs(
    runs: Sequence["RunView"], columns: Sequence[Column], *, alike_at_once: bool = False
) -> None:
    """Print the table of the runs.

    Args:
        runs: in their order.
        columns: of the table.
        alike_at_once: whether many runs that wait, and differ in their seed alone, are one line.
    """
    from . import terminal

    heading = [name for name, _ in columns]
    groups = _alike(runs, columns) if alike_at_once else [[run] for run in runs]
    rows = [_line(group, columns) for group in groups]
    right = tuple(index for index, name in enumerate(heading) if name in _NUMBERS)
    colour = heading.index("STATE") if "STATE" in heading else None
    terminal.print_table(heading, rows, right=right, colour=colour)


def as_csv(runs: Sequence["RunView"], columns: Sequence[Column]) -> str:
    """Return the runs as CSV: whole ids, seconds, and numbers as they are."""
    from ...analysis.output.csv_text import csv_text

    values = [_RAW.get(name, text) for name, text in columns]
    heading = [name.lower() if name.isupper() else name for name, _ in columns]
    rows = [[value(run) for value in values] for run in runs]
    return csv_text(heading, [["" if cell is None else cell for cell in row] for row in rows])


def _alike(runs: Sequence["RunView"], columns: Sequence[Column]) -> list[list["RunView"]]:
    """Return the runs in groups: neighbours that wait, and of which all but run and seed is alike.

    Few of them stand alone each.
    """
    if "SEED" not in {name for name, _ in columns}:
        return [[run] for run in runs]
    texts = [text for name, text in columns if name not in ("RUN", "SEED")]
    groups: list[list[RunView]] = []
    before: Any = None
    for run in runs:
        key = (run.cell_id, run.grid_id, run.reason, [text(run) for text in texts])
        waits = run.state in _WAITING and run.streams is None
        if waits and key == before:
            groups[-1].append(run)
        else:
            groups.append([run])
        before = key if waits else None
    found: list[list[RunView]] = []
    for group in groups:
        found += [group] if len(group) >= MANY else [[run] for run in group]
    return found


def _line(group: Sequence["RunView"], columns: Sequence[Column]) -> list[str]:
    first = group[0]
    cells = [text(first) for _, text in columns]
    if len(group) > 1:
        own = {"RUN": f"{len(group)} runs", "SEED": ranges(sorted(run.seed for run in group))}
        cells = [own.get(name, cell) for (name, _), cell in zip(columns, cells, strict=True)]
    return cells


def columns_named(words: str, runs: Sequence["RunView"], *, now: float) -> list[Column]:
    """Return the columns of these names, which commas divide.

    Args:
        words: names of columns, or of axes.
        runs: whose axes there are.
        now: in seconds since 1970.

    Raises:
        BadInput: there is no such column.
    """
    known: dict[str, Column] = {name.lower(): (name, text) for name, text in _every(now)}
    known |= {name: _axis(name) for run in runs for name in run.axes}
    found = []
    for word in filter(None, (word.strip() for word in words.split(","))):
        if word not in known:
            raise BadInput(f"--columns {word}: unknown. {suggest(word, known)}")
        found.append(known[word])
    if not found:
        raise BadInput(f"--columns: names none. {suggest('', known)}")
    return found


def _every(now: float) -> list[Column]:
    """Return every column but axes."""
    return [
        *_IDS,
        *_LABELS,
        *_FURTHER,
        *_PROGRESS,
        *_OTHER_SCORES,
        ("REASON", lambda run: run.reason),
        ("SCHEDULER", lambda run: run.scheduler or ""),
        ("HOST", lambda run: run.host or ""),
        ("STEP", lambda run: "" if run.step is None else f"{run.step}/{run.steps or '?'}"),
        ("STARTED", lambda run: run.started_at or ""),
        ("ENDED", lambda run: run.ended_at or ""),
        ("AGE", lambda run: _age(run, now)),
        ("ETA", _eta),
    ]


def _age(run: "RunView", now: float) -> str:
    """Return how long ago a run ended, or started."""
    at = run.ended_at or run.started_at
    return "" if at is None else format_duration(max(0.0, now - seconds_of(at)))


def _eta(run: "RunView") -> str:
    from .terminal import eta_text

    return "" if run.eta is None else eta_text(run.eta).removeprefix("eta ")


def columns_of(runs: Sequence["RunView"], *, of_one_grid: bool = False) -> list[Column]:
    """Return the columns; runs of different cells never have the same labels."""
    # An axis of recipes is the recipe's own column.
    axes = sorted({name for run in runs for name in run.axes} - {"recipe"})
    identity, grid, cell = _IDS
    grids = [] if of_one_grid else [grid]
    further = [*_FURTHER, *map(_axis, axes)]
    named = [
        *(column for column in grids if _varies(column, runs)),
        *_LABELS,
        *(column for column in further if _varies(column, runs)),
    ]
    if not _tells_cells_apart(named, runs):
        named.append(cell)
    return [identity, *named, *_with_scores(runs)]


def _with_scores(runs: Sequence["RunView"]) -> list[Column]:
    """Return the columns of progress and of the scores that a run has; top1 where none has any."""
    *progress, classified = _PROGRESS
    scores = [
        column for column in (classified, *_OTHER_SCORES) if any(column[1](run) for run in runs)
    ]
    return [*progress, *(scores or [classified])]


def sorted_by(runs: Sequence["RunView"], word: str) -> list["RunView"]:
    """Return the runs in another order; `-` before the word: from the largest to the smallest.

    Runs without a value come last either way.

    Raises:
        BadInput: there is no such order.
    """
    name = word.removeprefix("-")
    known = SORTS | {axis: _by_axis(axis) for run in runs for axis in run.axes}
    if name not in known:
        raise BadInput(f"--sort {word}: unknown. {suggest(name, known)}")
    value = known[name]
    valued = [run for run in runs if value(run) is not None]
    valued.sort(key=value, reverse=word.startswith("-"))
    return [*valued, *(run for run in runs if value(run) is None)]


def _by_axis(name: str) -> Callable[["RunView"], Any]:
    """Return what runs are sorted by on an axis: numbers by size, then everything else as text."""

    def value(run: "RunView") -> Any:
        found = run.axes.get(name)
        if found is None:
            return None
        is_number = isinstance(found, int | float) and not isinstance(found, bool)
        return (0, found, "") if is_number else (1, 0, axis_text(found))

    return value


def _axis(name: str) -> Column:
    return name, lambda run: axis_text(run.axes[name]) if name in run.axes else ""


def _varies(column: Column, runs: Sequence["RunView"]) -> bool:
    return len({column[1](run) for run in runs}) > 1


def _tells_cells_apart(columns: Sequence[Column], runs: Sequence["RunView"]) -> bool:
    cells: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for run in runs:
        cells[tuple(text(run) for _, text in columns)].add(run.cell_id)
    return all(len(found) == 1 for found in cells.values())
