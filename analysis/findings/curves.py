"""Learning curves over seeds, cell by cell: what `vtjobs curve` shows.

Means and deviations alone. Looking at a curve is no test, and none is made of it.
"""

from collections.abc import Mapping, Sequence

from ...db import lookups, queries
from ...db.engine import Connection, reading
from ...db.ledger import Ledger
from ...db.records import CellRow, RunRow
from ...db.results import TRAINING, by_epoch, metrics_of, training_by_epoch
from ...jobs.documents import Document
from ...jobs.errors import BadInput, suggest
from ...jobs.run.selector import Selection
from ...jobs.run.spec import Axes
from ...jobs.values import changed
from ..stats.curves import Curves, Passing, Point, band
from .cells import axes_of
from .usual_metric import usual_metric

SCHEMA_VERSION = 1


class CellCurve(Document, frozen=True, kw_only=True):
    """The learning curve of one cell."""

    schema_version: int
    cell_id: str
    match_id: str
    """Shared by the cells that differ in their head alone."""
    is_baseline: bool
    """Whether its head is the supervised one, in every stage."""
    backbone: str
    dataset: str
    head: str
    recipe: str
    stage: str
    axes: Axes
    """Further settings by which the cells differ."""
    metric: str
    set: str
    """The evaluation set; `training`: the metric is one of training."""
    planned: int
    """Runs of the cell, whatever their state. Those of a variance study are left out."""
    epochs: int
    """Of a whole run."""
    points: list[Point]
    """What its seeds say at each epoch."""
    runs: dict[str, str]
    """Seed -> run, of those that have a value."""
    seeds: dict[str, dict[int, float]]
    """Seed -> epoch -> value."""
    over: str | None = None
    """The cell over which the values are gains; null: they are the metric's own."""
    passing: Passing | None = None
    """Of a gain: when the cell is as good as that one at its end; null where that has not ended."""

    @property
    def curves(self) -> Curves:
        """Seed -> epoch -> value."""
        return {int(seed): curve for seed, curve in self.seeds.items()}


def from_epoch(curves: Sequence[CellCurve], first: int) -> list[CellCurve]:
    """Return curves from one epoch on, those that have a value there.

    When a cell passes another is still that of all epochs.

    Raises:
        BadInput: nothing was scored from that epoch on.
    """
    found = [
        changed(
            curve,
            points=[point for point in curve.points if point.epoch >= first],
            seeds={
                seed: {epoch: value for epoch, value in own.items() if epoch >= first}
                for seed, own in curve.seeds.items()
            },
        )
        for curve in curves
        if any(point.epoch >= first for point in curve.points)
    ]
    if not found:
        last = max((point.epoch for curve in curves for point in curve.points), default=0)
        raise BadInput(f"--from-epoch {first}: the last epoch with a value is {last}")
    return found


def learning_curves(
    ledger: Ledger, selection: Selection, *, metric: str | None = None, set_name: str = "test"
) -> list[CellCurve]:
    """Return the curves of the selected cells, in the order of their grid.

    Args:
        ledger: where the scores are.
        selection: of runs.
        metric: of the scores; None: top1, miou on masks, ap_box on objects.
        set_name: that they were made on; `training` for metrics of training.

    Raises:
        NothingMatched: no run is selected.
        BadInput: no selected run has such a value.
    """
    metric = metric or usual_metric(ledger, selection)
    with reading(ledger.engine) as connection:
        every = queries.list_runs(connection, selection)
        rows = [row for row in every if row.streams is None]
        if not rows:
            raise BadInput(
                "in these runs streams of randomness vary apart, so they are no replicates of each"
                " other and have no mean"
            )
        run_ids = [row.run_id for row in rows]
        values = _values(connection, run_ids, metric, set_name)
        if not any(values.values()):
            raise _nothing(connection, run_ids, metric, set_name)
        cells = queries.cell_rows(connection, {row.cell_id for row in rows}, selection)
    axes = axes_of(cells)
    grouped: dict[str, list[RunRow]] = {}
    for row in rows:
        grouped.setdefault(row.cell_id, []).append(row)
    found = []
    for cell_id, members in grouped.items():
        cell = cells[cell_id]
        scored = {row.seed: row for row in members if values.get(row.run_id)}
        curves = {seed: values[row.run_id] for seed, row in sorted(scored.items())}
        found.append(
            CellCurve(
                schema_version=SCHEMA_VERSION,
                cell_id=cell_id,
                match_id=cell.match_id,
                is_baseline=cell.is_baseline,
                backbone=cell.backbone,
                dataset=cell.dataset,
                head=cell.head,
                recipe=cell.recipe,
                stage=cell.stage,
                axes=axes[cell_id],
                metric=metric,
                set=set_name,
                planned=len(members),
                epochs=_epochs(cell, curves),
                points=band(curves),
                runs={str(seed): scored[seed].run_id for seed in curves},
                seeds={str(seed): dict(curve) for seed, curve in curves.items()},
            )
        )
    return found


def _epochs(cell: CellRow, curves: Mapping[int, Mapping[int, float]]) -> int:
    """Return the epochs of a whole run: of imported ones the last that they were scored at."""
    settings = cell.settings
    if settings is not None:
        return settings.recipe.epochs
    return max((epoch for curve in curves.values() for epoch in curve), default=0)


def interruptions(ledger: Ledger, curves: Sequence[CellCurve]) -> list[int]:
    """Return the epochs at which runs of these cells were resumed."""
    run_ids = [run_id for curve in curves for run_id in curve.runs.values()]
    with reading(ledger.engine) as connection:
        found = lookups.interrupted_epochs(connection, run_ids)
    return sorted(epoch for epochs in found.values() for epoch in epochs)


def _values(
    connection: Connection, run_ids: list[str], metric: str, set_name: str
) -> dict[str, dict[int, float]]:
    if set_name == TRAINING:
        return training_by_epoch(connection, run_ids, metric)
    return by_epoch(connection, run_ids, metric).get(set_name, {})


def _nothing(connection: Connection, run_ids: list[str], metric: str, set_name: str) -> BadInput:
    """Return an error that says what there is instead."""
    known = metrics_of(connection, run_ids)
    if not known:
        return BadInput("no epoch of these runs has been scored yet")
    if set_name not in known:
        return BadInput(f"--set {set_name}: nothing was scored on it. {suggest(set_name, known)}")
    return BadInput(
        f"--metric {metric}: no value of it on {set_name}. {suggest(metric, known[set_name])}"
    )
