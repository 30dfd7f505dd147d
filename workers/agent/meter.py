"""What an attempt uses on this node, from running totals: however long it runs, a few numbers."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...jobs.workspace.journal import Line
from .cards import Cards, cards
from .processes import use_of_trees

MOST_S = 30.0
FIRST_S = 1.0


class Meter:
    """Looks at an attempt's processes and cards, and adds what it saw to what rank 0 says.

    The first look is after a second, so that short runs have one; each further one when the attempt
    is twice as old, or after half a minute.
    """

    def __init__(
        self,
        gpus: Sequence[str] = (),
        *,
        clock: Callable[[], float] = time.monotonic,
        watched: Cards | None = None,
    ) -> None:
        self._clock, self._began = clock, clock()
        self._due = self._began + FIRST_S
        self._gpus = gpus
        self._cards = cards() if watched is None else watched
        self._cards.want(gpus)
        self._trained: dict[str, Any] = {}
        # Process -> CPU seconds of this attempt when it was last seen.
        self._cpu_s: dict[int, float] = {}
        self._cpu_cores: float | None = None
        self._host_memory_bytes: int | None = None
        # What was seen of the cards before this attempt is not its own.
        newest = self._cards.newest
        self._looks = {gpu: newest[gpu].number if gpu in newest else 0 for gpu in gpus}
        self._utilisations = 0
        self._busy = 0.0
        self._used_bytes: int | None = None

    def look(self, ranks: Mapping[int, float]) -> None:
        """Look at the ranks and at the cards, where a look is due.

        Args:
            ranks: the process of each -> CPU seconds that it had spent before this attempt.
        """
        self._take_cards()
        now = self._clock()
        if now >= self._due:
            age = now - self._began
            self._due = now + min(age, MOST_S)
            self._take_processes(ranks, age)

    def _take_processes(self, ranks: Mapping[int, float], age_s: float) -> None:
        try:
            uses = use_of_trees(ranks)
        except (OSError, ValueError, IndexError):
            # Not a /proc that we know.
            return
        if not uses:
            return
        for pid, use in uses.items():
            # Never less: a child's time is nobody's between its end and its parent's wait.
            spent_s = use.cpu_s - ranks[pid]
            self._cpu_s[pid] = max(spent_s, self._cpu_s.get(pid, 0.0))
        self._cpu_cores = round(sum(self._cpu_s.values()) / age_s, 3)
        host_memory_bytes = sum(use.memory_bytes for use in uses.values())
        self._host_memory_bytes = max(host_memory_bytes, self._host_memory_bytes or 0)

    def _take_cards(self) -> None:
        newest = self._cards.newest
        for gpu in self._gpus:
            use = newest.get(gpu)
            if use is None or use.number <= self._looks[gpu]:
                continue
            self._looks[gpu] = use.number
            if use.utilisation is not None:
                self._utilisations += 1
                self._busy += use.utilisation
            if use.used_bytes is not None:
                self._used_bytes = max(use.used_bytes, self._used_bytes or 0)

    def complete(self, event: Line) -> None:
        """Add what was seen here to an event of rank 0 that says what its training uses."""
        if "usage" in event:
            self._trained = event["usage"]
            event["usage"] = self.usage

    @property
    def usage(self) -> dict[str, Any]:
        """What is known so far, as the journal's `Usage` names it; without what is not known."""
        seen = {
            "gpu_utilisation": round(self._busy / self._utilisations, 3)
            if self._utilisations
            else None,
            "gpu_used_bytes": self._used_bytes,
            "cpu_cores": self._cpu_cores,
            "host_memory_bytes": self._host_memory_bytes,
        }
        every = {**self._trained, **seen}
        return {name: value for name, value in every.items() if value is not None}
