"""What an agent sleeps on: signals, and what its processes say."""

import os
import selectors
import signal
from collections.abc import Collection


class Wake:
    """A pipe into which every signal writes a byte, so that none between two looks is missed."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        for handle in (self._read, self._write):
            os.set_blocking(handle, False)

    def up_by_signals(self) -> None:
        """Let signals of this process write into it; for the main thread."""
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)

    def wait(self, handles: Collection[int], most_s: float) -> None:
        """Sleep until a signal comes, a handle can be read, or so many seconds have gone by."""
        with selectors.DefaultSelector() as selector:
            for handle in {self._read, *handles}:
                selector.register(handle, selectors.EVENT_READ)
            selector.select(most_s)
        try:
            os.read(self._read, 1 << 10)
        except BlockingIOError:
            return
