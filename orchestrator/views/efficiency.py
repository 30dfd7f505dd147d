"""What runs use of what they asked for: what `vtjobs eff` shows, a row for each cell."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...db import allocations, lookups, queries
from ...db.allocations import Span
from ...db.engine import reading
from ...db.gpu_hours import worked_until
from ...db.records import AttemptRow, CellRow, RunRow
from ...jobs.documents import Document
from ...jobs.grid.policy_names import OF_PILLOW
from ...jobs.run.selector import Selection
from ...jobs.run.spec import Axes
from ...jobs.run.states import RunState
from ...jobs.units import format_duration
from ...jobs.workspace.allocation import MOST_PER_GPU
from ..loop.context import Context

SCHEMA_VERSION = 1
# From this share of waiting on, more cores are worth their price.
DATA_WAIT = 0.25
# Below this share a GPU counts as idle; sites cancel such jobs.
IDLE_GPU = 0.15
# An allocation that used less than this share of its time asks for too much.
SHORT_TIME = 0.5
# What is measured over less time than this says little.
LEAST_S = 300.0


class Efficiency(Document, frozen=True, kw_only=True):
    """What the attempts of one cell used of what they asked for. What nobody measured is null."""

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
    """Runs that have started."""
    gpus: int
    """GPUs that each of them asked for, on all its nodes."""
    per_gpu: int
    """Runs that share each of them."""
    walltime_s: int | None
    """Of one allocation, as the newest one of its grid asked for it."""
    allocation_s: float | None
    """How long the longest allocation of the grid was at work, whatever cells it hosted."""
    run_s: float | None
    """Mean time of the runs that completed, over all their attempts."""
    images_per_s: float | None
    """Median over runs."""
    step_s: float | None
    """Seconds of an optimizer step with its batch, after the first ten: median over runs."""
    step_std_s: float | None
    """Standard deviation of the steps of a run: median over runs."""
    data_wait: float | None
    """Share of training, 0 to 1, spent waiting for data: median over runs."""
    gpu_utilisation: float | None
    """Share of the time, 0 to 1, in which a kernel ran: median over runs."""
    peak_memory_bytes: int | None
    """The most that PyTorch had allocated on rank 0's GPU."""
    gpu_used_bytes: int | None
    """The most memory in use on one GPU, by whatever process."""
    cpu_cores: float | None
    """CPU time per second on the first node: median over runs."""
    host_memory_bytes: int | None
    """The most memory that a run's processes had in use on the first node."""
    advice: list[str]
    """What to change, in sentences."""


def efficiency(context: Context, selection: Selection) -> list[Efficiency]:
    """Return what the selected runs used, a row for each cell that has started, in grid order.

    Raises:
        NothingMatched: no run is selected.
    """
    with reading(context.ledger.engine) as connection:
        rows = queries.list_runs(connection, selection)
        settings = queries.grid_settings(connection, {row.grid_id for row in rows})
        cells = queries.cell_rows(connection, {row.cell_id for row in rows}, selection)
        tried = queries.attempts_of_runs(connection, [row.run_id for row in rows])
        spans = allocations.spans(connection, settings)
        # What has yet to start may take the whole walltime.
        over = {one for one in settings if not lookups.unsettled_runs(connection, one)}
    of_grid = {grid_id: [one for one in spans if one.grid_id == grid_id] for grid_id in settings}
    begun = {
        run_id: kept
        for run_id, attempts in tried.items()
        if (kept := [attempt for attempt in attempts if attempt.started_at is not None])
    }
    of_cell: dict[str, list[RunRow]] = {}
    for row in rows:
        if row.run_id in begun:
            of_cell.setdefault(row.cell_id, []).append(row)
    found = []
    for members in of_cell.values():
        grid_id = members[0].grid_id
        more = _of_walltime(grid_id, of_grid[grid_id]) if grid_id in over else []
        cell = cells[members[0].cell_id]
        found.append(_of_cell(cell, members, begun, of_grid[grid_id], more))
    return found


def _of_cell(
    cell: CellRow,
    members: Sequence[RunRow],
    begun: Mapping[str, Sequence[AttemptRow]],
    spans: Sequence[Span],
    more: Sequence[str],
) -> Efficiency:
    first = members[0]
    attempts = [attempt for row in members for attempt in begun[row.run_id]]
    # Of a run that was tried again, what it used last.
    latest = [begun[row.run_id][-1] for row in members]
    facts: dict[str, Any] = {
        "walltime_s": spans[-1].walltime_s if spans else None,
        "allocation_s": max((one.seconds for one in spans), default=None),
        "images_per_s": _median(latest, "images_per_s"),
        **_step(begun[row.run_id] for row in members),
        "data_wait": _median(latest, "data_wait"),
        "gpu_utilisation": _median(latest, "gpu_utilisation"),
        "peak_memory_bytes": _most(attempts, "peak_memory_bytes"),
        "gpu_used_bytes": _most(attempts, "gpu_used_bytes"),
        "cpu_cores": _median(latest, "cpu_cores"),
        "host_memory_bytes": _most(attempts, "host_memory_bytes"),
    }
    completed = [row.run_id for row in members if row.state == RunState.COMPLETED]
    seconds = [sum(map(_worked_s, begun[run_id])) for run_id in completed]
    measured = [attempt for attempt in latest if _worked_s(attempt) >= LEAST_S]
    return Efficiency(
        schema_version=SCHEMA_VERSION,
        cell_id=first.cell_id,
        backbone=first.backbone,
        dataset=first.dataset,
        head=first.head,
        recipe=first.recipe,
        stage=first.stage,
        axes=first.axes,
        runs=len(members),
        gpus=max(attempt.gpus for attempt in attempts),
        per_gpu=attempts[-1].per_gpu,
        run_s=statistics.fmean(seconds) if seconds else None,
        advice=[
            *(_of_use(measured, cell) if measured else []),
            *more,
        ],
        **facts,
    )


def _of_use(attempts: Sequence[AttemptRow], cell: CellRow) -> list[str]:
    """Return what to change about attempts that worked long enough to tell."""
    found: list[str] = []
    wait, busy = _median(attempts, "data_wait"), _median(attempts, "gpu_utilisation")
    if wait is not None and wait >= DATA_WAIT:
        found.append(
            f"{100 * wait:.0f} % of training is spent waiting for data: give each rank more CPU"
            f" cores (resources.threads){_on_the_gpu(attempts, cell)}"
        )
    if busy is not None and busy < IDLE_GPU:
        found.append(
            f"the GPU is busy {100 * busy:.0f} % of the time, and some sites cancel such jobs:"
            f" {_fewer_gpus(attempts)}"
        )
    return found


def _on_the_gpu(attempts: Sequence[AttemptRow], cell: CellRow) -> str:
    """Say that the GPU can do a part of what loader workers do, where it can."""
    settings = cell.settings
    has_gpu = any(attempt.gpus for attempt in attempts)
    if settings is None or not has_gpu or not settings.dataset.has_classes:
        return ""
    recipe, policy = settings.recipe, settings.recipe.auto_augment or ""
    gains = bool(recipe.flip or recipe.color_jitter or policy) or recipe.crop == "resized"
    if recipe.pipeline != "pil" or policy.startswith(OF_PILLOW) or not gains:
        return ""
    return ", or let the GPU augment (train.pipeline: hybrid, which makes new runs)"


def _fewer_gpus(attempts: Sequence[AttemptRow]) -> str:
    if max(attempt.gpus for attempt in attempts) > 1:
        return "train on fewer GPUs"
    shared = 2 * max(attempt.per_gpu for attempt in attempts)
    if shared > MOST_PER_GPU:
        return "train on a smaller GPU"
    return f"let more runs share one, if its memory has room for them (resources.per_gpu: {shared})"


def _of_walltime(grid_id: str, spans: Sequence[Span]) -> list[str]:
    """Return what to change about a grid's walltime, of which all its cells make use."""
    if not spans:
        return []
    walltime, used = spans[-1].walltime_s, max(one.seconds for one in spans)
    if not walltime or used < LEAST_S or used >= SHORT_TIME * walltime:
        return []
    return [
        f"{grid_id} asked for {format_duration(walltime)} and its longest allocation used"
        f" {format_duration(used)}: a shorter resources.walltime starts sooner"
    ]


def _step(runs: Iterable[Sequence[AttemptRow]]) -> dict[str, float | None]:
    """Return seconds of a step, of each run by its newest attempt that timed enough of them."""
    timed = [
        next(one for one in reversed(attempts) if one.usage and one.usage.step_s is not None)
        for attempts in runs
        if any(one.usage and one.usage.step_s is not None for one in attempts)
    ]
    return {name: _median(timed, name) for name in ("step_s", "step_std_s")}


def _worked_s(attempt: AttemptRow) -> float:
    begin = attempt.started_at
    return 0.0 if begin is None else max(0.0, worked_until(attempt) - begin)


def _figures(attempts: Iterable[AttemptRow], name: str) -> list[Any]:
    values = [getattr(attempt.usage, name) for attempt in attempts if attempt.usage is not None]
    return [value for value in values if value is not None]


def _median(attempts: Iterable[AttemptRow], name: str) -> float | None:
    values = _figures(attempts, name)
    return float(statistics.median(values)) if values else None


def _most(attempts: Iterable[AttemptRow], name: str) -> int | None:
    return max(_figures(attempts, name), default=None)
