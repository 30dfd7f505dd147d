"""Download and verify data once, on the login node.

`python -m vtjobs.workers.tools.prepare --data DIR [--verify] [--from DIR] [--pack] NAME …`.

NAME is a dataset of the catalogue, a folder of images, or `weights:MODEL` for timm's pretrained
weights.
"""

import argparse
import shutil
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from ...jobs.atomic_files import make_folder
from ...jobs.config.host import cpu_count
from ...jobs.documents import from_plain
from ...jobs.errors import BadInput, did_you_mean, suggest
from ...jobs.grid import catalogue
from ...jobs.grid.dataset_files import FETCHED
from ...jobs.grid.image_folder import describe_folder, file_sha256
from ...jobs.grid.pack_places import contents_of, is_packed, pack_folder
from ...jobs.grid.resolve_dataset import IMAGENET
from ...jobs.run.settings import DatasetSettings
from ...jobs.units import plural
from ..data.datasets import load, load_files, load_folder
from ..data.image_set import ImageSet
from ..data.object_pipeline import check_size
from ..data.packs import read_split
from ..errors import DataError, DataMissing
from .each import each
from .pack import pack
from .transfer import Transfer
from .unpack import archives_in, set_archives_in, sets_there, unpack

# The exit code after Ctrl-C.
INTERRUPTED = 130


def prepare(
    name: str,
    root: Path,
    *,
    download: bool = True,
    source: Path | None = None,
    packs: bool = False,
) -> str:
    """Make one thing ready; return a line that says what is there.

    Args:
        name: a dataset, a folder of images, or `weights:MODEL`.
        root: the data folder.
        download: whether what is not there may be fetched or unpacked.
        source: a folder with the archives of a dataset that cannot be fetched.
        packs: whether it is to be packed next, so that its own files count, and not its pack.

    Raises:
        BadInput: there is no such thing.
        DataError: it cannot be had, or is not what it should be.
    """
    if name.startswith("weights:") or "/" in name:
        return _no_dataset(name, root, download=download, source=source)
    known = catalogue.datasets()
    if name not in known:
        raise BadInput(f"unknown dataset {name!r}. {suggest(name, known)}")
    dataset = catalogue.dataset(name)
    fetched_as = str(known[name].get("fetched_as", name))
    try:
        told = _there(name, root, packs=packs)
    except DataError:
        if is_packed(root, name, "train"):
            # Its pack is damaged, which is no reason to download it.
            raise
        if source is not None:
            return unpack(name, archives_in(name, source), source, root, _verified)
        if not download or fetched_as not in FETCHED:
            raise
        return _fetched(name, fetched_as, root)
    if source is not None:
        return _with_further_sets(name, source, root)
    if not download:
        _require_readable(name, _parts(dataset, root))
    return told


def _there(name: str, root: Path, *, packs: bool) -> str:
    """Read a known dataset; return the line that says what is there."""
    if packs:
        try:
            return _verified(name, root, load_files)
        except DataMissing:
            if not is_packed(root, name, "train"):
                raise
    return _verified(name, root)


def _parts(dataset: DatasetSettings, root: Path) -> list[ImageSet]:
    """Return train and test, and the further sets that are packed."""
    splits = [
        split
        for split in catalogue.sets_of(dataset)
        if split in ("train", "test") or is_packed(root, dataset.name, split)
    ]
    return [load(dataset, split, data_root=root, paths={}) for split in splits]


def packed(name: str, root: Path) -> str:
    """Pack a dataset or a folder of images that is ready; return a line that says where it is now.

    Raises:
        BadInput: it is none, or its images cannot be packed.
        DataError: it cannot be read, or there is no room.
    """
    if name.startswith("weights:"):
        raise BadInput(f"--pack: {name} is one file")
    if "/" not in name:
        return pack(catalogue.dataset(name), root, source=root, is_same=lambda: True)
    folder = Path(name).expanduser()
    described = describe_folder(folder)
    facts = {"name": "folder", "channels": 3, **IMAGENET, **described}
    return pack(
        from_plain(facts, DatasetSettings),
        root,
        source=folder,
        is_same=lambda: describe_folder(folder) == described,
    )


def _no_dataset(name: str, root: Path, *, download: bool, source: Path | None) -> str:
    """Make weights or a folder of images ready."""
    if source is not None:
        raise BadInput(f"--from: {name} comes in no archives")
    if name.startswith("weights:"):
        return _weights(name.removeprefix("weights:"), root)
    folder = Path(name).expanduser()
    facts = describe_folder(folder, progress=_count)
    if not download:
        parts = [load_folder(folder, split) for split in ("train", "test")]
        place = pack_folder(root, str(facts["fingerprint"]))
        whole = [contents_of(place, split) for split in ("train", "test")]
        packed = [read_split(place, one) for one in whole if one is not None]
        _require_readable(name, parts + packed)
    return _line(name, facts, pack_name=str(facts["fingerprint"]), root=root)


def _line(name: str, facts: dict[str, Any], *, pack_name: str, root: Path) -> str:
    """Return what is told of a dataset that is there."""
    sizes = f"{facts['train']} train, {facts['test']} test, {facts['classes']} classes"
    is_there = all(is_packed(root, pack_name, split) for split in ("train", "test"))
    packed = ", packed" if is_there else ""
    return f"{name}: {sizes}, {facts['fingerprint']}{packed}"


def _with_further_sets(name: str, source: Path, root: Path) -> str:
    """Unpack what a folder has of the sets that a whole dataset lacks."""
    facts = catalogue.datasets()[name].get("sets", {})
    lacks = [one for one in sets_there(name, source, facts) if _lacks(name, one, root)]
    archives = set_archives_in(name, source, lacks)
    if not archives:
        return f"{_verified(name, root)} (it was whole: nothing was unpacked)"

    def verified(name: str, folder: Path) -> str:
        for one in lacks:
            # Labels of other images can only be read beside these.
            if folder == root or "over" not in facts[one]:
                load(catalogue.dataset(name), one, data_root=folder, paths={})
        return f"{name}: set {', '.join(_shortened(lacks))}"

    return unpack(name, archives, source, root, verified)


def _shortened(sets: list[str]) -> list[str]:
    """Return the names of sets, with one for all corruptions."""
    groups: dict[str, list[str]] = {}
    for one in sets:
        groups.setdefault(one.partition("_")[0], []).append(one)
    return [
        names[0] if len(names) == 1 else f"{group}_* ({len(names)})"
        for group, names in groups.items()
    ]


def _lacks(name: str, one: str, root: Path) -> bool:
    try:
        load(catalogue.dataset(name), one, data_root=root, paths={})
    except DataError:
        return True
    return False


def _require_readable(name: str, parts: list[ImageSet]) -> None:
    """Open every image that is opened one by one.

    Raises:
        DataError: with a line for each that cannot be read.
    """
    with ThreadPoolExecutor(cpu_count()) as pool:
        wrong = [
            problem
            for images in parts
            if images.reader is not None
            for problem in pool.map(partial(_unreadable, images), range(len(images)))
            if problem
        ]
    if wrong:
        count = f"dataset {name}: {plural(len(wrong), 'image')} cannot be read"
        raise DataError("\n".join([*wrong, count]))


def _unreadable(images: ImageSet, index: int) -> str:
    """Return why an image cannot be read, or ""."""
    try:
        image = images.pil(index)
        if images.masks is not None:
            images.mask(index)
        if images.annotated is not None:
            images.annotated.truth(index)
            check_size(images, index, image)
    except (DataError, OSError) as error:
        return str(error)
    return ""


def _verified(name: str, root: Path, read: Callable[..., ImageSet] = load) -> str:
    """Read a dataset below a data folder; return the line that says what is there."""
    facts, dataset = catalogue.datasets()[name], catalogue.dataset(name)
    for split in ("train", "test"):
        found = read(dataset, split, data_root=root, paths={})
        # Which classes are in masks, only reading all of them could tell.
        classes = len(set(found.labels.tolist())) if dataset.has_classes else facts["classes"]
        if classes != facts["classes"]:
            raise DataError(
                f"dataset {name}: {classes} classes in its {split} part, expected"
                f" {facts['classes']}"
            )
    missing = []
    for split in facts.get("sets", {}):
        try:
            load(dataset, split, data_root=root, paths={})
        except DataMissing:
            missing.append(split)
        except DataError as error:
            print(f"set {split} is not available: {error}", file=sys.stderr)
    if missing:
        print(f"sets that are not there: {', '.join(_shortened(missing))}", file=sys.stderr)
    return _line(name, facts, pack_name=name, root=root)


def _fetched(name: str, source: str, root: Path) -> str:
    """Download a dataset beside its place, verify it there, and move it in.

    What a killed attempt left beside it is removed. What lies in its place already is copied, since
    it may be the archive, and stays if the download fails.
    """
    folder, stage = root / source, root / f".{source}.part"
    shutil.rmtree(stage, ignore_errors=True)
    try:
        place = make_folder(stage) / source
        if folder.is_dir():
            shutil.copytree(folder, place)
        else:
            make_folder(place)
        _download(source, place)
        told = _verified(name, stage)
        if folder.exists():
            folder.rename(stage / "before")
        place.rename(folder)
    except (OSError, RuntimeError) as error:
        raise DataError(f"dataset {name} cannot be downloaded to {folder}: {error}") from error
    except DataError as error:
        # It names the folder beside, which nobody knows.
        message = f"dataset {name}: the download to {folder} is not whole"
        raise DataError(f"{message}. Run again: vtjobs data prepare {name}") from error
    finally:
        shutil.rmtree(stage, ignore_errors=True)
    return told


def _count(files: int) -> None:
    # The next line is written over it.
    if sys.stderr.isatty():
        print(f"\r\033[K{files} files\r", end="", file=sys.stderr, flush=True)


def _download(name: str, folder: Path) -> None:
    from torchvision import datasets

    fetch: dict[str, Callable[[], object]] = {
        "cifar10": lambda: datasets.CIFAR10(str(folder), download=True),
        "cifar100": lambda: datasets.CIFAR100(str(folder), download=True),
        "svhn": lambda: [
            datasets.SVHN(str(folder), split=split, download=True) for split in ("train", "test")
        ],
        "flowers102": lambda: datasets.Flowers102(str(folder), download=True),
        "food101": lambda: datasets.Food101(str(folder), download=True),
        "pets": lambda: datasets.OxfordIIITPet(str(folder), download=True),
        "aircraft": lambda: datasets.FGVCAircraft(str(folder), download=True),
    }
    # torchvision reports to tqdm, which writes ten lines a second into a log file.
    datasets.utils.tqdm = partial(Transfer, name)
    fetch[name]()


def _weights(model: str, root: Path) -> str:
    """Fetch timm's pretrained weights into one safetensors file that grids name as `weights:`."""
    import timm
    from safetensors.torch import save_file

    if not timm.is_model(model):
        near = did_you_mean(model, timm.list_models())
        raise BadInput(f"unknown model {model!r}. {near}".strip())
    path = make_folder(root / "weights") / f"{model}.safetensors"
    if not path.exists():
        try:
            state = timm.create_model(model, pretrained=True).state_dict()
        except (OSError, RuntimeError) as error:
            raise DataError(f"weights of {model} cannot be downloaded: {error}") from error
        staged = path.with_suffix(".part")
        try:
            save_file(
                {name: tensor.contiguous().clone() for name, tensor in state.items()}, str(staged)
            )
            staged.rename(path)
        finally:
            staged.unlink(missing_ok=True)
    return f"{path}: sha256:{file_sha256(path)}"


def main() -> int:
    """Prepare each name; a failure does not keep the others from being tried."""
    parser = argparse.ArgumentParser(prog="vtjobs.workers.tools.prepare")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--verify", action="store_true")
    parser.add_argument("--from", dest="source", type=Path)
    parser.add_argument("--pack", action="store_true")
    parser.add_argument("names", nargs="+")
    options = parser.parse_args()

    def tell(name: str) -> str:
        told = prepare(
            name,
            options.data,
            download=not options.verify,
            source=options.source,
            packs=options.pack,
        )
        if not options.pack:
            return told
        print(told, flush=True)
        return packed(name, options.data)

    try:
        return each(options.names, tell)
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
