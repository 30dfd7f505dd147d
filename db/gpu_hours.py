"""What became of the GPU-hours of attempts, derived from what the ledger knows of them anyway."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, select

from ..jobs.documents import Document
from ..jobs.run.states import LIVE, AttemptState
from ..jobs.values import asdict
from . import models as m
from .parts import in_parts

_FAILED = (AttemptState.FAILED, AttemptState.OUT_OF_MEMORY)
_FACTS = (
    "run_id",
    "number",
    "state",
    "gpus",
    "per_gpu",
    "started_at",
    "ended_at",
    "heartbeat_at",
    "resumed_attempt",
    "resumed_step",
    "token",
    "host",
)
_NOTHING_KEPT = (*_FAILED, AttemptState.SUPERSEDED)
_ALL_USEFUL = frozenset((AttemptState.COMPLETED, *LIVE))

Saved = Mapping[int, float]
"""Step -> when its checkpoint was saved."""


class GpuHours(Document, frozen=True, kw_only=True):
    """Hours of attempts times their GPUs, by what became of them.

    Of a GPU that runs share, each counts its part.
    """

    useful: float
    """Of attempts that completed or run; of others, until the checkpoint that is kept of them."""
    lost: float
    """After that checkpoint, of attempts that were stopped or lost."""
    failed: float
    """The same, of attempts that failed."""
    superseded: float
    """The same, of attempts that another one had replaced."""

    @property
    def total(self) -> float:
        return self.useful + self.lost + self.failed + self.superseded


def added(parts: Iterable[GpuHours]) -> GpuHours:
    """Return the sum."""
    sums: dict[str, float] = dict.fromkeys(GpuHours.__struct_fields__, 0.0)
    for part in parts:
        for name, hours in asdict(part).items():
            sums[name] += hours
    return GpuHours(**{name: round(hours, 4) for name, hours in sums.items()})


def gpu_hours(connection: Connection, run_ids: Iterable[str]) -> dict[str, dict[int, GpuHours]]:
    """Return run -> attempt -> what became of its GPU-hours."""
    return {rows[0].run_id: hours for rows, hours in by_run(connection, run_ids)}


def by_run(
    connection: Connection, run_ids: Iterable[str]
) -> Iterator[tuple[list[Any], dict[int, GpuHours]]]:
    """Yield the attempts at each run that was tried, and what became of their GPU-hours."""
    tried, point = m.attempts.c, m.checkpoints.c
    for part in in_parts(run_ids):
        attempts: dict[str, list[Any]] = defaultdict(list)
        query = select(*(tried[name] for name in _FACTS)).where(tried.run_id.in_(part))
        for row in connection.execute(query.order_by(tried.run_id, tried.number)):
            attempts[row.run_id].append(row)
        saved: dict[str, dict[int, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
        # Of the others, which are most, every second counts.
        wanted = point.run_id.in_(part) & tried.state.not_in(_ALL_USEFUL)
        mine = (tried.run_id == point.run_id) & (tried.number == point.attempt)
        points = select(point.run_id, point.attempt, point.step, point.at)
        for row in connection.execute(points.join(m.attempts, mine).where(wanted)):
            saved[row.run_id][row.attempt][row.step] = row.at
        for run_id, rows in attempts.items():
            yield rows, of_run(rows, saved[run_id])


def of_run(attempts: Sequence[Any], saved: Mapping[int, Saved]) -> dict[int, GpuHours]:
    """Return attempt -> what became of its GPU-hours.

    Args:
        attempts: rows of the attempts at one run, oldest first.
        saved: attempt -> its checkpoints; those of attempts that completed may be left out.
    """
    return {
        attempt.number: _of_attempt(attempt, attempts[place + 1 :], saved.get(attempt.number, {}))
        for place, attempt in enumerate(attempts)
    }


def worked_until(attempt: Any) -> float:
    """Return until when an attempt is known to have worked, in seconds since 1970.

    When a lost one was noticed says nothing; its last sign of life does.
    """
    seen: float = attempt.heartbeat_at or attempt.started_at
    return seen if attempt.ended_at is None else min(attempt.ended_at, seen)


def _of_attempt(attempt: Any, later: Sequence[Any], saved: Saved) -> GpuHours:
    hours = dict.fromkeys(GpuHours.__struct_fields__, 0.0)
    if attempt.started_at is not None:
        end = worked_until(attempt)
        kept = _kept_until(attempt, end, later, saved)
        gpus_h = attempt.gpus / attempt.per_gpu / 3600
        hours["useful"] = round(gpus_h * max(0.0, kept - attempt.started_at), 6)
        hours[_word(attempt.state)] += round(gpus_h * max(0.0, end - kept), 6)
    return GpuHours(**hours)


def _kept_until(attempt: Any, end: float, later: Sequence[Any], saved: Saved) -> float:
    """Return until when the run still has what an attempt did."""
    began: float = attempt.started_at
    heirs = [other for other in later if other.resumed_attempt == attempt.number]
    if attempt.state in _ALL_USEFUL or any(heir.resumed_step is None for heir in heirs):
        # An heir without a step found that this one, given up for lost, had completed.
        return end
    if heirs:
        most = heirs[-1].resumed_step
    elif attempt.state in _NOTHING_KEPT or any(other.started_at is not None for other in later):
        return began
    else:
        most = max(saved, default=0)
    return min(end, max((at for step, at in saved.items() if step <= most), default=began))


def _word(state: str) -> str:
    if state in _FAILED:
        return "failed"
    return "superseded" if state == AttemptState.SUPERSEDED else "lost"
