"""Whether the files of a known dataset are there, by their names and sizes: nothing is read."""

import os
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from . import catalogue
from .archives import sources
from .pack_places import is_packed

# What can be fetched from where it was published; the others lie on a cluster already, or need an
# account.
FETCHED = ("cifar10", "cifar100", "svhn", "flowers102", "food101", "pets", "aircraft")


def needs_files(name: str) -> bool:
    """Return whether a known dataset has files in the data folder."""
    return bool(catalogue.datasets()[name].get("files"))


def missing(name: str, data_root: Path, sets: Iterable[str] = ()) -> str | None:
    """Return what a known dataset lacks, such as `no svhn/test_32x32.mat`; None if it is whole.

    Args:
        name: of a dataset of the catalogue.
        data_root: the data folder.
        sets: further evaluation sets that are needed.
    """
    facts = catalogue.datasets()[name]
    # Once a dataset is packed, its files may be removed.
    absent = [one for one in sets if not is_packed(data_root, name, one)]
    has_pack = all(is_packed(data_root, name, split) for split in ("train", "test"))
    # Other labels of a part's images are read beside its files.
    reads_files = any("over" in facts.get("sets", {}).get(one, {}) for one in absent)
    needs_own = reads_files or not has_pack
    wanted: dict[str, int] = dict(facts.get("files", {})) if needs_own else {}
    for one in absent:
        wanted |= facts.get("sets", {}).get(one, {}).get("files", {})
    for relative, least in wanted.items():
        found = _size(data_root / relative, is_folder=relative.endswith("/"), least=least)
        if found is None:
            return f"no {relative}"
        if found < least:
            return f"{relative} is incomplete"
    return None


def whereabouts(name: str, data_root: Path) -> str:
    """Return in a word whether a known dataset can be read.

    `yes`, `packed` where it is read from a pack, `part` where something of it is missing, or `no`.
    """
    if not needs_files(name):
        return "yes"
    if missing(name, data_root) is None:
        packed = all(is_packed(data_root, name, split) for split in ("train", "test"))
        return "packed" if packed else "yes"
    files = catalogue.datasets()[name]["files"]
    return "part" if any((data_root / relative).exists() for relative in files) else "no"


def with_same_files(name: str) -> list[str]:
    """Return the other known datasets that are read from files of this one's folder."""

    def folders(other: str) -> set[str]:
        files = catalogue.datasets()[other].get("files", {})
        return {relative.partition("/")[0] for relative in files}

    own = folders(name)
    return [other for other in catalogue.datasets() if other != name and folders(other) & own]


def _size(path: Path, *, is_folder: bool, least: int) -> int | None:
    """Return a file's bytes or a folder's entries, counted up to `least`; None if it is absent."""
    try:
        if not is_folder:
            return path.stat().st_size if path.is_file() else None
        with os.scandir(path) as entries:
            return sum(1 for _ in islice(entries, least))
    except (FileNotFoundError, NotADirectoryError):
        return None


def remedy(name: str, data_root: Path, sets: Iterable[str] = ()) -> str:
    """Return how a known dataset gets into the data folder, as a sentence without a full stop.

    Args:
        name: of a dataset of the catalogue.
        data_root: the data folder.
        sets: further evaluation sets that are needed. Where the dataset itself is there, they are
            what is missing.
    """
    facts = catalogue.datasets()[name]
    layout = facts.get("layout")
    if layout is None or facts.get("fetched_as", name) in FETCHED:
        return f"Run: vtjobs data prepare {name}"
    source = sources().get(name)
    if source is None:
        return f"vtjobs cannot download it; expected {data_root}/{layout}"
    run = f"and run in their folder: vtjobs data prepare {name} --from ./"
    further = dict.fromkeys(str(source.sets[one]) for one in sets if one in source.sets)
    if further and missing(name, data_root) is None:
        return f"Get {' and '.join(further)} {run}"
    return f"vtjobs cannot download it; expected {data_root}/{layout}. Get {source} {run}"
