"""The files of a set of images that is decoded once for a workspace.

Each appears whole or not at all, and one process at a time makes it, so that ranks and runs that
need the same set share the work. A killed process loses the file that it was working on.
"""

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy

from ...jobs.atomic_files import open_file

# Images in a file.
SEGMENT = 2048
# How long a file that somebody else works on is waited for. Its maker may be suspended.
PATIENCE_S = 120.0
POLL_S = 0.2
LEFTOVER_S = 3600.0

Put = Callable[[int, bytes], None]
"""Takes the place of a first byte, and bytes."""
Fill = Callable[[int, int, Put], None]
"""Decodes the images from one number up to another, and puts their bytes where they belong."""


class Files:
    """What a decoded set consists of, and what of it is still to be made.

    Args:
        folder: of the set; it must be there.
        shape: of an image.
        images: in the set.
        fill: decodes them.
        maker: a name of who makes them, unlike any other one's.
        on_wait: called while others are waited for.
    """

    def __init__(
        self,
        folder: Path,
        shape: tuple[int, ...],
        images: int,
        *,
        fill: Fill,
        maker: str,
        on_wait: Callable[[], None],
    ) -> None:
        self.folder, self._fill, self._maker, self._on_wait = folder, fill, maker, on_wait
        sizes = [min(SEGMENT, images - start) for start in range(0, images, SEGMENT)]
        self._shapes = [(size, *shape) for size in sizes]
        self._missing: Sequence[int] = range(len(sizes))
        self._since = time.monotonic()

    def are_whole(self) -> bool:
        """Whether all files are there."""
        return all(map(self._is_whole, range(len(self._shapes))))

    def make_free(self) -> None:
        """Make all files that are missing and that nobody works on.

        Raises:
            DataError: an image is damaged.
            OSError: a file system failed.
        """
        for number in range(len(self._shapes)):
            self._make(number, is_late=False)

    def advance(self) -> bool:
        """Make one file, or wait a moment while others make all that are left.

        Returns:
            Whether all files are there.

        Raises:
            DataError: an image is damaged.
            OSError: a file system failed.
        """
        left = [number for number in self._missing if not self._is_whole(number)]
        if len(left) < len(self._missing):
            self._since = time.monotonic()
        self._missing = left
        is_late = time.monotonic() - self._since > PATIENCE_S
        if left and not any(self._make(number, is_late=is_late) for number in left):
            self._on_wait()
            time.sleep(POLL_S)
        return not left

    def mapped(self) -> list[numpy.memmap]:
        """Return the files' images, [images, *shape] uint8 each; all files must be there."""
        return [
            numpy.memmap(self._path(number), dtype=numpy.uint8, mode="r", shape=shape)
            for number, shape in enumerate(self._shapes)
        ]

    def remove_unfinished(self) -> None:
        """Remove what its maker has begun, and what others left when they were killed.

        A living one writes to its own every few seconds.
        """
        for staged in self.folder.glob(".*.u8-*"):
            with contextlib.suppress(FileNotFoundError):
                is_old = time.time() - staged.stat().st_mtime > LEFTOVER_S
                if is_old or staged.name.endswith(f"-{self._maker}"):
                    staged.unlink()

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:05d}.u8"

    def _is_whole(self, number: int) -> bool:
        try:
            size = self._path(number).stat().st_size
        except FileNotFoundError:
            return False
        return size == int(numpy.prod(self._shapes[number]))

    def _make(self, number: int, *, is_late: bool) -> bool:
        """Whether a file is there, after it was made here if nobody else works on it."""
        if self._is_whole(number):
            return True
        with _locked(self.folder / f"{number:05d}.lock") as is_ours:
            if not is_ours and not is_late:
                return False
            # Its maker may have finished between the look and the lock.
            if not self._is_whole(number):
                self._write(number)
        return True

    def _write(self, number: int) -> None:
        path, start = self._path(number), number * SEGMENT
        staged = path.with_name(f".{path.name}-{self._maker}")
        handle = open_file(staged, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
        try:
            self._fill(start, start + self._shapes[number][0], partial(_write_at, handle))
            # Without it a machine that fails could leave a file of the right length and no content.
            os.fsync(handle)
            os.rename(staged, path)
        except BaseException:
            staged.unlink(missing_ok=True)
            raise
        finally:
            os.close(handle)


def _write_at(handle: int, place: int, content: bytes) -> None:
    """Write all bytes from a place of a file on, whatever other processes write."""
    written = 0
    while written < len(content):
        written += os.pwrite(handle, content[written:], place + written)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[bool]:
    """Yield whether nobody else works on a file; the lock ends with its process."""
    handle = open_file(path, os.O_CREAT | os.O_RDWR)
    try:
        yield _is_free(handle)
    finally:
        os.close(handle)


def _is_free(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        # A file system without locks: two may decode the same images, and each file is right.
        return True
    return True
