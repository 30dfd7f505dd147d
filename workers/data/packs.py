"""Read and write packed splits, as `jobs.grid.pack_places` lays them out."""

import hashlib
import io
import os
import tarfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, overload

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...jobs.atomic_files import fsync_folder, open_file, read_cache, to_json, write_over
from ...jobs.documents import to_plain
from ...jobs.grid.pack_places import CONTENTS_SUFFIX, FORMAT, Contents
from ..errors import STORAGE_ERRORS, DataError
from .image_set import ImageSet
from .listed import picture

# A shard of a few gigabytes is read at full speed, and ImageNet has some forty of them.
SHARD_BYTES = 4 << 30
# Names are kept as one row of bytes; no file name has this character.
_BETWEEN_NAMES = "\0"

# The name of a tar file, the offset of an image in it, and the image's size, both in bytes.
Place = tuple[str, int, int]


# Reading ------------------------------------------------------------------------------------------


class Paths(Sequence[Path]):
    """The image files of a pack, each below the tar file that it lies in; made when asked for."""

    def __init__(self, shards: Sequence[Path], shard_of: Sequence[int], names: Sequence[str]):
        """List the files.

        Args:
            shards: the tar files.
            shard_of: of each image, which of them.
            names: of the images in their tar files.
        """
        self._shards, self._shard_of, self._names = shards, shard_of, names

    def __len__(self) -> int:
        return len(self._names)

    @overload
    def __getitem__(self, index: int) -> Path: ...
    @overload
    def __getitem__(self, index: slice) -> "Paths": ...
    def __getitem__(self, index: int | slice) -> "Path | Paths":
        if isinstance(index, slice):
            return Paths(self._shards, self._shard_of[index], self._names[index])
        return self._shards[self._shard_of[index]] / self._names[index]


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """The images of a split, read from tar files that stay open.

    Processes that are forked from this one, and threads, may all read at once: a read says where it
    begins.
    """

    paths: Paths
    places: NDArray[numpy.int64]
    """[N, 3]: which of the tar files, the offset in it, and the size, bytes."""
    shards: Sequence[io.FileIO]
    """The tar files."""

    def __getitem__(self, index: int) -> Any:
        """Return a picture as Pillow's.

        Raises:
            DataError: it is damaged, or its tar file was cut short; the message names both.
            OSError: the file system failed.
        """
        shard, offset, size = self.places[index].tolist()
        data = _bytes_at(self.shards[shard].fileno(), offset, size)
        if len(data) < size:
            raise DataError(f"image {self.paths[index]} cannot be read: its tar file was cut short")
        return picture(data, self.paths[index])


def _bytes_at(handle: int, offset: int, size: int) -> bytes:
    """Read so many bytes; fewer only at the end of the file."""
    found = b""
    while len(found) < size and (more := os.pread(handle, size - len(found), offset + len(found))):
        found += more
    return found


def read_split(folder: Path, contents: Contents) -> ImageSet:
    """Return a packed split.

    Args:
        folder: of a packed dataset.
        contents: of the split.

    Raises:
        DataError: the index is damaged.
        OSError: a file is gone, or the file system failed.
    """
    path = folder / contents.index
    try:
        with numpy.load(path, allow_pickle=False) as read:
            facts = {name: read[name] for name in read.files}
        shards, names, places = _texts(facts["shards"]), _texts(facts["names"]), facts["places"]
        marks = {
            name: torch.from_numpy(facts[name]) for name in ("answers", "only") if name in facts
        }
        labels: Tensor = torch.from_numpy(facts["labels"])
    except (FileNotFoundError, PermissionError, MemoryError):
        raise
    except Exception as error:
        # Of a damaged file zipfile, zlib and NumPy raise whatever they come across.
        if isinstance(error, OSError) and error.errno in STORAGE_ERRORS:
            raise
        raise DataError(f"the index {path} of a packed dataset is damaged: {error}") from error
    opened = [io.FileIO(folder / shard) for shard in shards]
    paths = Paths([folder / shard for shard in shards], places[:, 0].tolist(), names)
    found = Packed(paths=paths, places=places, shards=opened)
    return ImageSet(labels=labels, reader=found.__getitem__, files=paths, **marks)


def _texts(row: NDArray[numpy.uint8]) -> list[str]:
    joined = row.tobytes().decode("utf-8", "surrogateescape")
    return joined.split(_BETWEEN_NAMES) if joined else []


def _as_row(texts: Iterable[str]) -> NDArray[numpy.uint8]:
    joined = _BETWEEN_NAMES.join(texts).encode("utf-8", "surrogateescape")
    return numpy.frombuffer(joined, numpy.uint8)


# Writing ------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class Packer:
    """Writes splits of one dataset. Nobody else may write into its folder meanwhile."""

    folder: Path
    shard_bytes: int = SHARD_BYTES
    _kept: dict[str, Place] = field(default_factory=dict, init=False)
    """Images that another split may have as well."""

    def lacks(self, names: Iterable[str]) -> list[str]:
        """Return which images are in no tar file that is known here."""
        return [name for name in dict.fromkeys(names) if name not in self._kept]

    def pack(
        self,
        split: str,
        names: Sequence[str],
        images: ImageSet,
        *,
        read: Callable[[Sequence[str]], Iterator[bytes]],
        is_shared: bool = False,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """Write a split.

        Args:
            split: what it is called.
            names: of its images, in their tar files.
            images: the split; its labels, and which classes are right, are kept.
            read: yields the bytes of the images of these names, in their order.
            is_shared: whether another split, packed later, has some of these images.
            check: called before the split can be seen; it is not if this raises.

        Raises:
            OSError: it cannot be written; what was there before still is.
        """
        places = self._kept | self._write(split, self.lacks(names), read)
        found = [places[name] for name in names]
        index, shards = self._write_index(split, names, found, images)
        check()
        sizes = {name: (self.folder / name).stat().st_size for name in (index, *shards)}
        contents = to_plain(Contents(format=FORMAT, index=index, sizes=sizes))
        write_over(self.folder / f"{split}{CONTENTS_SUFFIX}", to_json(contents))
        if is_shared:
            self._kept.update(zip(names, found, strict=True))

    def _write(
        self, split: str, names: Sequence[str], read: Callable[[Sequence[str]], Iterator[bytes]]
    ) -> dict[str, Place]:
        """Write images into tar files of a split; return where each is."""
        images, found, number = zip(names, read(names), strict=True), dict[str, Place](), 0
        waiting = next(images, None)
        while waiting is not None:
            places, waiting = self._fill_shard(f"{split}-{number:03d}", waiting, images)
            found |= places
            number += 1
        return found

    def _fill_shard(
        self, title: str, first: tuple[str, bytes], images: Iterator[tuple[str, bytes]]
    ) -> tuple[dict[str, Place], tuple[str, bytes] | None]:
        """Fill a tar file with images; return their places, and the first that had no room."""
        spans: dict[str, tuple[int, int]] = {}
        digest, end = hashlib.sha256(), 0
        one: tuple[str, bytes] | None = first
        part = self.folder / f"{title}.part"
        with open(open_file(part, os.O_WRONLY | os.O_TRUNC), "wb") as stream:
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
        shard = f"{title}-{digest.hexdigest()[:12]}.tar"
        part.rename(self.folder / shard)
        return {name: (shard, *span) for name, span in spans.items()}, one

    def _write_index(
        self, split: str, names: Sequence[str], places: Sequence[Place], images: ImageSet
    ) -> tuple[str, list[str]]:
        """Write a split's index; return its name, and the tar files that the images are in."""
        shards = list(dict.fromkeys(shard for shard, _, _ in places))
        number = {shard: at for at, shard in enumerate(shards)}
        rows = [(number[shard], offset, size) for shard, offset, size in places]
        marks = {
            name: tensor.numpy()
            for name, tensor in (("answers", images.answers), ("only", images.only))
            if tensor is not None
        }
        written = io.BytesIO()
        numpy.savez_compressed(
            written,
            names=_as_row(names),
            places=numpy.array(rows, numpy.int64).reshape(-1, 3),
            shards=_as_row(shards),
            labels=images.labels.numpy(),
            **marks,
        )
        data = written.getvalue()
        index = f"{split}-{hashlib.sha256(data).hexdigest()[:12]}.npz"
        write_over(self.folder / index, data)
        return index, shards

    def tidy(self) -> None:
        """Remove what no split consists of: older tar files, and what killed attempts left."""
        fsync_folder(self.folder)
        used = set[str]()
        for path in self.folder.glob(f"*{CONTENTS_SUFFIX}"):
            sizes = read_cache(path).get("sizes")
            if not isinstance(sizes, dict):
                # Damaged, or of another vtjobs: nobody knows what it consists of.
                return
            used |= sizes.keys()
        for path in self.folder.iterdir():
            is_ours = path.suffix in (".tar", ".npz", ".part") or path.name.startswith(".")
            if is_ours and path.name not in used:
                path.unlink()


def _around(name: str, size: int) -> tuple[bytes, bytes]:
    """Return what a tar file has before and after a member's bytes."""
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, 0o644
    header = member.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")
    return header, bytes(-size % tarfile.BLOCKSIZE)
