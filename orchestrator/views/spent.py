"""What runs cost, by who or what had them: what `vtjobs usage` shows."""

import datetime
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ...db import queries
from ...db.allocations import contents_of
from ...db.engine import reading
from ...db.gpu_hours import GpuHours, added, gpu_hours, worked_until
from ...db.records import AttemptRow, RunRow
from ...jobs.documents import Document
from ...jobs.errors import BadInput, suggest
from ...jobs.run.selector import Selection
from ..loop.context import Context

SCHEMA_VERSION = 1


class Spent(Document, frozen=True, kw_only=True):
    """What became of the time of one group's attempts."""

    schema_version: int
    group: dict[str, str]
    """Name of a key -> its value in this group."""
    runs: int
    """Runs that have started."""
    attempts: int
    """How many of them."""
    run_hours: float
    """Hours that attempts worked, up to their last sign of life, whatever their GPUs."""
    gpu_hours: GpuHours
    """The same hours times the GPUs of each attempt, by what became of them."""


@dataclass(frozen=True, slots=True)
class _Tried:
    """One attempt, with what it can be grouped by."""

    run: RunRow
    attempt: AttemptRow
    grid_id: str
    """That it was submitted for; its run may be another grid's by now."""
    user: str


@dataclass(slots=True)
class _Sum:
    runs: set[str] = field(default_factory=set)
    attempts: int = 0
    hours: float = 0.0
    parts: list[GpuHours] = field(default_factory=list)


def _week(one: _Tried) -> str:
    """Return the ISO week in which an attempt started, UTC."""
    day = datetime.datetime.fromtimestamp(one.attempt.started_at or 0.0, datetime.UTC)
    year, week, _ = day.isocalendar()
    return f"{year}-W{week:02d}"


KEYS: Mapping[str, Callable[[_Tried], str]] = {
    "user": lambda one: one.user,
    "grid": lambda one: one.grid_id,
    "backbone": lambda one: one.run.backbone,
    "dataset": lambda one: one.run.dataset,
    "head": lambda one: one.run.head,
    "week": _week,
    "host": lambda one: one.attempt.host or "unknown",
}
"""What attempts can be grouped by."""


def spent(context: Context, selection: Selection, by: list[str]) -> list[Spent]:
    """Return what the selected runs cost, the group with the most hours first.

    Args:
        context: workspace and ledger.
        selection: of runs.
        by: keys; groups are their combinations.

    Raises:
        BadInput: there is no such key.
        NothingMatched: no run is selected.
    """
    return spent_by(context, selection, [by])[0]


def spent_by(
    context: Context, selection: Selection, ways: Sequence[list[str]]
) -> list[list[Spent]]:
    """Return the same for several ways to group, read once; see `spent`."""
    for key in (key for by in ways for key in by):
        if key not in KEYS:
            raise BadInput(f"--by {key}: unknown. {suggest(key, KEYS)}")
    with reading(context.ledger.engine) as connection:
        rows = queries.list_runs(connection, selection)
        run_ids = [row.run_id for row in rows]
        users = {
            grid_id: found.submitted_by or "unknown"
            for grid_id, found in queries.grid_settings(connection).items()
        }
        tried = queries.attempts_of_runs(connection, run_ids)
        tokens = {attempt.token for attempts in tried.values() for attempt in attempts}
        grids = {
            (token, task.run_id): task.grid_id
            for token, content in contents_of(connection, tokens).items()
            for task in content.all_tasks
        }
        hours = gpu_hours(connection, run_ids)
    started = []
    for row in rows:
        for attempt in tried.get(row.run_id, ()):
            if attempt.started_at is not None:
                grid_id = grids.get((attempt.token, row.run_id), row.grid_id)
                started.append(_Tried(row, attempt, grid_id, users.get(grid_id, "unknown")))
    return [_grouped(started, hours, by) for by in ways]


def _grouped(
    started: Iterable[_Tried], hours: Mapping[str, Mapping[int, GpuHours]], by: list[str]
) -> list[Spent]:
    sums: dict[tuple[str, ...], _Sum] = {}
    for one in started:
        found = sums.setdefault(tuple(KEYS[key](one) for key in by), _Sum())
        found.runs.add(one.run.run_id)
        found.attempts += 1
        found.hours += max(0.0, worked_until(one.attempt) - (one.attempt.started_at or 0.0)) / 3600
        found.parts.append(hours[one.run.run_id][one.attempt.number])
    groups = [
        Spent(
            schema_version=SCHEMA_VERSION,
            group=dict(zip(by, values, strict=True)),
            runs=len(found.runs),
            attempts=found.attempts,
            run_hours=round(found.hours, 4),
            gpu_hours=added(found.parts),
        )
        for values, found in sums.items()
    ]
    return sorted(groups, key=lambda one: (-one.gpu_hours.total, -one.run_hours))
