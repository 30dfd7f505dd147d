"""What lets one process at a time serve this machine's queue."""

import fcntl
import os
from pathlib import Path

from ....jobs.atomic_files import open_file


class RunnerLock:
    """The lock of the one runner; entering says whether it was free, and then holds it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._handle = -1

    def __enter__(self) -> bool:
        # Not inherited by agents: the lock must be free when the runner is gone.
        self._handle = open_file(self._path, os.O_RDWR)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def __exit__(self, *_: object) -> None:
        os.close(self._handle)
