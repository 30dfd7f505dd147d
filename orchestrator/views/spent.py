"""What runs cost, by who or what had them: what `vtjobs usage` shows."""

import datetime
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ...db.engine import reading
from ...db.gpu_hours import GpuHours, added
from ...db.worked import Worked, worked
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


@dataclass(slots=True)
class _Sum:
    runs: set[str] = field(default_factory=set)
    attempts: int = 0
    hours: float = 0.0
    parts: list[GpuHours] = field(default_factory=list)


def _week(one: Worked) -> str:
    """Return the ISO week in which an attempt started, UTC."""
    day = datetime.datetime.fromtimestamp(one.started_at, datetime.UTC)
    year, week, _ = day.isocalendar()
    return f"{year}-W{week:02d}"


KEYS: Mapping[str, Callable[[Worked], str]] = {
    "user": lambda one: one.user or "unknown",
    "grid": lambda one: one.grid_id,
    "backbone": lambda one: one.backbone,
    "dataset": lambda one: one.dataset,
    "head": lambda one: one.head,
    "week": _week,
    "host": lambda one: one.host or "unknown",
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
        attempts = worked(connection, selection)
    return [_grouped(attempts, by) for by in ways]


def _grouped(attempts: Iterable[Worked], by: list[str]) -> list[Spent]:
    sums: dict[tuple[str, ...], _Sum] = {}
    for one in attempts:
        found = sums.setdefault(tuple(KEYS[key](one) for key in by), _Sum())
        found.runs.add(one.run_id)
        found.attempts += 1
        found.hours += one.hours
        found.parts.append(one.gpu_hours)
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
