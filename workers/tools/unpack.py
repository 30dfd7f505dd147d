"""Datasets from the archives that their makers give away, put where vtjobs looks for them."""

import hashlib
import shutil
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Container, Iterable, Iterator
from pathlib import Path
from typing import IO

from ...jobs.atomic_files import make_folder, write_over
from ...jobs.errors import BadInput
from ...jobs.grid.archives import Archive, Kind, sources
from ..errors import DataError, DataMissing
from .transfer import Transfer

_CHUNK = 1 << 22
# Where ImageNet's development kit, unpacked, says of which class each image is.
_DEVKIT = "ILSVRC2012_devkit_t12/data"
# What comes of a damaged archive, or of a development kit that is not of the images beside it.
_UNREADABLE = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    OSError,
    LookupError,
    ValueError,
    # Of a zip that needs a password.
    RuntimeError,
)


def unpack(
    name: str,
    archives: list[Archive],
    source: Path,
    root: Path,
    verified: Callable[[str, Path], str],
) -> str:
    """Unpack a dataset, or further sets of it, beside its place, verify it there, and move it in.

    A killed attempt goes on where it was: what is unpacked already is not unpacked again.

    Args:
        name: of the dataset.
        archives: what is to be unpacked.
        source: the folder that they lie in.
        root: the data folder.
        verified: reads it below a data folder, and returns a line about it.

    Raises:
        DataError: an archive is damaged, what it has is not the dataset, or there is no place.
    """
    stage = root / f".{name}.unpacked"
    told = stage / ".verified"
    try:
        if told.exists() and not _has_any(stage, archives):
            # A kill came when all had been moved in.
            shutil.rmtree(stage)
        if not told.exists():
            _unpack_all(name, archives, source, stage)
            _require_verified(name, source, stage, verified)
            write_over(told, b"")
        shared = {one.into for one in archives if one.kind is Kind.UNPACK}
        for archive in archives:
            _move_in(stage, root, archive.into, shared)
        shutil.rmtree(stage)
    except OSError as error:
        raise DataError(f"dataset {name}: cannot be unpacked to {root}: {error}") from error
    return verified(name, root)


def archives_in(name: str, source: Path) -> list[Archive]:
    """Return the archives that a folder has of a dataset and of its further sets.

    Raises:
        BadInput: the dataset comes in no archives, or the folder lacks some.
    """
    known = sources().get(name)
    if known is None:
        raise BadInput(f"--from: {name} comes in no archives. Run: vtjobs data prepare {name}")
    if not source.is_dir():
        raise BadInput(f"--from {source}: no such folder")
    lacks = [one.file for one in known.archives if not (source / one.file).is_file()]
    if lacks:
        raise BadInput(f"--from {source}: no {', '.join(lacks)}. See {known.page}")
    return [*known.archives, *set_archives_in(name, source, known.sets)]


def set_archives_in(name: str, source: Path, sets: Iterable[str]) -> list[Archive]:
    """Return the archives that a folder has of some further sets of a dataset."""
    known = sources().get(name)
    there = {} if known is None else known.sets
    found = [archive for one in sets_there(name, source, sets) for archive in there[one].archives]
    # Several sets may come in one archive.
    return list(dict.fromkeys(found))


def sets_there(name: str, source: Path, sets: Iterable[str]) -> list[str]:
    """Return the sets of a dataset whose archives a folder has, all of them."""
    known = sources().get(name)
    there = {} if known is None else known.sets
    return [
        one
        for one in sets
        if one in there and all((source / part.file).is_file() for part in there[one].archives)
    ]


def _has_any(stage: Path, archives: list[Archive]) -> bool:
    return any((stage / archive.into).is_dir() for archive in archives)


def _unpack_all(name: str, archives: list[Archive], source: Path, stage: Path) -> None:
    left = [one for one in archives if not (stage / f".{one.file}.done").exists()]
    for archive in left:
        _check(source / archive.file, archive.md5)
    for archive in left:
        path = source / archive.file
        try:
            _UNPACKERS[archive.kind](path, make_folder(stage / archive.into), stage)
        except _UNREADABLE as error:
            raise DataError(f"dataset {name}: {path} cannot be unpacked: {error}") from error
        (stage / f".{archive.file}.done").touch()


def _require_verified(
    name: str, source: Path, stage: Path, verified: Callable[[str, Path], str]
) -> None:
    try:
        verified(name, stage)
    except (DataError, LookupError, ValueError) as error:
        shutil.rmtree(stage)
        # What is missing is said with a folder that nobody knows.
        why = "files are missing" if isinstance(error, DataMissing) else str(error)
        raise DataError(f"dataset {name}: what {source} has is not the dataset: {why}") from error


def _check(path: Path, md5: str | None) -> None:
    if md5 is None:
        return
    digest = hashlib.md5(usedforsecurity=False)
    with Transfer(f"checking {path.name}", total=path.stat().st_size) as told:
        with path.open("rb") as stream:
            while chunk := stream.read(_CHUNK):
                digest.update(chunk)
                told.update(len(chunk))
    if digest.hexdigest() != md5:
        raise DataError(f"{path} is damaged or another file: md5 {digest.hexdigest()}, not {md5}")


# Kinds of archives -------------------------------------------------------------------------------


def _unpack(path: Path, into: Path, stage: Path) -> None:
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as zipped, Transfer(path.name) as told:
            for part in zipped.infolist():
                zipped.extract(part, into)
                told.update(part.file_size)
    elif path.suffix in (".tar", ".gz", ".tgz"):
        with tarfile.open(path) as archive:
            for member in _members(archive, path.name):
                archive.extract(member, into, filter="data")
    else:
        shutil.copyfile(path, into / path.name)


def _classes(path: Path, into: Path, stage: Path) -> None:
    with tarfile.open(path) as archive:
        for member in _members(archive, path.name):
            name = Path(member.name).stem
            stream = archive.extractfile(member)
            # A class is there whole or not at all.
            if stream is None or (into / name).exists():
                continue
            part = into / f".{name}.part"
            shutil.rmtree(part, ignore_errors=True)
            with tarfile.open(fileobj=stream) as images:
                images.extractall(make_folder(part), filter="data")
            part.rename(into / name)


def _images(path: Path, into: Path, stage: Path) -> None:
    classes = _classes_of_images(stage)
    for name in set(classes):
        make_folder(into / name)
    with tarfile.open(path) as archive:
        for member in _members(archive, path.name):
            stream = archive.extractfile(member)
            if stream is not None:
                image = Path(member.name).name
                _write(stream, into / classes[_number(image) - 1] / image)


_UNPACKERS: dict[Kind, Callable[[Path, Path, Path], None]] = {
    Kind.UNPACK: _unpack,
    Kind.CLASSES: _classes,
    Kind.IMAGES: _images,
}


def _classes_of_images(stage: Path) -> list[str]:
    """Return the class id (wnid) of each of ImageNet's val images, by its number."""
    from scipy.io import loadmat

    data = stage / "imagenet1k" / "devkit" / _DEVKIT
    synsets = loadmat(str(data / "meta.mat"), squeeze_me=True)["synsets"]
    # Inner nodes of the hierarchy have no images.
    leaves = [one for one in synsets if not one["num_children"]]
    ids = {int(one["ILSVRC2012_ID"]): str(one["WNID"]) for one in leaves}
    truth = (data / "ILSVRC2012_validation_ground_truth.txt").read_text().split()
    return [ids[int(number)] for number in truth]


def _number(image: str) -> int:
    """Return the number in a name such as ILSVRC2012_val_00000293.JPEG."""
    return int(Path(image).stem.rpartition("_")[2])


def _members(archive: tarfile.TarFile, name: str) -> Iterator[tarfile.TarInfo]:
    """Yield the members of a tar, and tell how far it is."""
    with Transfer(name) as told:
        for member in archive:
            yield member
            told.update(member.size)
        # The checksum of a compressed archive stands at its end.
        while archive.fileobj is not None and archive.fileobj.read(_CHUNK):
            pass


def _write(stream: IO[bytes], path: Path) -> None:
    with path.open("wb") as target:
        shutil.copyfileobj(stream, target)


def _has_none_of(target: Path, entry: Path) -> bool:
    """Return whether a folder is there and has nothing of what another one has."""
    return target.is_dir() and not any((target / one.name).exists() for one in entry.iterdir())


def _move_in(stage: Path, root: Path, into: str, shared: Container[str]) -> None:
    """Move what was unpacked to its place; what was there in part is put aside.

    Args:
        stage: where it was unpacked.
        root: the data folder.
        into: where it goes below both.
        shared: folders below both that several archives fill; what another one brought stays.
    """
    place = stage / into
    if not place.is_dir():
        return
    for entry in sorted(place.iterdir()) if into.count("/") == 0 else [place]:
        target = root / entry.relative_to(stage)
        make_folder(target.parent)
        if str(entry.relative_to(stage)) in shared and _has_none_of(target, entry):
            for one in sorted(entry.iterdir()):
                shutil.move(one, target / one.name)
            entry.rmdir()
            continue
        if target.exists():
            aside = target.with_name(f"{target.name}.before")
            if aside.exists():
                raise DataError(f"{target} and {aside} are in the way. Move one away")
            target.rename(aside)
            print(f"{target} was there: it is {aside} now", file=sys.stderr)
        # The data folder may be a link to another file system.
        shutil.move(entry, target)
    if place.is_dir():
        place.rmdir()
