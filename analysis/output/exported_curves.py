"""Curves for other programs: one for each run, and one for each cell's mean over seeds."""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple, Protocol

from ...db import queries
from ...db.engine import reading
from ...db.ledger import Ledger
from ...db.records import CellRow, RunRow
from ...db.results import TRAINING, rows_that_count
from ...jobs.documents import Document
from ...jobs.names import one_line
from ...jobs.run.design import seed_text
from ...jobs.run.selector import Selection, axis_text
from ...jobs.run.states import RunState
from ...jobs.values import Value, changed
from ..findings.cells import axes_of
from ..stats.curves import band
from .wording import columns, labels

MEAN = "mean"

Epochs = dict[int, float]
Tags = dict[str, Epochs]
"""Set and metric, such as `test/top1` -> epoch -> value."""


class Exported(Document, frozen=True, kw_only=True):
    """What was written."""

    folder: str
    """Where it was written."""
    runs: list[str]
    """Names of the runs' curves, such as `vit_mini/digits/drloc/seed0`."""
    means: list[str]
    """Names of the means over seeds."""
    left: int
    """Runs that are still to end."""


class Reading(NamedTuple):
    """One point of one curve."""

    epoch: int
    tag: str
    """Set and metric, such as `test/top1`."""
    value: float


class Curve(Value, frozen=True, kw_only=True):
    """What one run, or the mean of one cell, has to be told of."""

    name: str
    """Readable and unique, such as `vit_mini/digits/drloc/seed0`."""
    cell: str
    """The part of the name that is the cell's."""
    key: str
    """The run's id; of a mean the cell's id with `mean` before it."""
    seed: int | None
    """Or the place in the design, where streams vary apart. None: a mean."""
    labels: dict[str, str]
    """Backbone, dataset, head, recipe, and the grid's axes."""
    is_over: bool
    """Whether nothing more is to come."""
    is_new: bool
    """Whether it begins here: what was handed over of it before, if anything, no longer holds."""
    values: Sequence[Reading]
    """In the order of their epochs: all of a new curve, else those that were not handed over."""


class Writer(Protocol):
    """Hands curves to one other program's files."""

    writes_parts: bool
    """Whether a curve can be written in several goes. If not it is written when it is over, unless
    there is only one go.
    """

    def write(self, curve: Curve) -> None:
        """Write a curve, or what is new of it."""

    def close(self) -> None:
        """End one go: what was written can be read."""


@dataclass(slots=True)
class _Told:
    """What was handed over of a curve."""

    values: dict[tuple[int, str], float]
    was_over: bool


class Exporter:
    """Hands the selected runs' curves to a writer, in one go or in several as they grow."""

    def __init__(
        self, ledger: Ledger, selection: Selection, writer: Writer, *, follows: bool = False
    ) -> None:
        self._ledger = ledger
        self._selection = selection
        self._writer = writer
        self._follows = follows
        # Key of a curve -> what was handed over.
        self._told: dict[str, _Told] = {}
        # A run that is over is not read again, unless it was tried again.
        self._read: dict[tuple[str, int], Tags] = {}

    def write(
        self, folder: str, progress: Callable[[int, int], None] = lambda done, total: None
    ) -> Exported:
        """Hand over what was not handed over before.

        Args:
            folder: where the writer writes.
            progress: is told how many runs are done, and how many there are.

        Raises:
            NothingMatched: no run is selected.
        """
        with reading(self._ledger.engine) as connection:
            rows = queries.list_runs(connection, self._selection)
            cells = queries.cell_rows(connection, {row.cell_id for row in rows}, self._selection)
        names = _names(cells)
        runs, means, done = [], [], 0
        for cell_id, group in groupby(sorted(rows, key=lambda row: row.cell_id), _cell_of):
            cell = _Cell(names[cell_id], cells[cell_id])
            members = list(group)
            values = self._values(members)
            for row in members:
                runs += self._tell(cell, row, values[row.run_id])
                done += 1
                progress(done, len(rows))
            means += self._tell_mean(cell, members, values)
        self._writer.close()
        left = sum(not RunState(row.state).is_settled for row in rows)
        return Exported(folder=folder, runs=runs, means=means, left=left)

    def _values(self, members: Sequence[RunRow]) -> dict[str, Tags]:
        """Return run -> its values; of a run that is over as they were read before."""
        keys = {row.run_id: (row.run_id, row.attempts) for row in members}
        missing = [run_id for run_id, key in keys.items() if key not in self._read]
        found = values_of(self._ledger, missing)
        values = {
            run_id: found[run_id] if run_id in found else self._read[key]
            for run_id, key in keys.items()
        }
        if self._follows:
            over = [row.run_id for row in members if RunState(row.state).is_settled]
            self._read |= {keys[run_id]: values[run_id] for run_id in over}
        return values

    def _tell(self, cell: "_Cell", row: RunRow, tags: Tags) -> list[str]:
        which = _part(seed_text(row.seed, row.streams))
        name = f"{cell.name}/{'seed' if row.streams is None else ''}{which}"
        is_over = RunState(row.state).is_settled
        return self._hand_over(cell, name, tags, key=row.run_id, seed=row.seed, is_over=is_over)

    def _tell_mean(
        self, cell: "_Cell", members: Sequence[RunRow], values: Mapping[str, Tags]
    ) -> list[str]:
        # In a variance study the runs of a cell differ in one stream: of these is no mean.
        by_seed = {row.seed: values[row.run_id] for row in members if row.streams is None}
        is_over = all(RunState(row.state).is_settled for row in members)
        # While more seeds are to come a mean would change with each.
        at_least = len(by_seed) if self._follows and not is_over else 1
        tags = _mean(by_seed, at_least=at_least)
        key = f"{MEAN}-{cell.row.cell_id}"
        name = f"{cell.name}/{MEAN}"
        return self._hand_over(cell, name, tags, key=key, seed=None, is_over=is_over)

    def _hand_over(
        self, cell: "_Cell", name: str, tags: Tags, *, key: str, seed: int | None, is_over: bool
    ) -> list[str]:
        """Hand over what is new of a curve; return its name, if any of it was written by now."""
        values = list(_in_order(tags))
        now = {(value.epoch, value.tag): value.value for value in values}
        told = self._told.get(key)
        if told is not None and not _holds(told.values, now):
            # It was trained anew, from nothing or from an earlier epoch.
            told = None
        is_new = told is None or not self._writer.writes_parts
        before = {} if told is None else told.values
        new = [value for value in values if (value.epoch, value.tag) not in before]
        has_news = bool(new) or (told is not None and told.was_over != is_over)
        if has_news and self._may_write(is_over):
            self._writer.write(
                Curve(
                    name=name,
                    cell=cell.name,
                    key=key,
                    seed=seed,
                    labels=_labels(cell.row),
                    is_over=is_over,
                    is_new=is_new,
                    values=values if is_new else new,
                )
            )
            # What is not looked at again need not be remembered.
            self._told[key] = _Told(now if self._follows else {}, is_over)
        return [name] if key in self._told else []

    def _may_write(self, is_over: bool) -> bool:
        return is_over or self._writer.writes_parts or not self._follows


class _Cell(Value, frozen=True):
    name: str
    row: CellRow


def _holds(told: Mapping[tuple[int, str], float], now: Mapping[tuple[int, str], float]) -> bool:
    """Return whether all that was told is still so."""
    return all(place in now and same(value, now[place]) for place, value in told.items())


def same(one: float, other: float) -> bool:
    """Return whether two values are equal, or neither is a number."""
    return one == other or (math.isnan(one) and math.isnan(other))


def title(ledger: Ledger, selection: Selection) -> str:
    """Return what the selected runs are called together: their grid, where it is one.

    Raises:
        NothingMatched: no run is selected.
    """
    with reading(ledger.engine) as connection:
        grids = {row.grid_id for row in queries.list_runs(connection, selection)}
    return grids.pop() if len(grids) == 1 else "vtjobs"


def _cell_of(row: RunRow) -> str:
    return row.cell_id


def _names(cells: dict[str, CellRow]) -> dict[str, str]:
    """Return cell id -> its part of the curves' names: its labels, and the axes they differ in."""
    axes = axes_of(cells)
    rows = {cell_id: changed(cell, axes=axes[cell_id]) for cell_id, cell in cells.items()}
    headings = columns(list(rows.values()))
    names = {
        cell_id: "/".join(
            _part(f"{name}={text}" if name in row.axes else text)
            for name, text in zip(headings, labels(row, headings), strict=True)
            if text
        )
        for cell_id, row in rows.items()
    }
    count = Counter(names.values())
    # Two names may be the same folder, such as a/b and a_b.
    return {
        cell_id: name if count[name] == 1 else f"{name}/{cell_id[:8]}"
        for cell_id, name in names.items()
    }


def _part(text: str) -> str:
    """Return a text as the name of a folder, which other programs show."""
    return re.sub(r"[/\\]|^\.+", "_", one_line(text))


def _labels(cell: CellRow) -> dict[str, str]:
    fixed = {name: getattr(cell, name) for name in ("backbone", "dataset", "head", "recipe")}
    return fixed | {name: axis_text(value) for name, value in cell.axes.items()}


def values_of(ledger: Ledger, run_ids: Sequence[str]) -> dict[str, Tags]:
    """Return run -> its metrics of training and its scores."""
    found: dict[str, Tags] = {run_id: {} for run_id in run_ids}
    with reading(ledger.engine) as connection:
        for of_training in (True, False):
            for row, metrics in rows_that_count(connection, run_ids, of_training=of_training):
                set_name = "training" if row.set_name == TRAINING else row.set_name
                for metric, value in metrics.items():
                    # How many images were scored is no curve.
                    if isinstance(value, int | float) and metric != "n":
                        tags = found[row.run_id]
                        # A resumed attempt does some epochs anew.
                        tags.setdefault(f"{set_name}/{metric}", {})[row.epoch] = float(value)
    return found


def _mean(by_seed: dict[int, Tags], *, at_least: int) -> Tags:
    """Return mean, mean ± one sample standard deviation, and the seeds that it rests on.

    Args:
        by_seed: the seeds' values.
        at_least: so many seeds must have a value at an epoch.
    """
    found: Tags = {}
    for tag in dict.fromkeys(tag for tags in by_seed.values() for tag in tags):
        for point in band({seed: tags.get(tag, {}) for seed, tags in by_seed.items()}):
            if point.n < at_least:
                continue
            found.setdefault(tag, {})[point.epoch] = point.mean
            found.setdefault(f"{tag}_seeds", {})[point.epoch] = float(point.n)
            if point.std is not None:
                found.setdefault(f"{tag}_high", {})[point.epoch] = point.mean + point.std
                found.setdefault(f"{tag}_low", {})[point.epoch] = point.mean - point.std
    return found


def _in_order(tags: Tags) -> Iterator[Reading]:
    for epoch in sorted({epoch for epochs in tags.values() for epoch in epochs}):
        for tag, epochs in tags.items():
            if epoch in epochs:
                yield Reading(epoch, tag, epochs[epoch])
