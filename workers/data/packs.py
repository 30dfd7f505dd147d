"""Read and write the packs of `jobs.grid.packs`: a split's images in a few tar files."""

import hashlib
import io
import os
import tarfile
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy
import torch
from numpy.typing import NDArray

from ...jobs.atomic_files import fsync_folder
from ...jobs.grid.packs import INDEX_SUFFIX
from ..errors import DataError, DataMissing
from .image_set import ImageSet
from .listed import picture

FORMAT = 1
# A shard of a few gigabytes is read at full speed, and ImageNet has some forty of them.
SHARD_BYTES = 4 << 30
# Names are kept as one row of bytes; no file name has this one.
_BETWEEN_NAMES = "\0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the bytes of an image are."""

    shard: str
    """The name of its tar file."""
    offset: int
    """Of its first byte in the shard."""
    size: int
    """Bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """The images of a split, read from shards that stay open.

    Any number of processes and threads may read at once: a read says where it begins.
    """

    paths: list[Path]
    """Of each image: its shard, and its name in it."""
    places: NDArray[numpy.int64]
    """[N, 3]: which of the shards, the offset in it, and the size, bytes."""
    shards: list[io.FileIO]

    def __getitem__(self, index: int) -> Any:
        """Return a picture as Pillow's.

        Raises:
            DataError: it is damaged, or its shard was cut short; the message names both.
            OSError: the file system failed.
        """
        shard, offset, size = self.places[index].tolist()
        data = _bytes_at(self.shards[shard].fileno(), offset, size)
        if len(data) < size:
            raise DataError(f"image {self.paths[index]} cannot be read: its shard was cut short")
        return picture(data, self.paths[index])


def _bytes_at(handle: int, offset: int, size: int) -> bytes:
    """Read so many bytes; fewer only at the end of the file."""
    found = b""
    while len(found) < size and (more := os.pread(handle, size - len(found), offset + len(found))):
        found += more
    return found


def read_split(index: Path) -> ImageSet:
    """Return a packed split.

    Args:
        index: its file, `<split>.npz`.

    Raises:
        DataMissing: a shard is not there.
        DataError: the index is damaged, or of a newer vtjobs.
    """
    try:
        with numpy.load(index, allow_pickle=False) as read:
            facts = {name: read[name] for name in read.files}
        written, shards = int(facts["format"]), _texts(facts["shards"])
        names, places = _texts(facts["names"]), facts["places"]
        labels = torch.from_numpy(facts["labels"])
        marks = {
            name: torch.from_numpy(facts[name]) for name in ("answers", "only") if name in facts
        }
    except (ValueError, KeyError, EOFError, OSError, zipfile.BadZipFile) as error:
        raise DataError(f"{index} is damaged: {error}. {_remedy(index)}") from error
    if written != FORMAT:
        raise DataError(f"{index} has format {written}; this vtjobs reads {FORMAT}")
    try:
        handles = [io.FileIO(index.with_name(shard)) for shard in shards]
    except FileNotFoundError as error:
        raise DataMissing(f"{error.filename} is not there. {_remedy(index)}") from error
    paths = [
        index.with_name(shards[shard]) / name
        for shard, name in zip(places[:, 0].tolist(), names, strict=True)
    ]
    found = Packed(paths=paths, places=places, shards=handles)
    return ImageSet(labels=labels, reader=found.__getitem__, files=paths, **marks)


def _remedy(index: Path) -> str:
    return f"Remove {index.parent} and pack the dataset again"


def _texts(row: NDArray[numpy.uint8]) -> list[str]:
    joined = row.tobytes().decode("utf-8", "surrogateescape")
    return joined.split(_BETWEEN_NAMES) if joined else []


def _as_row(texts: Iterable[str]) -> NDArray[numpy.uint8]:
    joined = _BETWEEN_NAMES.join(texts).encode("utf-8", "surrogateescape")
    return numpy.frombuffer(joined, numpy.uint8)


@dataclass(slots=True, kw_only=True)
class Packer:
    """Writes images into shards, and for each split an index of its own."""

    folder: Path
    shard_bytes: int = SHARD_BYTES
    _places: dict[str, Place] = field(default_factory=dict)

    def lacks(self, names: Iterable[str]) -> list[str]:
        """Return which images are in no shard yet: two splits may share some."""
        return [name for name in dict.fromkeys(names) if name not in self._places]

    def add(self, split: str, images: Iterator[tuple[str, bytes]]) -> None:
        """Write images in this order into shards of a split, each with its name in the tar file."""
        waiting, number = next(images, None), 0
        while waiting is not None:
            waiting = self._fill_shard(f"{split}-{number:03d}", waiting, images)
            number += 1

    def _fill_shard(
        self, title: str, first: tuple[str, bytes], images: Iterator[tuple[str, bytes]]
    ) -> tuple[str, bytes] | None:
        """Write images until a shard is full; return the first that has no room."""
        part = self.folder / f".{title}.part"
        spans: dict[str, tuple[int, int]] = {}
        digest, end = hashlib.sha256(), 0
        one: tuple[str, bytes] | None = first
        with part.open("wb") as stream:
            while one is not None and (end == 0 or end + len(one[1]) <= self.shard_bytes):
                name, data = one
                header, padding = _around(name, len(data))
                for piece in (header, data, padding):
                    stream.write(piece)
                    digest.update(piece)
                spans[name] = (end + len(header), len(data))
                end += len(header) + len(data) + len(padding)
                one = next(images, None)
            # A tar file ends with two empty blocks.
            stream.write(bytes(2 * tarfile.BLOCKSIZE))
            stream.flush()
            os.fsync(stream.fileno())
        # What is decoded from a shard is kept under its name: other images, another name.
        shard = f"{title}-{digest.hexdigest()[:12]}.tar"
        part.rename(self.folder / shard)
        for name, (offset, size) in spans.items():
            self._places[name] = Place(shard=shard, offset=offset, size=size)
        return one

    def finish(self, split: str, names: Sequence[str], images: ImageSet) -> None:
        """Write a split's index.

        Args:
            split: what it is called.
            names: of its images, all of which are in shards.
            images: the split; its labels, and which classes are right, are kept.
        """
        found = [self._places[name] for name in names]
        used = dict.fromkeys(place.shard for place in found)
        shards = {shard: number for number, shard in enumerate(used)}
        rows = [(shards[place.shard], place.offset, place.size) for place in found]
        marks = {
            name: tensor.numpy()
            for name, tensor in (("answers", images.answers), ("only", images.only))
            if tensor is not None
        }
        with (self.folder / f"{split}{INDEX_SUFFIX}").open("wb") as stream:
            numpy.savez_compressed(
                stream,
                format=numpy.int64(FORMAT),
                names=_as_row(names),
                places=numpy.array(rows, numpy.int64).reshape(-1, 3),
                shards=_as_row(shards),
                labels=images.labels.numpy(),
                **marks,
            )
            stream.flush()
            os.fsync(stream.fileno())
        fsync_folder(self.folder)


def _around(name: str, size: int) -> tuple[bytes, bytes]:
    """Return what a tar file has before and after a member's bytes."""
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, 0o644
    header = member.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")
    return header, bytes(-size % tarfile.BLOCKSIZE)
