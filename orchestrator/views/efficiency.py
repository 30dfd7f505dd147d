"""What runs use of what they asked for: what `vtjobs eff` shows, a row for each cell."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...db import queries
from ...db.engine import reading
from ...db.records import AttemptRow, RunRow
from ...jobs.documents import Document
from ...jobs.run.selector import Selection
from ...jobs.run.spec import Axes
from ...jobs.units import format_duration
from ...jobs.workspace.grid_settings import GridSettings
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
    walltime_s: int | None
    """Of one allocation, as asked for."""
    allocation_s: float | None
    """How long the longest allocation was at work."""
    run_s: float | None
    """Mean time of a run, over all its attempts."""
    images_per_s: float | None
    """Median over runs."""
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
    rss_bytes: int | None
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
        tried = queries.attempts_of_runs(connection, [row.run_id for row in rows])
    now = context.clock()
    begun = {
        run_id: kept
        for run_id, attempts in tried.items()
        if (kept := [attempt for attempt in attempts if attempt.started_at is not None])
    }
    of_cell: dict[str, list[RunRow]] = {}
    for row in rows:
        if row.run_id in begun:
            of_cell.setdefault(row.cell_id, []).append(row)
    return [_of_cell(members, begun, settings, now) for members in of_cell.values()]


def _of_cell(
    members: Sequence[RunRow],
    begun: Mapping[str, Sequence[AttemptRow]],
    settings: Mapping[str, GridSettings],
    now: float,
) -> Efficiency:
    first = members[0]
    attempts = [attempt for row in members for attempt in begun[row.run_id]]
    # Of a run that was tried again, what it used last.
    latest = [begun[row.run_id][-1] for row in members]
    asked = settings[first.grid_id].resources
    facts: dict[str, Any] = {
        "walltime_s": asked.walltime,
        "allocation_s": _longest_allocation(attempts, now),
        "images_per_s": _median(latest, "images_per_s"),
        "data_wait": _median(latest, "data_wait"),
        "gpu_utilisation": _median(latest, "gpu_utilisation"),
        "peak_memory_bytes": _most(attempts, "peak_memory_bytes"),
        "gpu_used_bytes": _most(attempts, "gpu_used_bytes"),
        "cpu_cores": _median(latest, "cpu_cores"),
        "rss_bytes": _most(attempts, "rss_bytes"),
    }
    seconds = [sum(_seconds(one, now) for one in begun[row.run_id]) for row in members]
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
        run_s=statistics.fmean(seconds),
        advice=advice(facts, are_over=all(attempt.ended_at for attempt in attempts)),
        **facts,
    )


def advice(facts: Mapping[str, Any], *, are_over: bool) -> list[str]:
    """Return what to change.

    Args:
        facts: fields of an `Efficiency`.
        are_over: whether all attempts have ended, so that their allocations are known whole.
    """
    found: list[str] = []
    wait, busy, used = facts["data_wait"], facts["gpu_utilisation"], facts["allocation_s"]
    if (used or 0.0) < LEAST_S:
        return found
    if wait is not None and wait >= DATA_WAIT:
        found.append(
            f"{100 * wait:.0f} % of training is spent waiting for data: give each rank more CPU"
            " cores (resources.threads)"
        )
    if busy is not None and busy < IDLE_GPU:
        found.append(f"the GPU is busy {100 * busy:.0f} % of the time: some sites cancel such jobs")
    if are_over and facts["walltime_s"] and used < SHORT_TIME * facts["walltime_s"]:
        found.append(
            f"{format_duration(facts['walltime_s'])} were asked for and {format_duration(used)}"
            " used: a shorter resources.walltime starts sooner"
        )
    return found


def _seconds(attempt: AttemptRow, now: float) -> float:
    return max(0.0, (attempt.ended_at or now) - (attempt.started_at or now))


def _longest_allocation(attempts: Iterable[AttemptRow], now: float) -> float | None:
    """Return the longest time from the first start to the last end in one place."""
    spans: dict[tuple[str, int], tuple[float, float]] = {}
    for attempt in attempts:
        begin, end = attempt.started_at or now, attempt.ended_at or now
        place = attempt.token, attempt.array_index
        known = spans.get(place, (begin, end))
        spans[place] = min(begin, known[0]), max(end, known[1])
    return max((end - begin for begin, end in spans.values()), default=None)


def _figures(attempts: Iterable[AttemptRow], name: str) -> list[Any]:
    values = [getattr(attempt.usage, name) for attempt in attempts if attempt.usage is not None]
    return [value for value in values if value is not None]


def _median(attempts: Iterable[AttemptRow], name: str) -> float | None:
    values = _figures(attempts, name)
    return float(statistics.median(values)) if values else None


def _most(attempts: Iterable[AttemptRow], name: str) -> int | None:
    return max(_figures(attempts, name), default=None)
