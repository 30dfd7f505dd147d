"""Curves for other programs: one for each run, and one for each cell's mean over seeds."""

import re
from collections.abc import Callable, Iterator, Sequence
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
from ...jobs.run.selector import Selection, axis_text
from ...jobs.run.states import RunState
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


class Value(NamedTuple):
    """One point of one curve."""

    epoch: int
    tag: str
    """Set and metric, such as `test/top1`."""
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """What one run, or the mean of one cell, has to be told of."""

    name: str
    """Readable and unique, such as `vit_mini/digits/drloc/seed0`."""
    cell: str
    """The part of the name that is the cell's."""
    key: str
    """The run's id; of a mean the cell's id with `mean` before it."""
    seed: int | None
    """None: a mean."""
    labels: dict[str, str]
    """Backbone, dataset, head, recipe, and the grid's axes."""
    is_over: bool
    """Whether nothing more is to come."""
    values: Sequence[Value]
    """In the order of their epochs: those that were not handed over before, or all where the
    writer writes no parts.
    """


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


class Exporter:
    """Hands the selected runs' curves to a writer, in one go or in several as they grow."""

    def __init__(
        self, ledger: Ledger, selection: Selection, writer: Writer, *, follows: bool = False
    ) -> None:
        self._ledger = ledger
        self._selection = selection
        self._writer = writer
        self._follows = follows
        # Name of a curve -> its points that were handed over, and whether it was over by then.
        self._told: dict[str, set[tuple[int, str]]] = {}
        self._was_over: dict[str, bool] = {}
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
            rows = [r for r in queries.list_runs(connection, self._selection) if r.streams is None]
            cells = queries.cell_rows(connection, {row.cell_id for row in rows})
        names = _names(cells)
        runs, means = [], []
        for cell_id, group in groupby(sorted(rows, key=lambda row: row.cell_id), _cell_of):
            members, by_seed = list(group), {}
            for row in members:
                by_seed[row.seed] = self._values(row)
                runs.append(self._tell(cells[cell_id], names[cell_id], row, by_seed[row.seed]))
                progress(len(runs), len(rows))
            if told := self._tell_mean(cells[cell_id], names[cell_id], members, by_seed):
                means.append(told)
        self._writer.close()
        left = sum(not RunState(row.state).is_settled for row in rows)
        return Exported(folder=folder, runs=runs, means=means, left=left)

    def _values(self, row: RunRow) -> Tags:
        key = row.run_id, row.attempts
        if key in self._read:
            return self._read[key]
        found = values_of(self._ledger, row.run_id)
        if self._follows and RunState(row.state).is_settled:
            self._read[key] = found
        return found

    def _tell(self, cell: CellRow, name: str, row: RunRow, tags: Tags) -> str:
        is_over = RunState(row.state).is_settled
        return self._hand_over(cell, name, tags, key=row.run_id, seed=row.seed, is_over=is_over)

    def _tell_mean(
        self, cell: CellRow, name: str, members: Sequence[RunRow], by_seed: dict[int, Tags]
    ) -> str:
        is_over = all(RunState(row.state).is_settled for row in members)
        # While more seeds are to come a mean would change, and what is handed over stays.
        at_least = len(members) if self._follows and not is_over else 1
        tags = _mean(by_seed, at_least=at_least)
        key = f"{MEAN}-{cell.cell_id}"
        return (
            self._hand_over(cell, name, tags, key=key, seed=None, is_over=is_over) if tags else ""
        )

    def _hand_over(
        self, cell: CellRow, where: str, tags: Tags, *, key: str, seed: int | None, is_over: bool
    ) -> str:
        name = f"{where}/{MEAN if seed is None else f'seed{seed}'}"
        told = self._told.setdefault(name, set())
        values = list(_in_order(tags))
        new = [value for value in values if (value.epoch, value.tag) not in told]
        may_write = is_over or self._writer.writes_parts or not self._follows
        if may_write and (new or self._was_over.get(name) != is_over):
            self._writer.write(
                Curve(
                    name=name,
                    cell=where,
                    key=key,
                    seed=seed,
                    labels=_labels(cell),
                    is_over=is_over,
                    values=new if self._writer.writes_parts else values,
                )
            )
            told |= {(value.epoch, value.tag) for value in new}
            self._was_over[name] = is_over
        return name


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
    axes, headings = axes_of(cells), columns([cells[cell_id] for cell_id in cells])
    return {
        cell_id: "/".join(
            _part(f"{name}={axes[cell_id][name]}" if name in axes[cell_id] else text)
            for name, text in zip(headings, labels(cell, headings), strict=True)
            if text
        )
        for cell_id, cell in cells.items()
    }


def _part(text: str) -> str:
    """Return a text as the name of a folder, which other programs show."""
    return re.sub(r"[/\\]|^\.+", "_", one_line(text))


def _labels(cell: CellRow) -> dict[str, str]:
    fixed = {name: getattr(cell, name) for name in ("backbone", "dataset", "head", "recipe")}
    return fixed | {name: axis_text(value) for name, value in cell.axes.items()}


def values_of(ledger: Ledger, run_id: str) -> Tags:
    """Return a run's metrics of training and its scores."""
    found: Tags = {}
    with reading(ledger.engine) as connection:
        for of_training in (True, False):
            for row, metrics in rows_that_count(connection, [run_id], of_training=of_training):
                for metric, value in metrics.items():
                    # How many images were scored is no curve.
                    if isinstance(value, int | float) and metric != "n":
                        set_name = "training" if row.set_name == TRAINING else row.set_name
                        # A resumed attempt does some epochs anew.
                        found.setdefault(f"{set_name}/{metric}", {})[row.epoch] = float(value)
    return found


def _mean(by_seed: dict[int, Tags], *, at_least: int) -> Tags:
    """Return mean, and mean ± one sample standard deviation, of all that several seeds have.

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
            if point.std is not None:
                found.setdefault(f"{tag}_high", {})[point.epoch] = point.mean + point.std
                found.setdefault(f"{tag}_low", {})[point.epoch] = point.mean - point.std
    return found


def _in_order(tags: Tags) -> Iterator[Value]:
    for epoch in sorted({epoch for epochs in tags.values() for epoch in epochs}):
        for tag, epochs in tags.items():
            if epoch in epochs:
                yield Value(epoch, tag, epochs[epoch])
