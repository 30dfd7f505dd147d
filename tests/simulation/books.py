"""Accounting as it was measured: right in the end, and late.

It may be off, away, or behind after it was away.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .profile import Profile
from .world import World

if TYPE_CHECKING:
    from .cluster import Element, Job


@dataclass(slots=True)
class Entry:
    """What accounting knows of one job."""

    job: Job
    pending: set[int]
    rows: dict[int, tuple[str, float | None, str]] = field(default_factory=dict)
    told_until: float = 0.0
    """News of one job arrives in order."""


class Books:
    """slurmdbd and what sacct shows of it."""

    def __init__(self, world: World, profile: Profile) -> None:
        self.world = world
        self.profile = profile
        self.is_up = True
        self._is_behind = False
        self.by_token: dict[str, list[Entry]] = {}
        self._entries: dict[int, Entry] = {}
        self._told: dict[int, float] = {}
        self._waiting: list[tuple[Any, ...]] = []

    def opened(self, job: Job) -> None:
        self._later(job, self._open, job)

    def changed(self, element: Element, word: str) -> None:
        self._later(element.job, self._change, element, word, element.ended_at, element.node)

    def vanished(self, element: Element) -> None:
        """A pending element was cancelled: it leaves no row, unless it was the job's last one."""
        self._later(element.job, self._vanish, element)

    def put_back(self, element: Element) -> None:
        """A job that had started waits in the queue again."""
        self._later(element.job, self._put_back, element)

    def _later(self, job: Job, action: Any, *arguments: Any) -> None:
        late = self.world.between(0.6, 4.4)
        if self.world.chance(self.profile.slow_books):
            late += self.world.between(5.0, 15.0)
        at = max(self.world.now + late, self._told.get(job.id, 0.0))
        self._told[job.id] = at
        self.world.after(at - self.world.now, self._tell, action, *arguments)

    def _tell(self, action: Any, *arguments: Any) -> None:
        if self.is_up and not self._is_behind:
            action(*arguments)
        else:
            self._waiting.append((action, *arguments))

    def up(self) -> None:
        """Come back; what happened meanwhile is written down seconds later."""
        self.is_up = self._is_behind = True
        self.world.after(self.world.between(2.0, self.profile.catch_up_s), self._catch_up)

    def _catch_up(self) -> None:
        if self.is_up:
            self._is_behind = False
            waiting, self._waiting = self._waiting, []
            for action, *arguments in waiting:
                action(*arguments)

    def unsent(self) -> int:
        """What the controller still has to tell."""
        return len(self._waiting)

    def _open(self, job: Job) -> None:
        entry = Entry(job, {element.index for element in job.elements})
        self._entries[job.id] = entry
        self.by_token.setdefault(job.token, []).append(entry)

    def _change(self, element: Element, word: str, ended_at: float | None, node: str) -> None:
        entry = self._entries.get(element.job.id)
        if entry is not None:
            entry.pending.discard(element.index)
            entry.rows[element.index] = (word, ended_at, node)

    def _put_back(self, element: Element) -> None:
        entry = self._entries.get(element.job.id)
        if entry is not None:
            entry.rows.pop(element.index, None)
            entry.pending.add(element.index)

    def _vanish(self, element: Element) -> None:
        entry = self._entries.get(element.job.id)
        if entry is None:
            return
        entry.pending.discard(element.index)
        if not entry.job.is_array or not (entry.pending or entry.rows):
            entry.rows[element.index] = ("CANCELLED by 1000", element.ended_at, "None assigned")

    def text(self, names: set[str] | None) -> str:
        """Return what sacct prints for jobs of these names."""
        lines: list[str] = []
        for token in self.by_token if names is None else sorted(names):
            for entry in self.by_token.get(token, ()):
                lines += _lines(entry)
        return "\n".join(lines)


def _lines(entry: Entry) -> list[str]:
    job, found = entry.job, []
    if entry.pending:
        element = f"{job.id}_[{ranges(entry.pending)}]" if job.is_array else str(job.id)
        found.append(f"{element}|PENDING|0:0|Unknown|None assigned|None|{job.token}")
    for index, (word, ended_at, node) in sorted(entry.rows.items()):
        element = f"{job.id}_{index}" if job.is_array else str(job.id)
        end = "Unknown" if ended_at is None else f"{ended_at:.0f}"
        found.append(f"{element}|{word}|0:0|{end}|{node}|None|{job.token}")
    return found


def ranges(indices: set[int]) -> str:
    """Write indices as SLURM does: 0-3,7."""
    parts: list[list[int]] = []
    for index in sorted(indices):
        if parts and parts[-1][1] == index - 1:
            parts[-1][1] = index
        else:
            parts.append([index, index])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in parts)
