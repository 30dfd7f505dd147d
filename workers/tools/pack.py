"""Pack a dataset: copy its images into a few large files, from which runs then read them."""

import errno
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ...jobs.atomic_files import make_folder
from ...jobs.errors import BadInput
from ...jobs.grid import catalogue
from ...jobs.grid.packs import index_of, pack_folder
from ...jobs.run.settings import DatasetSettings
from ...jobs.units import format_bytes, plural
from ..data.datasets import load_files, pack_name
from ..data.image_set import ImageSet
from ..data.packs import Packer
from ..errors import DataError, DataMissing
from .transfer import Transfer

# Files that are read at once: on a shared file system each waits for an answer.
_AT_ONCE = 16
# Files that are held in memory at a time.
_READ_AHEAD = 256
# Files whose sizes stand for those of all.
_SAMPLED = 256


def pack(dataset: DatasetSettings, root: Path, *, source: Path) -> str:
    """Pack a dataset; return what is there now, and what may be removed.

    It is packed beside its place and moved in when it is whole. A pack that was there stays until
    then.

    Args:
        dataset: whose images have classes.
        root: the data folder.
        source: the folder that all its images lie below.

    Raises:
        BadInput: its images lie in few files already, or have masks or objects.
        DataError: it cannot be read, or there is no room for it.
    """
    folder = pack_folder(root, pack_name(dataset))
    try:
        parts = dict(_parts(dataset, root, source))
    except DataMissing:
        # The files may be removed once the dataset is packed.
        if not index_of(root, pack_name(dataset), "train").is_file():
            raise
        return _told(folder)
    stage = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(stage, ignore_errors=True)
    try:
        make_folder(stage)
        names = {split: _names(images, source) for split, images in parts.items()}
        _require_room([name for some in names.values() for name in some], source, stage)
        packer = Packer(folder=stage)
        for split, images in parts.items():
            new = packer.lacks(names[split])
            with Transfer(f"packing {split}", total=_size_of(new, source)) as told:
                packer.add(split, _contents(new, source, told))
            packer.finish(split, names[split], images)
        if folder.exists():
            folder.rename(stage / "before")
        stage.rename(folder)
        shutil.rmtree(folder / "before", ignore_errors=True)
    except OSError as error:
        raise DataError(f"dataset {dataset.name} cannot be packed to {folder}: {error}") from error
    finally:
        shutil.rmtree(stage, ignore_errors=True)
    return _told(folder)


def _parts(dataset: DatasetSettings, root: Path, source: Path) -> Iterator[tuple[str, ImageSet]]:
    """Yield train, test and the further sets that are there."""
    paths = {dataset.fingerprint: str(source)}
    for split in catalogue.sets_of(dataset):
        try:
            images = load_files(dataset, split, data_root=root, paths=paths)
        except DataMissing:
            if split in ("train", "test"):
                raise
            continue
        if images.masks is not None or images.annotated is not None:
            what = "masks" if dataset.has_masks else "objects"
            raise BadInput(f"--pack: the images of {dataset.name} have {what} beside them")
        if images.files is None:
            raise BadInput(f"--pack: {dataset.name} lies in few files already")
        yield split, images


def _names(images: ImageSet, source: Path) -> list[str]:
    """Return what images are called below a folder."""
    assert images.files is not None
    return [str(path.relative_to(source)) for path in images.files]


def _require_room(names: Sequence[str], source: Path, folder: Path) -> None:
    # Two splits may share images.
    expected = _size_of(list(dict.fromkeys(names)), source)
    free = shutil.disk_usage(folder).free
    if expected > free:
        needed = f"about {format_bytes(expected)} are needed, {format_bytes(free)} are free"
        raise OSError(errno.ENOSPC, needed)


def _size_of(names: Sequence[str], source: Path) -> int:
    """Return about how many bytes files have, judged by some of them."""
    sampled = names[:: max(1, len(names) // _SAMPLED)]
    sizes = [(source / name).stat().st_size for name in sampled]
    return round(sum(sizes) / max(1, len(sizes)) * len(names))


def _contents(names: Sequence[str], source: Path, told: Transfer) -> Iterator[tuple[str, bytes]]:
    """Yield each file's name and bytes, in order; some are read ahead."""

    def read(name: str) -> bytes:
        return (source / name).read_bytes()

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for start in range(0, len(names), _READ_AHEAD):
            some = names[start : start + _READ_AHEAD]
            for name, data in zip(some, pool.map(read, some), strict=True):
                yield name, data
                told.update(len(data))


def _told(folder: Path) -> str:
    files = list(folder.iterdir())
    size = format_bytes(sum(file.stat().st_size for file in files))
    return f"{folder}: {plural(len(files), 'file')}, {size}"
