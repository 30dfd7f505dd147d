"""What runs cost, by who or what had them: what `vtjobs usage` shows."""

import datetime
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ...db import queries
from ...db.engine import reading
from ...db.gpu_hours import GpuHours, added, gpu_hours
from ...db.records import AttemptRow, RunRow
from ...jobs.documents import Document
from ...jobs.errors import BadInput, suggest
from ...jobs.run.selector import Selection
from ...jobs.workspace.grid_settings import GridSettings
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
    """Hours that attempts ran, whatever their GPUs."""
    gpu_hours: GpuHours


@dataclass(frozen=True, slots=True)
class _Tried:
    """One attempt, with what it can be grouped by."""

    run: RunRow
    attempt: AttemptRow
    settings: GridSettings


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
    "user": lambda one: one.settings.submitted_by or "unknown",
    "grid": lambda one: one.run.grid_id,
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
    for key in by:
        if key not in KEYS:
            raise BadInput(f"--by {key}: unknown. {suggest(key, KEYS)}")
    with reading(context.ledger.engine) as connection:
        rows = queries.list_runs(connection, selection)
        run_ids = [row.run_id for row in rows]
        settings = queries.grid_settings(connection, {row.grid_id for row in rows})
        tried = queries.attempts_of_runs(connection, run_ids)
        hours = gpu_hours(connection, run_ids)
    now = context.clock()
    sums: dict[tuple[str, ...], _Sum] = {}
    for row in rows:
        for attempt in tried.get(row.run_id, ()):
            if attempt.started_at is None:
                continue
            one = _Tried(row, attempt, settings[row.grid_id])
            found = sums.setdefault(tuple(KEYS[key](one) for key in by), _Sum())
            found.runs.add(row.run_id)
            found.attempts += 1
            found.hours += max(0.0, (attempt.ended_at or now) - attempt.started_at) / 3600
            found.parts.append(hours[row.run_id][attempt.number])
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
