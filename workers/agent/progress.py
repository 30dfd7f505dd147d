"""How far an attempt has come, and when that is worth a record."""

from typing import Any

# How often progress is journalled: every few seconds, and of a short run every twentieth of it.
PROGRESS_S = 5.0
PROGRESS_SHARE = 0.05


class Progress:
    """The place of an attempt in its training, as rank 0 tells it.

    Args:
        now: monotonic seconds.
    """

    def __init__(self, now: float) -> None:
        self.position: dict[str, int] = {}
        """Epoch, step and number of steps, as far as they are known."""
        self._told_at = now
        # The step that the last record has; None before the first one.
        self._told_step: int | None = None

    def mark(self, event: dict[str, Any], now: float) -> bool:
        """Take in a step; return whether it is time for the next record."""
        self.position = {name: event[name] for name in ("epoch", "step", "steps")}
        if not self._is_due(now):
            return False
        self._told_at, self._told_step = now, event["step"]
        return True

    def reach(self, event: dict[str, Any]) -> None:
        """Take in the place of an event that is recorded by itself."""
        self.position |= {name: event[name] for name in ("epoch", "step") if name in event}

    def _is_due(self, now: float) -> bool:
        if self._told_step is None or now - self._told_at >= PROGRESS_S:
            return True
        return self.position["step"] - self._told_step >= PROGRESS_SHARE * self.position["steps"]
