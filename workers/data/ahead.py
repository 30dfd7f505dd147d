"""Sets of images that are decoded while the model trains, by a process beside it."""

import multiprocessing
import os
import signal
import sys
from dataclasses import dataclass, field, replace
from multiprocessing.context import ForkProcess
from typing import Self

from torch import Tensor

from .decoded import Decoded, Decoder, Fit
from .image_set import ImageSet
from .loader_process import start_worker

# How far its processes stand back where there are too few cores: they get a tenth of what a
# process of the training gets.
NICENESS = 10
# How long it may take to remove what it has half done.
PATIENCE_S = 5.0


class Later:
    """Images that are decoded, or mapped, when they are first asked for."""

    def __init__(self, decoder: Decoder, images: ImageSet, fit: Fit) -> None:
        self.decoder, self.images, self.fit = decoder, images, fit
        self._found: Decoded | None = None

    def say_used(self) -> None:
        """Keep the set's files from being removed as unused, once they are mapped."""
        if self._found is not None:
            self._found.say_used()

    def rows(self, start: int, stop: int) -> Tensor:
        """Return the images start … stop - 1 as [N, C, size, size] uint8.

        Raises:
            DataError: an image is damaged.
            OSError: the file system of the images failed.
        """
        return self.ready().rows(start, stop)

    def ready(self) -> Decoded:
        """Decode here what the process has not, and return the whole."""
        if self._found is None:
            self._found = self.decoder.decode(self.images, self.fit)
        return self._found


@dataclass(slots=True, kw_only=True)
class Ahead:
    """Leaves the sets of a workspace that are not decoded yet to a process beside this one.

    The process works within a `with` block. What it does not do, for whatever reason, is done here
    when it is needed.
    """

    decoder: Decoder
    _wanted: list[Later] = field(default_factory=list)
    _process: ForkProcess | None = None

    def keeps(self, images: ImageSet, fit: Fit) -> bool:
        """Whether the decoded set is large enough to be kept for other runs."""
        return self.decoder.keeps(images, fit)

    def decode(self, images: ImageSet, fit: Fit) -> Decoded | Later:
        """Return the images at the size that is asked for, at once if nothing is to be decoded.

        Raises:
            DataError: an image of a set that is not kept is damaged.
            OSError: the file system of its images failed.
        """
        if not self.keeps(images, fit) or self.decoder.is_made(images, fit):
            return self.decoder.decode(images, fit)
        self._wanted.append(Later(self.decoder, images, fit))
        return self._wanted[-1]

    def __enter__(self) -> Self:
        if self._wanted:
            fork = multiprocessing.get_context("fork")
            self._process = fork.Process(target=_make, args=(self._wanted, os.getpid()))
            self._process.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        if self._process is not None:
            # It removes what it has half done.
            self._process.terminate()
            self._process.join(PATIENCE_S)
            self._process.kill()
            self._process.join()
            self._process = None

    def check(self) -> None:
        """Find out whether the process has failed; if so, decode here what it could not.

        Raises:
            DataError: an image is damaged.
            OSError: the file system of the images failed.
        """
        if self._process is not None and self._process.exitcode is not None:
            self.finish()

    def finish(self) -> None:
        """Have all sets ready, and no process.

        Raises:
            DataError: an image is damaged.
            OSError: the file system of the images failed.
        """
        for one in self._wanted:
            one.ready()
        self._wanted.clear()
        self._end()


def _make(wanted: list[Later], rank: int) -> None:
    start_worker(0)
    told: list[int] = []
    # Looked at between images: an exception out of a handler may come where Python swallows it.
    signal.signal(signal.SIGTERM, lambda number, _: told.append(number))
    if os.getppid() != rank:
        return
    os.nice(NICENESS)

    def leave_if_told() -> None:
        if told:
            sys.exit(0)

    try:
        for one in wanted:
            # In place of the rank's marks: nobody waits for this process.
            replace(one.decoder, on_progress=leave_if_told).make(one.images, one.fit)
    except Exception:
        # The rank comes upon the same image, or file system, and says so.
        sys.exit(1)
