"""How a rank tells its agent that it makes progress."""

import time
from collections.abc import Callable
from typing import Any

# A mark is told at most so often.
EVERY_S = 1.0
# What is told at once: it may be the last word before something hangs.
_AT_ONCE = ("data", "model", "resume", "checkpoint", "compile")


class Marks:
    """Tells phases, not too often.

    Args:
        report: takes an event.
        position: gives where training is.
        compiles: whether the model is compiled.
    """

    def __init__(
        self,
        report: Callable[..., None],
        position: Callable[[], dict[str, Any]],
        *,
        compiles: bool,
    ) -> None:
        self._report, self._position, self._compiles = report, position, compiles
        self._marked_at = time.monotonic()
        self._compiled: set[str] = set()

    def mark(self, phase: str) -> None:
        """Tell the agent that this rank makes progress."""
        now = time.monotonic()
        if phase in _AT_ONCE or now - self._marked_at >= EVERY_S:
            self._marked_at = now
            self._report("mark", phase=phase, **self._position())

    def first_time(self, of: str) -> None:
        """Say that what comes next is compiled at its first time, which takes minutes."""
        if self._compiles and of not in self._compiled:
            self._compiled.add(of)
            self.mark("compile")
