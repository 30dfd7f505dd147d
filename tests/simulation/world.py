"""A simulated time.

Events in order, one source of randomness, and everything that happened as one hash.
"""

import hashlib
import heapq
import random
from collections import deque
from collections.abc import Callable
from typing import Any

# An arbitrary Monday; the product sees nothing but seconds since 1970.
BEGIN = 1_767_600_000.0


class World:
    """The clock that everything in one history reads, and what is still to happen."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.now = BEGIN
        self.recent: deque[str] = deque(maxlen=400)
        # For the message of a history that failed.
        self._hash = hashlib.sha256()
        self._events: list[tuple[float, int, Callable[..., Any], tuple[Any, ...]]] = []
        self._count = 0

    def __call__(self) -> float:
        return self.now

    def after(self, seconds: float, action: Callable[..., Any], *arguments: Any) -> None:
        """Have something happen later."""
        self._count += 1
        heapq.heappush(self._events, (self.now + seconds, self._count, action, arguments))

    def run_until(self, at: float) -> None:
        """Let happen what is due until then; may be called from within what happens."""
        while self._events and self._events[0][0] <= at:
            due, _, action, arguments = heapq.heappop(self._events)
            self.now = max(self.now, due)
            action(*arguments)
        self.now = max(self.now, at)

    def note(self, text: str) -> None:
        """Take down what happened."""
        line = f"{self.now - BEGIN:10.2f} {text}"
        self._hash.update(line.encode())
        self.recent.append(line)

    def fingerprint(self) -> str:
        """Return the hash of all that happened."""
        return self._hash.hexdigest()

    # Chance ---------------------------------------------------------------------------------------

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def between(self, low: float, high: float) -> float:
        return self.random.uniform(low, high)


class Tokens:
    """Stands in for the module `secrets`: names that one seed repeats."""

    def __init__(self, world: World) -> None:
        self.world = world

    def token_hex(self, count: int) -> str:
        return self.world.random.randbytes(count).hex()
