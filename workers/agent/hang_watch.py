"""How long ranks have been silent, measured against what is usual for them."""

import statistics
from collections import deque
from collections.abc import Iterable

HANG_FACTOR = 10
# Whoever has not looked for so long did not run itself: the whole job was suspended, and silence
# proves nothing.
SUSPENDED_S = 10.0
# A rank that compiles its model says nothing for minutes, so much more patience is due.
COMPILE_FACTOR = 6


class Pulse:
    """The signs of progress of a run's ranks on this node."""

    def __init__(self, hang_s: float) -> None:
        self._hang_s = hang_s
        self._marks: dict[int, float] = {}
        # Of ranks that announced a long silence: the factor by which it may be longer.
        self._patience: dict[int, int] = {}
        self._gaps: deque[float] = deque(maxlen=200)
        self._looked_at: float | None = None

    def begin(self, rank: int, now: float) -> None:
        """Start to watch a rank."""
        self._marks[rank] = now

    def beat(self, rank: int, now: float, patience: int = 1) -> None:
        """Take note that a rank has said something.

        Args:
            rank: which.
            now: on the monotonic clock.
            patience: the factor by which it may be silent for longer until it speaks again.
        """
        # An announced silence says nothing about the usual ones.
        if self._patience.get(rank, 1) == 1:
            self._gaps.append(now - self._marks[rank])
        self._marks[rank], self._patience[rank] = now, patience

    def silence(self, ranks: Iterable[int], now: float) -> float:
        """Return for how long one of these ranks has been silent, or 0 where that is not unusual;
        ask often.
        """
        if self._looked_at is not None and (missed := now - self._looked_at) > SUSPENDED_S:
            self._marks = {rank: at + missed for rank, at in self._marks.items()}
        self._looked_at = now
        usual = statistics.median(self._gaps) if self._gaps else 0.0
        limit = max(HANG_FACTOR * usual, self._hang_s)
        silent = {rank: now - self._marks[rank] for rank in ranks}
        too_long = [
            gap for rank, gap in silent.items() if gap > limit * self._patience.get(rank, 1)
        ]
        return max(too_long, default=0.0)
