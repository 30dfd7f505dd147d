"""What cells cost, beside what they reach: what `vtjobs cost` shows, a row for each cell."""

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence

from ...db import queries
from ...db.engine import reading
from ...db.records import CellRow, RunRow
from ...db.worked import worked
from ...jobs.atomic_files import read_cache, to_json, write_over
from ...jobs.config.tools import ask_tool
from ...jobs.documents import Document, from_plain, to_plain
from ...jobs.grid.image_folder import cache_folder
from ...jobs.run.cost import Counts
from ...jobs.run.metrics import MAIN
from ...jobs.run.selector import Selection
from ...jobs.run.settings import CellSettings
from ...jobs.run.spec import Axes, canonical, digest
from ...jobs.run.states import RunState
from ...jobs.values import Value, changed
from ..loop.context import Context
from .efficiency import Efficiency, efficiency

SCHEMA_VERSION = 1
# Of the largest backbones of the papers, on a slow machine.
TIMEOUT_S = 1200
_CACHE = "counts.json"
_UNKNOWN = Counts(error="its runs were imported, and its model is not known")


class CellCost(Document, frozen=True, kw_only=True):
    """What one cell costs. What nobody measured is null."""

    schema_version: int
    cell_id: str
    backbone: str
    dataset: str
    head: str
    recipe: str
    stage: str
    axes: Axes
    """Further settings by which the cells differ."""
    runs: int
    """Runs that have completed, and that the score and the hours rest on."""
    planned: int
    """All runs of the cell."""
    score: float | None
    """Mean over their seeds, on the test set at the last epoch: top1, miou on masks, or ap_box on
    objects."""
    parameters: int | None
    """Of the backbone with its classifier: what finished weights have."""
    head_parameters: int | None
    """Of the auxiliary head, which is trained and then left out."""
    multiply_adds: int | None
    """Of one image through the backbone, at the size of training, which papers call FLOPs."""
    images_seen: int | None
    """Images that a whole run trains on, in its own stage. Repeats of an image in a batch count;
    views of it for a head do not."""
    passes: float | None
    """Times that a whole run goes through the different training images. With repeated augmentation
    an epoch sees one in `repeats` of them (thesis, section 3.4.5), so these are fewer than epochs.
    """
    images_per_s: float | None
    """While training, all ranks together: median over runs."""
    step_s: float | None
    """Seconds of an optimizer step with its batch, evaluations and the first ten steps left out:
    median over runs."""
    step_std_s: float | None
    """Standard deviation of the steps of a run: median over runs."""
    time_ratio: float | None
    """Time for an image by that of the baseline, the same cell without its head."""
    peak_memory_bytes: int | None
    """The most that PyTorch had allocated on rank 0's GPU."""
    gpu_hours: float | None
    """Of a completed run, with all its attempts: mean."""
    run_hours: float | None
    """The same in hours of attempts, whatever their GPUs."""
    error: str | None = None
    """Why nothing could be counted of its model."""


def costs(context: Context, selection: Selection) -> list[CellCost]:
    """Return what the selected cells cost, in grid order; cells that have not started too.

    Raises:
        NothingMatched: no run is selected.
        NoAnswer: the models could not be made.
    """
    with reading(context.ledger.engine) as connection:
        rows = [row for row in queries.list_runs(connection, selection) if row.streams is None]
        cells = queries.cell_rows(connection, {row.cell_id for row in rows}, selection)
        scores = {
            result.run_id: result.last
            for result in queries.results_of(connection, [row.run_id for row in rows])
            if result.metric in MAIN.values() and result.set_name == "test"
        }
        hours: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for one in worked(connection, selection):
            hours[one.run_id].append((one.gpu_hours.total, one.hours))
    used = {one.cell_id: one for one in efficiency(context, selection)}
    counts = counts_of(
        {cell_id: made for cell_id, row in cells.items() if (made := row.settings) is not None}
    )
    baselines = _baselines(cells, used)
    of_cell: dict[str, list[RunRow]] = defaultdict(list)
    for row in rows:
        of_cell[row.cell_id].append(row)
    found = []
    for cell_id, members in of_cell.items():
        done = [row.run_id for row in members if row.state == RunState.COMPLETED]
        figures = _Figures(
            planned=len(members),
            completed=len(done),
            scores=[scores[run_id] for run_id in done if run_id in scores],
            gpu_hours=[sum(gpu for gpu, _ in hours[run_id]) for run_id in done],
            run_hours=[sum(run for _, run in hours[run_id]) for run_id in done],
        )
        cell, baseline = cells[cell_id], baselines.get(cells[cell_id].match_id)
        counted = counts.get(cell_id, _UNKNOWN)
        found.append(_of_cell(cell, counted, used.get(cell_id), baseline, figures))
    return found


class _Figures(Value, frozen=True, kw_only=True):
    """What the runs of one cell come to."""

    planned: int
    completed: int
    scores: list[float]
    gpu_hours: list[float]
    run_hours: list[float]


def _baselines(
    cells: Mapping[str, CellRow], used: Mapping[str, Efficiency]
) -> dict[str, Efficiency]:
    """Return what cells share with their baseline -> what the baseline used."""
    return {
        row.match_id: used[cell_id]
        for cell_id, row in cells.items()
        if row.is_baseline and cell_id in used
    }


def _of_cell(
    cell: CellRow,
    counts: Counts,
    used: Efficiency | None,
    baseline: Efficiency | None,
    figures: _Figures,
) -> CellCost:
    is_counted = counts.error is None
    return CellCost(
        schema_version=SCHEMA_VERSION,
        cell_id=cell.cell_id,
        backbone=cell.backbone,
        dataset=cell.dataset,
        head=cell.head,
        recipe=cell.recipe,
        stage=cell.stage,
        axes=cell.axes,
        runs=figures.completed,
        planned=figures.planned,
        score=_mean(figures.scores),
        parameters=counts.parameters if is_counted else None,
        head_parameters=counts.head_parameters if is_counted else None,
        multiply_adds=counts.multiply_adds if is_counted else None,
        images_seen=None if (made := cell.settings) is None else made.images_seen,
        passes=None if made is None else made.passes,
        images_per_s=None if used is None else used.images_per_s,
        step_s=None if used is None else used.step_s,
        step_std_s=None if used is None else used.step_std_s,
        time_ratio=_ratio(baseline, used),
        peak_memory_bytes=None if used is None else used.peak_memory_bytes,
        gpu_hours=_mean(figures.gpu_hours),
        run_hours=_mean(figures.run_hours),
        error=counts.error,
    )


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None


def _ratio(baseline: Efficiency | None, used: Efficiency | None) -> float | None:
    """Return the time for an image by the baseline's; None where one was not measured."""
    if baseline is None or used is None or not baseline.images_per_s or not used.images_per_s:
        return None
    return baseline.images_per_s / used.images_per_s


def counts_of(cells: Mapping[str, CellSettings]) -> dict[str, Counts]:
    """Return what can be counted of models, by the same keys; what was counted once is kept.

    Raises:
        NoAnswer: the models could not be made.
    """
    keys = {name: _key(settings) for name, settings in cells.items()}
    path = cache_folder() / _CACHE
    known = _kept(read_cache(path))
    missing = {keys[name]: cells[name] for name in cells if keys[name] not in known}
    if missing:
        answer = ask_tool("counts", missing, timeout_s=TIMEOUT_S)
        fresh = from_plain(answer, dict[str, Counts])
        # Errors are not kept: they may come from a broken installation.
        known |= {key: one for key, one in fresh.items() if one.error is None}
        write_over(path, to_json(to_plain(known)))
        known |= fresh
    return {name: known[key] for name, key in keys.items()}


def _kept(content: Mapping[str, object]) -> dict[str, Counts]:
    try:
        return from_plain(dict(content), dict[str, Counts])
    except ValueError:
        # Of another version: counted anew.
        return {}


def _key(settings: CellSettings) -> str:
    """Return what the counts depend on, as a hash."""
    parts = (changed(settings.backbone, weights=None), settings.shape, settings.head)
    return digest(canonical([to_plain(part) for part in parts]))
