"""Curves as TensorBoard reads them: a folder for each run, and one for each cell's mean."""

import re
import time
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path

from ...db import queries
from ...db.engine import reading
from ...db.ledger import Ledger
from ...db.records import RunRow
from ...db.results import TRAINING, rows_that_count
from ...jobs.documents import Document
from ...jobs.names import one_line
from ...jobs.run.selector import Selection
from ..findings.cells import axes_of
from ..stats.curves import band
from .wording import columns, labels

# Ends the names of our files: files of another program in the same folder stay.
SUFFIX = ".vtjobs"
MEAN = "mean"

Epochs = dict[int, float]
Tags = dict[str, Epochs]
"""Set and metric, such as `test/top1` -> epoch -> value."""


class Exported(Document, frozen=True, kw_only=True):
    """What was written."""

    folder: str
    """Where it was written."""
    runs: list[str]
    """Folders of runs below it, such as `vit_mini/digits/drloc/seed0`."""
    means: list[str]
    """Folders of means over seeds."""


def write(
    ledger: Ledger,
    selection: Selection,
    folder: Path,
    *,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Exported:
    """Write the selected runs' metrics of training and scores, by epoch.

    Each run is a folder with a readable name. Beside the runs of a cell lies `mean`, with the mean
    over seeds and one sample standard deviation above and below it. What an earlier export wrote
    is replaced.

    Args:
        ledger: where the values are.
        selection: of runs.
        folder: made where it is not there.
        progress: is told how many runs are done, and how many there are.

    Raises:
        NothingMatched: no run is selected.
        ImportError: tensorboard is not installed.
    """
    with reading(ledger.engine) as connection:
        rows = [row for row in queries.list_runs(connection, selection) if row.streams is None]
        cells = queries.cell_rows(connection, {row.cell_id for row in rows})
    axes = axes_of(cells)
    names = columns([cells[cell_id] for cell_id in cells])
    runs, means, done = [], [], 0
    for cell_id, members in groupby(sorted(rows, key=lambda row: row.cell_id), _cell_of):
        cell = cells[cell_id]
        where = "/".join(
            _name(f"{name}={axes[cell_id][name]}" if name in axes[cell_id] else text)
            for name, text in zip(names, labels(cell, names), strict=True)
            if text
        )
        by_seed: dict[int, Tags] = {}
        for row in members:
            by_seed[row.seed] = _values(ledger, row.run_id)
            runs.append(f"{where}/seed{row.seed}")
            _write_run(folder / runs[-1], by_seed[row.seed])
            done += 1
            progress(done, len(rows))
        if mean := _mean(by_seed):
            means.append(f"{where}/{MEAN}")
            _write_run(folder / means[-1], mean)
    return Exported(folder=str(folder.absolute()), runs=runs, means=means)


def _cell_of(row: RunRow) -> str:
    return row.cell_id


def _name(text: str) -> str:
    """Return a text as the name of a folder, which TensorBoard shows."""
    return re.sub(r"[/\\]|^\.+", "_", one_line(text))


def _values(ledger: Ledger, run_id: str) -> Tags:
    found: Tags = {}
    with reading(ledger.engine) as connection:
        for of_training in (True, False):
            for row, metrics in rows_that_count(connection, [run_id], of_training=of_training):
                for metric, value in metrics.items():
                    if isinstance(value, int | float):
                        set_name = "training" if row.set_name == TRAINING else row.set_name
                        # A resumed attempt does some epochs anew.
                        found.setdefault(f"{set_name}/{metric}", {})[row.epoch] = float(value)
    return found


def _mean(by_seed: dict[int, Tags]) -> Tags:
    """Return mean, and mean ± one sample standard deviation, of all that several seeds have."""
    found: Tags = {}
    for tag in dict.fromkeys(tag for tags in by_seed.values() for tag in tags):
        for point in band({seed: tags.get(tag, {}) for seed, tags in by_seed.items()}):
            found.setdefault(tag, {})[point.epoch] = point.mean
            if point.std is not None:
                found.setdefault(f"{tag}_high", {})[point.epoch] = point.mean + point.std
                found.setdefault(f"{tag}_low", {})[point.epoch] = point.mean - point.std
    return found


def _write_run(folder: Path, tags: Tags) -> None:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob(f"events.out.tfevents.*{SUFFIX}"):
        old.unlink()
    writer = EventFileWriter(str(folder), filename_suffix=SUFFIX)
    try:
        for epoch, tag, value in _in_order(tags):
            one = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
            writer.add_event(Event(wall_time=time.time(), step=epoch, summary=one))
    finally:
        writer.close()


def _in_order(tags: Tags) -> Iterator[tuple[int, str, float]]:
    for epoch in sorted({epoch for epochs in tags.values() for epoch in epochs}):
        for tag, epochs in tags.items():
            if epoch in epochs:
                yield epoch, tag, epochs[epoch]
