"""A split's images at one size: decoded once for a workspace, then mapped by every run.

Small sets are decoded into memory. A large one lies in `decoded/<key>/` in files of `SEGMENT`
images.
"""

import contextlib
import hashlib
import math
import mmap
import os
import secrets
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...jobs.atomic_files import make_folder
from ...jobs.workspace.decoded_sets import make_room, touch
from .decoded_files import SEGMENT, Files, Put
from .image_set import ImageSet
from .loader_process import FROM_WORKER, FromWorker, start_worker

FORMAT = 2
# Images that a process decodes at a time.
CHUNK = 32
# A set of this size is decoded in a few seconds; keeping it would not be worth its files.
SMALL_BYTES = 64 << 20
# How many files of a set are asked whether they have changed.
SAMPLED_FILES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """How images of any size become squares, as torchvision's Resize and CenterCrop do it."""

    size: int
    """Side of the square, pixels."""
    kernel: str
    """bilinear or bicubic, Pillow's antialiased ones."""
    crop_pct: float = 1.0
    """The share of the shorter side that the centre crop keeps."""

    def keeps(self, images: ImageSet) -> bool:
        """Whether all images have this form already."""
        shape = () if images.images is None else images.images.shape[2:]
        return tuple(shape) == (self.size, self.size) and self.shorter_side == self.size

    @property
    def shorter_side(self) -> int:
        """Of the whole image, pixels; rounded down as timm and the published programs do."""
        return math.floor(self.size / self.crop_pct)

    def __call__(self, image: Any) -> Tensor:
        """Return a Pillow image as [C, size, size] uint8."""
        from torchvision.transforms import InterpolationMode
        from torchvision.transforms import functional as F

        resized = F.resize(image, self.shorter_side, InterpolationMode(self.kernel))
        shown: Tensor = F.pil_to_tensor(F.center_crop(resized, self.size))
        return shown


class _Chunks(torch.utils.data.Dataset[FromWorker | None]):
    """Item = None, after a few neighbouring images were decoded and put where they belong, or why
    one of them cannot be read.

    Args:
        images: of which those from `start` to `stop` - 1 are decoded.
        fit: their form.
        start: the first one.
        stop: the one behind the last.
        put: takes them, the place of a byte being that behind the first one of `start`. It is
            called in the loader's processes, so it must reach what they share with this one.
    """

    def __init__(
        self,
        images: ImageSet,
        fit: Fit,
        start: int,
        stop: int,
        put: Put,
    ) -> None:
        self.images, self.fit, self.put = images, fit, put
        self.starts = range(start, stop, CHUNK)
        self.stop = stop

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, item: int) -> FromWorker | None:
        start = self.starts[item]
        try:
            shown = [self._image(index) for index in range(start, min(start + CHUNK, self.stop))]
            self.put(
                (start - self.starts[0]) * shown[0].numel(), torch.stack(shown).numpy().tobytes()
            )
        except FROM_WORKER as error:
            return error
        return None

    def _image(self, index: int) -> Tensor:
        image = self.images.pil(index)
        return self.fit(
            image if self.images.images is not None else image.convert(self.images.mode)
        )


class Decoded:
    """Decoded images: in memory, or mapped from a workspace's files."""

    def __init__(self, parts: Sequence[Any], sized: int, folder: Path | None = None) -> None:
        self._parts = parts
        self._sized = sized
        self._folder = folder

    def say_used(self) -> None:
        """Keep the set's files from being removed as unused."""
        if self._folder is not None:
            touch(self._folder)

    def rows(self, start: int, stop: int) -> Tensor:
        """Return the images start … stop - 1 as [N, C, size, size] uint8."""
        found = []
        for number in range(start // self._sized, -(-stop // self._sized)):
            low, high = max(start - number * self._sized, 0), stop - number * self._sized
            part = self._parts[number][low : min(high, self._sized)]
            # A copy, since mapped pages cannot be written.
            found.append(part if isinstance(part, Tensor) else torch.from_numpy(part.copy()))
        return found[0] if len(found) == 1 else torch.cat(found)


@dataclass(slots=True, kw_only=True)
class Decoder:
    """Decodes sets of images for one rank."""

    folder: Path | None = None
    """Where decoded sets are kept; None: in memory."""
    workers: int = 0
    """Processes beside this one."""
    limit_bytes: int = 0
    """What all kept sets may take."""
    on_progress: Callable[[], None] = lambda: None
    """Called after each few images, and while another process is waited for."""
    maker: str = field(default_factory=lambda: secrets.token_hex(6))
    """A name unlike that of any other decoder, for the files that it has under way."""

    def keeps(self, images: ImageSet, fit: Fit) -> bool:
        """Whether the decoded set is large enough to be kept for other runs."""
        is_known = images.images is not None or images.files is not None
        large = _bytes_of(images, fit) > SMALL_BYTES
        return self.folder is not None and is_known and large and not fit.keeps(images)

    def decode(self, images: ImageSet, fit: Fit) -> Decoded:
        """Return the images at the size that is asked for.

        Raises:
            DataError: an image is damaged.
            OSError: the file system of the images failed.
        """
        if fit.keeps(images):
            assert images.images is not None
            return Decoded([images.images], len(images))
        if self.folder is not None and self.keeps(images, fit):
            try:
                files = self.begun(images, fit)
                while not files.advance():
                    pass
                return Decoded(files.mapped(), SEGMENT, files.folder)
            except OSError as error:
                text = f"decoded images are kept in memory: {error.strerror or error}"
                print(text, file=sys.stderr, flush=True)
        return Decoded([self._in_memory(images, fit)], len(images))

    def _in_memory(self, images: ImageSet, fit: Fit) -> Tensor:
        # Anonymous memory that forked processes share; /dev/shm is often small.
        memory = mmap.mmap(-1, _bytes_of(images, fit))

        def put(place: int, content: bytes) -> None:
            memory[place : place + len(content)] = content

        self._decode(images, fit, 0, len(images), put)
        whole = torch.frombuffer(memory, dtype=torch.uint8, count=_bytes_of(images, fit))
        return whole.view(len(images), _channels(images), fit.size, fit.size)

    def _decode(
        self,
        images: ImageSet,
        fit: Fit,
        start: int,
        stop: int,
        put: Put,
    ) -> None:
        workers = self.workers if _bytes_of(images, fit) > SMALL_BYTES else 0
        loader = torch.utils.data.DataLoader(
            _Chunks(images, fit, start, stop, put),
            batch_size=None,
            num_workers=workers,
            worker_init_fn=start_worker,
            multiprocessing_context="fork" if workers else None,
            # Of its own: a draw from torch's would depend on who decodes.
            generator=torch.Generator(),
        )
        for fault in loader:
            self.on_progress()
            if isinstance(fault, FROM_WORKER):
                raise fault

    # Kept sets ------------------------------------------------------------------------------------

    def files(self, images: ImageSet, fit: Fit) -> Files:
        """Return the files of a kept set, which may be missing."""
        assert self.folder is not None
        return Files(
            self.folder / _key(images, fit),
            (_channels(images), fit.size, fit.size),
            len(images),
            fill=partial(self._decode, images, fit),
            maker=self.maker,
            on_wait=self.on_progress,
        )

    def begun(self, images: ImageSet, fit: Fit) -> Files:
        """Return the files of a kept set, for which a folder and room are there.

        Raises:
            OSError: the folder cannot be written, or the set does not fit the limit.
        """
        found = self.files(images, fit)
        kept = found.folder.parent
        if not found.folder.exists():
            make_room(kept, _bytes_of(images, fit), self.limit_bytes)
        make_folder(kept)
        make_folder(found.folder)
        touch(found.folder)
        found.remove_unfinished()
        return found


def _channels(images: ImageSet) -> int:
    return len(images.mode) if images.images is None else images.images.shape[1]


def _bytes_of(images: ImageSet, fit: Fit) -> int:
    return len(images) * _channels(images) * fit.size**2


def _key(images: ImageSet, fit: Fit) -> str:
    """Return a name that differs where a pixel might."""
    import PIL

    digest = hashlib.blake2b(digest_size=10)
    digest.update(repr((FORMAT, fit, PIL.__version__, len(images), _channels(images))).encode())
    if images.images is not None:
        digest.update(images.images.contiguous().numpy().tobytes())
    for path in images.files or ():
        digest.update(os.fsencode(path) + b"\0")
    # Enough to see that a dataset was prepared again, without a look at each file. A packed one has
    # none, but its tar files are named after what is in them.
    sampled = list(images.files or ())
    for path in sampled[:: max(1, len(sampled) // SAMPLED_FILES)]:
        with contextlib.suppress(OSError):
            facts = path.stat()
            digest.update(repr((facts.st_size, facts.st_mtime_ns)).encode())
    return digest.hexdigest()
