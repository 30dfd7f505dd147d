"""The progress of a download, or of another long copy, on stderr: bytes and rate."""

import sys
import time

from ...jobs.units import format_bytes

TERMINAL_EVERY_S = 0.5
PLAIN_EVERY_S = 10.0


class Transfer:
    """Report a copy as it goes, called as tqdm is.

    On a terminal one line is written over; elsewhere a new line comes now and then.
    """

    def __init__(self, name: str, *, total: int | None = None, **_: object) -> None:
        self._name = name
        self._total = total
        self._done = 0
        self._began = self._said = time.monotonic()
        self._moves = sys.stderr.isatty()

    def __enter__(self) -> "Transfer":
        return self

    def __exit__(self, *_: object) -> None:
        self._say(end="\n")

    def update(self, count: int) -> None:
        """Add bytes."""
        self._done += count
        now = time.monotonic()
        if now - self._said >= (TERMINAL_EVERY_S if self._moves else PLAIN_EVERY_S):
            self._said = now
            self._say(end="" if self._moves else "\n")

    def _say(self, *, end: str) -> None:
        total = f" of {format_bytes(self._total)}" if self._total else ""
        rate = self._done / max(time.monotonic() - self._began, 1e-3)
        line = f"{self._name}: {format_bytes(self._done)}{total}, {format_bytes(rate)}/s"
        begin = "\r\033[K" if self._moves else ""
        print(f"{begin}{line}", end=end, file=sys.stderr, flush=True)
