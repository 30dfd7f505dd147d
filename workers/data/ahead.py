"""Sets of images that are decoded while the model trains, by a process beside it."""

import multiprocessing
import os
import sys
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess
from typing import Self

from torch import Tensor

from ..errors import DataError
from .decoded import Decoded, Decoder, Fit
from .decoded_files import Files
from .image_set import ImageSet
from .loader_process import start_worker

# How far its processes stand back where there are too few cores: they get a tenth of what a
# process of the training gets.
NICENESS = 10


class Later:
    """Images that are decoded, or mapped, when they are needed."""

    def __init__(self, decoder: Decoder, images: ImageSet, fit: Fit) -> None:
        self.decoder = decoder
        # Let go of once they are decoded.
        self.given: tuple[ImageSet, Fit] | None = (images, fit)
        self._files: Files | None = None
        self._found: Decoded | None = None

    def advance(self) -> bool:
        """Decode a file of what is missing; return whether the whole is ready.

        Raises:
            DataError: an image is damaged.
            OSError: the file system of the images failed.
        """
        if self.given is None:
            return True
        try:
            self._files = self._files or self.decoder.begun(*self.given)
            if not self._files.advance():
                return False
        except OSError:
            # It is tried once more, and then kept in memory.
            pass
        self._found = self.decoder.decode(*self.given)
        self.given = self._files = None
        return True

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
        while not self.advance():
            pass
        assert self._found is not None
        return self._found.rows(start, stop)


@dataclass(slots=True, kw_only=True)
class Ahead:
    """Leaves the sets of a workspace that are not decoded yet to a process beside this one.

    The process works within a `with` block. What it does not do, for whatever reason, is done here
    when it is needed.
    """

    decoder: Decoder
    _wanted: list[Later] = field(default_factory=list)
    _process: ForkProcess | None = None
    _answer: Connection | None = None

    def keeps(self, images: ImageSet, fit: Fit) -> bool:
        """Whether the decoded set is large enough to be kept for other runs."""
        return self.decoder.keeps(images, fit)

    def decode(self, images: ImageSet, fit: Fit) -> Decoded | Later:
        """Return the images at the size that is asked for, at once if nothing is to be decoded.

        Raises:
            DataError: an image of a set that is not kept is damaged.
            OSError: the file system of its images failed.
        """
        if not self.keeps(images, fit) or self.decoder.files(images, fit).are_whole():
            return self.decoder.decode(images, fit)
        self._wanted.append(Later(self.decoder, images, fit))
        return self._wanted[-1]

    def __enter__(self) -> Self:
        # Without memory or a number for one more process there is none.
        with suppress(OSError):
            if self._wanted:
                self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def check(self) -> None:
        """Find out, at little cost, whether the process came upon a damaged image.

        Raises:
            DataError: it did.
        """
        if self._answer is None or not self._answer.poll():
            return
        try:
            fault = self._answer.recv()
        except EOFError:
            # It has done what it could.
            fault = None
        self._end()
        if fault is not None:
            raise fault

    def advance(self) -> bool:
        """Go on in place of the process, by a file; return whether all sets are ready.

        Raises:
            DataError: an image is damaged.
            OSError: the file system of the images failed.
        """
        # It would keep a file locked, and be the last to get a core.
        self._end()
        if self._wanted and self._wanted[0].advance():
            self._wanted.pop(0)
        return not self._wanted

    def _start(self) -> None:
        fork = multiprocessing.get_context("fork")
        answer, theirs = fork.Pipe(duplex=False)
        with theirs:
            process = fork.Process(target=_make, args=(self._wanted, os.getpid(), theirs))
            process.start()
        self._process, self._answer = process, answer

    def _end(self) -> None:
        if self._process is None or self._answer is None:
            return
        self._process.kill()
        self._process.join()
        self._answer.close()
        self._process = self._answer = None
        for one in self._wanted:
            if one.given is not None:
                self.decoder.files(*one.given).remove_unfinished()


def _make(wanted: list[Later], rank: int, answer: Connection) -> None:
    """Decode what nobody else does; say which image is damaged."""
    start_worker(0)
    if os.getppid() != rank:
        return
    os.nice(NICENESS)
    try:
        for one in wanted:
            if one.given is not None:
                # Marks are the rank's: nobody waits for this process.
                replace(one.decoder, on_progress=lambda: None).begun(*one.given).make_free()
    except DataError as error:
        answer.send(error)
    except Exception:
        # Such as a full disk: the rank comes upon it when it needs the images.
        sys.exit(1)
