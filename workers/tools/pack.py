"""Pack a dataset: copy its images into a few large files, from which runs then read them."""

import errno
import fcntl
import os
import shutil
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from ...jobs.atomic_files import make_folder, open_file
from ...jobs.errors import BadInput
from ...jobs.grid import catalogue
from ...jobs.grid.dataset_files import with_same_files
from ...jobs.grid.pack_places import is_packed, pack_folder
from ...jobs.run.settings import DatasetSettings
from ...jobs.units import format_bytes, plural
from ..data.datasets import load, load_files, pack_name
from ..data.image_set import ImageSet
from ..data.packs import Packer
from ..errors import DataError, DataMissing
from .transfer import Transfer

# Files that are read at once: on a shared file system each waits for an answer.
_AT_ONCE = 16
# Files that are read ahead, and held in memory.
_READ_AHEAD = 64
# Files whose sizes stand for those of all.
_SAMPLED = 256
# Of a tar file, bytes: an image takes whole blocks, and one more for its name.
_BLOCK = 512


def pack(dataset: DatasetSettings, root: Path, *, source: Path, is_same: Callable[[], bool]) -> str:
    """Pack the splits of a dataset whose files are there; return what is told of it.

    Each split can be read as soon as it is whole. What was packed before stays until then, and for
    good where its own files are gone.

    Args:
        dataset: whose images have classes.
        root: the data folder.
        source: the folder that all its images lie below.
        is_same: whether the files are still what the dataset's fingerprint says.

    Raises:
        BadInput: its images lie in few files already, or have masks or objects.
        DataError: it cannot be read or written, or there is no room for it.
    """
    if not dataset.has_classes:
        what = "masks" if dataset.has_masks else "objects"
        raise BadInput(f"--pack: the images of {dataset.name} have {what} beside them")
    if dataset.name == "folder" and _is_readable(dataset, root):
        # Its fingerprint says that nothing has changed.
        return _told(dataset, root)

    def check() -> None:
        if not is_same():
            raise DataError(f"{source} changed while it was packed. Pack it again")

    folder = pack_folder(root, pack_name(dataset))
    try:
        parts = _parts(dataset, root, source)
        waiting = next(parts, None)
        with _alone(folder):
            packer = Packer(folder=make_folder(folder))
            packer.tidy()
            while waiting is not None:
                split, images = waiting
                _pack_split(packer, dataset, split, images, source, check)
                waiting = next(parts, None)
            packer.tidy()
    except OSError as error:
        raise DataError(f"dataset {dataset.name} cannot be packed to {folder}: {error}") from error
    return _told(dataset, root)


def _is_readable(dataset: DatasetSettings, root: Path) -> bool:
    splits = ("train", "test")
    try:
        # Without its own files, what can be loaded is packed.
        return all(load(dataset, split, data_root=root, paths={}).files for split in splits)
    except DataError:
        return False


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep others from packing the same dataset.

    Raises:
        DataError: another process packs it.
    """
    path = make_folder(folder.parent) / f".{folder.name}.lock"
    with open(open_file(path, os.O_RDWR), "rb+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DataError(f"another process packs {folder} just now") from None
        yield


def _parts(dataset: DatasetSettings, root: Path, source: Path) -> Iterator[tuple[str, ImageSet]]:
    """Yield train, test and the further sets, those whose files are there."""
    paths = {dataset.fingerprint: str(source)}
    for split in catalogue.sets_of(dataset):
        try:
            images = load_files(dataset, split, data_root=root, paths=paths)
        except DataError as error:
            is_needed = split in ("train", "test") and not is_packed(
                root, pack_name(dataset), split
            )
            if is_needed:
                raise
            if not isinstance(error, DataMissing):
                print(f"set {split} is not packed: {error}", file=sys.stderr)
            continue
        if images.files is None:
            raise BadInput(f"--pack: {dataset.name} lies in few files already")
        yield split, images


def _pack_split(
    packer: Packer,
    dataset: DatasetSettings,
    split: str,
    images: ImageSet,
    source: Path,
    check: Callable[[], None],
) -> None:
    assert images.files is not None
    names = [str(path.relative_to(source)) for path in images.files]
    expected = _size_of(packer.lacks(names), source)
    free = shutil.disk_usage(packer.folder).free
    if expected > free:
        needed = f"about {format_bytes(expected)} are needed for {split}"
        raise OSError(errno.ENOSPC, f"{needed}, {format_bytes(free)} are free")
    sets = catalogue.datasets().get(dataset.name, {}).get("sets", {})
    with Transfer(f"packing {split}", total=expected) as told:
        packer.pack(
            split,
            names,
            images,
            read=lambda some: _contents(some, source, told),
            is_shared=any(facts.get("over") == split for facts in sets.values()),
            check=check,
        )


def _size_of(names: Sequence[str], source: Path) -> int:
    """Return about how many bytes files take in a tar file, judged by some of them."""
    sampled = names[:: max(1, len(names) // _SAMPLED)]
    sizes = [_in_tar((source / name).stat().st_size) for name in sampled]
    return round(sum(sizes) / max(1, len(sizes)) * len(names))


def _in_tar(size: int) -> int:
    """Return how many bytes an image of a size takes in a tar file, its name included."""
    return _BLOCK + -(-size // _BLOCK) * _BLOCK


def _contents(names: Sequence[str], source: Path, told: Transfer) -> Iterator[bytes]:
    """Yield the bytes of each file, in order; some are read ahead."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        ahead: deque[Future[bytes]] = deque()
        for name in names:
            ahead.append(pool.submit((source / name).read_bytes))
            if len(ahead) > _READ_AHEAD:
                yield _taken(ahead, told)
        while ahead:
            yield _taken(ahead, told)


def _taken(ahead: deque[Future[bytes]], told: Transfer) -> bytes:
    data = ahead.popleft().result()
    told.update(_in_tar(len(data)))
    return data


def _told(dataset: DatasetSettings, root: Path) -> str:
    """Return where a dataset lies now, and what still needs its own files."""
    name = pack_name(dataset)
    folder = pack_folder(root, name)
    files = list(folder.iterdir())
    size = format_bytes(sum(file.stat().st_size for file in files))
    line = f"{folder}: {plural(len(files), 'file')}, {size}"
    if dataset.name == "folder":
        return line
    others = [
        other
        for other in with_same_files(name)
        if not all(is_packed(root, other, split) for split in ("train", "test"))
    ]
    return f"{line}. The own files are still read for: {', '.join(others)}" if others else line
