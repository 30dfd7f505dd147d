"""How long ranks have been silent, measured against what is usual for them."""

import statistics
from collections import deque
from collections.abc import Iterable

HANG_FACTOR = 10
# Whoever has not looked for so long did not run itself: the whole job was suspended, and silence
# proves nothing.
SUSPENDED_S = 10.0


class Pulse:
    """The signs of progress of a run's ranks on this node."""

    def __init__(self, hang_s: float) -> None:
        self._hang_s = hang_s
        self._marks: dict[int, float] = {}
        self._gaps: deque[float] = deque(maxlen=200)
        self._looked_at: float | None = None

    def begin(self, rank: int, now: float) -> None:
        """Start to watch a rank."""
        self._marks[rank] = now

    def beat(self, rank: int, now: float) -> None:
        """Take note that a rank has said something."""
        self._gaps.append(now - self._marks[rank])
        self._marks[rank] = now

    def silence(self, ranks: Iterable[int], now: float) -> float:
        """Return for how long one of these ranks has been silent, or 0 where that is not unusual;
        ask often.
        """
        if self._looked_at is not None and (missed := now - self._looked_at) > SUSPENDED_S:
            self._marks = {rank: at + missed for rank, at in self._marks.items()}
        self._looked_at = now
        silence = max(now - self._marks[rank] for rank in ranks)
        usual = statistics.median(self._gaps) if self._gaps else 0.0
        return silence if silence > max(HANG_FACTOR * usual, self._hang_s) else 0.0
