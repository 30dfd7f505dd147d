"""Read the datasets: those of the catalogue through their usual loaders, and image folders."""

import gzip
import importlib.util
import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor

from ...jobs.grid import catalogue
from ...jobs.grid.dataset_files import remedy
from ...jobs.grid.pack_places import contents_of, pack_folder
from ...jobs.run.settings import DatasetSettings
from ..errors import DataError, DataMissing
from ..randomness import Streams
from . import image_trees, masks, objects, own
from .image_set import ImageSet
from .listed import Listed
from .packs import read_split
from .pickled import arrays_in


def scored_sets(dataset: DatasetSettings, more: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the sets that a run is scored on.

    Test, what it holds out of train, and what its grid names.
    """
    return ("test", *(("val",) if dataset.val is not None else ()), *more)


def load_part(
    dataset: DatasetSettings,
    split: str,
    streams: Streams,
    *,
    data_root: Path,
    paths: dict[str, str],
) -> ImageSet:
    """Load a split as a run uses it: where it holds out `val`, that is no part of its `train`.

    The held-out images are drawn by the `split` stream, stratified by class, where images have one.

    Raises:
        DataError: as `load`; or a class has too few images to be in both parts.
    """
    if split not in ("train", "val") or dataset.val is None:
        return load(dataset, split, data_root=data_root, paths=paths)
    whole = load(dataset, "train", data_root=data_root, paths=paths)
    held = torch.zeros(len(whole), dtype=torch.bool)
    classes = dataset.classes if dataset.has_classes else 1
    counts = whole.labels.bincount(minlength=classes)
    of_class = whole.labels.argsort(stable=True).split(counts.tolist())
    for label, number in enumerate(_quotas(counts, dataset.held_out).tolist()):
        if not 0 < number < counts[label]:
            size = f"{number} of the {int(counts[label])} images of class {label}"
            raise DataError(f"dataset {dataset.name}: cannot hold out a stratified part ({size})")
        order = torch.randperm(
            int(counts[label]), generator=streams.generator("split", "val", label)
        )
        held[of_class[label][order[:number]]] = True
    return whole.part((held if split == "val" else ~held).nonzero()[:, 0])


def _quotas(counts: Tensor, total: int) -> Tensor:
    """Return each class's number of `total` images by largest remainders: [classes] int64."""
    shares = counts.double() * total / counts.sum()
    quotas = shares.floor().long()
    more = (shares - quotas).argsort(descending=True, stable=True)[: total - int(quotas.sum())]
    quotas[more] += 1
    return quotas


def labels_of(
    name: str,
    part: ImageSet,
    dataset: DatasetSettings,
    split: str,
    *,
    data_root: Path,
    paths: dict[str, str],
) -> Tensor:
    """Return the classes that another dataset gives to a part's images, [N] int64.

    Args:
        name: of a dataset with the same images, such as `cifar100` of `cifar100_coarse`.
        part: as `load_part` returned it.
        dataset: of the part.
        split: of the part.
        data_root: where known datasets lie.
        paths: folder by fingerprint.

    Raises:
        DataError: as `load`.
    """
    is_cut = split in ("train", "val") and dataset.val is not None
    whole = load(
        catalogue.dataset(name), "train" if is_cut else split, data_root=data_root, paths=paths
    )
    return whole.labels[part.places] if is_cut else whole.labels


def load(
    dataset: DatasetSettings, split: str, *, data_root: Path, paths: dict[str, str]
) -> ImageSet:
    """Load a split of a dataset: from its pack where there is one, and that is whole.

    Args:
        dataset: of a run.
        split: train, test, or another set of the dataset.
        data_root: where `vtjobs data prepare` puts known datasets.
        paths: folder by fingerprint, for image folders.

    Raises:
        DataError: files are missing or have the wrong number of images.
    """
    folder = pack_folder(data_root, pack_name(dataset))
    if not dataset.is_own and (contents := contents_of(folder, split)) is not None:
        try:
            found = read_split(folder, contents)
        except FileNotFoundError as error:
            raise DataMissing(f"{error.filename} of a packed dataset is gone") from error
        return _as_described(found, dataset, split)
    return load_files(dataset, split, data_root=data_root, paths=paths)


def pack_name(dataset: DatasetSettings) -> str:
    """Return what a dataset is packed as: its name, or of an image folder its fingerprint."""
    return dataset.fingerprint if dataset.name == "folder" else dataset.name


def load_files(
    dataset: DatasetSettings, split: str, *, data_root: Path, paths: dict[str, str]
) -> ImageSet:
    """Load a split of a dataset from the files that it came in.

    Raises:
        DataError: as `load`.
    """
    name = dataset.name
    further = catalogue.datasets().get(name, {}).get("sets", {})
    if name in catalogue.datasets() and split not in catalogue.sets_of(dataset):
        raise DataError(f"dataset {name} has no set {split!r}")
    if dataset.is_own:
        read = own.read(dataset, split, paths.get(dataset.fingerprint, str(data_root)))
        mode = own.MODES.get(dataset.channels, "RGB")
        loaded = ImageSet(labels=read.labels, images=read.images, reader=read.reader, mode=mode)
    elif name == "folder":
        loaded = _load_folder(Path(paths.get(dataset.fingerprint, "")), split, dataset)
    elif name in _LOADERS:
        try:
            loaded = _LOADERS[name](data_root / name, split)
        except pickle.UnpicklingError as error:
            where = f"dataset {name}: {data_root / name}"
            raise DataError(f"{where} contains a pickle that was refused ({error})") from error
        except (RuntimeError, FileNotFoundError) as error:
            if isinstance(error, RuntimeError) and "not found" not in str(error).lower():
                raise
            sets = [split] if split in further else []
            what = f"set {split} of dataset {name}" if sets else f"dataset {name}"
            raise DataMissing(
                f"{what} is not in {data_root}. {remedy(name, data_root, sets)}"
            ) from error
    else:
        raise DataError(f"unknown dataset {name!r}")
    return _as_described(loaded, dataset, split)


def _as_described(loaded: ImageSet, dataset: DatasetSettings, split: str) -> ImageSet:
    """Return a split that has as many images as it should, and no other classes.

    Raises:
        DataError: it has not.
    """
    name = dataset.name
    further = catalogue.datasets().get(name, {}).get("sets", {})
    counts = {"train": dataset.train, "test": dataset.test}
    expected = counts.get(split, further.get(split, {}).get("count", len(loaded)))
    if len(loaded) != expected:
        raise DataError(f"dataset {name}: {len(loaded)} {split} images, expected {expected}")
    if (
        len(loaded.labels)
        and not 0 <= int(loaded.labels.min()) <= int(loaded.labels.max()) < dataset.classes
    ):
        raise DataError(f"dataset {name}: {split} labels outside its {dataset.classes} classes")
    return loaded


def _digits300(_: Path, split: str) -> ImageSet:
    # Every sixth image trains; the others are two test sets, taken turn by turn.
    whole = _all_digits()
    index = torch.arange(len(whole))
    rest = index[index % 6 != 0]
    return whole.part(
        {"train": index[index % 6 == 0], "test": rest[::2], "independent": rest[1::2]}[split]
    )


def _all_digits() -> ImageSet:
    # scikit-learn's reader imports pandas and most of scipy: two seconds for each rank of a run.
    package = importlib.util.find_spec("sklearn")
    assert package is not None and package.origin is not None
    path = Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"
    with gzip.open(path, "rt") as stream:
        rows = numpy.loadtxt(stream, delimiter=",", dtype=numpy.uint8)
    # 64 levels of 0…16, and the digit.
    levels = rows[:, :64].reshape(-1, 1, 8, 8)
    images = numpy.round(levels * (255 / 16)).astype(numpy.uint8)
    return ImageSet(
        images=torch.from_numpy(images), labels=torch.from_numpy(rows[:, 64].astype(numpy.int64))
    )


def _digits(_: Path, split: str) -> ImageSet:
    # Even indices train, odd ones test, so both halves hold every writer and digit alike.
    whole = _all_digits()
    return whole.part(torch.arange(0 if split == "train" else 1, len(whole), 2))


def _digits_parity(root: Path, split: str) -> ImageSet:
    # Even digits are class 0, odd ones class 1.
    whole = _digits(root, split)
    return ImageSet(images=whole.images, labels=whole.labels % 2)


def _cifar(name: str, labelled: str) -> Callable[[Path, str], ImageSet]:
    def read(folder: Path, split: str) -> ImageSet:
        from torchvision import datasets
        from torchvision.datasets.utils import check_integrity

        kind, root = getattr(datasets, name.upper()), folder.parent / name
        files = kind.train_list if split == "train" else kind.test_list
        paths = [root / kind.base_folder / name for name, _ in files]
        if not all(
            check_integrity(str(path), md5) for path, (_, md5) in zip(paths, files, strict=True)
        ):
            raise FileNotFoundError(f"{root / kind.base_folder}: files are missing or damaged")
        batches = [arrays_in(path) for path in paths]
        images = torch.from_numpy(numpy.concatenate([batch["data"] for batch in batches])).view(
            -1, 3, 32, 32
        )
        labels = [label for batch in batches for label in batch[labelled]]
        return ImageSet(images=images, labels=torch.tensor(labels))

    return read


def _svhn(root: Path, split: str) -> ImageSet:
    from torchvision import datasets

    data = datasets.SVHN(str(root), split=split, download=False)
    return ImageSet(
        images=torch.from_numpy(data.data), labels=torch.from_numpy(data.labels.astype(numpy.int64))
    )


def _flowers(root: Path, split: str) -> ImageSet:
    from torchvision import datasets

    parts = [
        datasets.Flowers102(str(root), split=part)
        for part in (("train", "val") if split == "train" else ("test",))
    ]
    found = Listed(
        pair for part in parts for pair in zip(part._image_files, part._labels, strict=True)
    )
    return ImageSet(labels=found.labels, reader=found.__getitem__, files=found.paths)


def load_folder(root: Path, split: str) -> ImageSet:
    from torchvision import datasets

    split_folder = root / split
    if split == "test" and not split_folder.is_dir():
        split_folder = root / "val"
    if not split_folder.is_dir():
        raise DataMissing(f"dataset folder {split_folder} does not exist")
    data = datasets.ImageFolder(str(split_folder))
    classes = sorted(path.name for path in (root / "train").iterdir() if path.is_dir())
    if data.classes != classes:
        raise DataError(
            f"dataset folder {split_folder} has different classes from {root / 'train'}"
        )
    found = Listed((Path(path), label) for path, label in data.samples)
    return ImageSet(labels=found.labels, reader=found.__getitem__, files=found.paths)


def _load_folder(root: Path, split: str, dataset: DatasetSettings) -> ImageSet:
    if dataset.has_masks:
        return load_masks(root, split, classes=dataset.classes)
    if dataset.has_objects:
        return load_objects(root, split, classes=dataset.classes)
    return load_folder(root, split)


def load_masks(root: Path, split: str, *, classes: int) -> ImageSet:
    """Load a split of a lab's own folder of images with masks.

    Raises:
        DataMissing: it is not there, or an image has no mask.
    """
    try:
        return _with_masks(masks.folder_of_masks(root, split, classes=classes))
    except FileNotFoundError as error:
        raise DataMissing(f"dataset folder {error.filename} does not exist") from error


def _with_masks(found: masks.Masked) -> ImageSet:
    listed = found.pictures
    return ImageSet(
        labels=listed.labels, reader=listed.__getitem__, files=listed.paths, masks=found.mask
    )


def load_objects(root: Path, split: str, *, classes: int) -> ImageSet:
    """Load a split of a lab's own folder of images with objects.

    Raises:
        DataMissing: it is not there.
        DataError: its annotations cannot be used.
    """
    return _with_objects(objects.folder_of_objects(root, split, classes=classes))


def _with_objects(found: objects.Annotated) -> ImageSet:
    listed = found.pictures
    return ImageSet(
        labels=listed.labels, reader=listed.__getitem__, files=listed.paths, annotated=found
    )


def _listed(read: Callable[..., Listed], **more: Any) -> Callable[[Path, str], ImageSet]:
    def load_tree(root: Path, split: str) -> ImageSet:
        # Several datasets may share a folder.
        found = read(root.parent, split, **more)
        return ImageSet(
            labels=found.labels,
            reader=found.__getitem__,
            files=found.paths,
            answers=None if found.answers is None else _marks(found.answers),
            only=None if found.only is None else _marks([found.only])[0],
        )

    return load_tree


def _marks(chosen: Sequence[Sequence[int]]) -> Tensor:
    """Return which of ImageNet's classes each row has, [N, 1000] bool."""
    marks = torch.zeros(len(chosen), image_trees.CLASSES, dtype=torch.bool)
    for row, labels in zip(marks, chosen, strict=True):
        row[list(labels)] = True
    return marks


DOMAINS = ("clipart", "infograph", "painting", "quickdraw", "real", "sketch")

_LOADERS: dict[str, Callable[[Path, str], ImageSet]] = {
    "digits": _digits,
    "digits300": _digits300,
    "digits_parity": _digits_parity,
    "cifar10": _cifar("cifar10", "labels"),
    "cifar100": _cifar("cifar100", "fine_labels"),
    "cifar100_coarse": _cifar("cifar100", "coarse_labels"),
    "svhn": _svhn,
    "flowers102": _flowers,
    "flowers102_relvit": _listed(image_trees.flowers_train_val),
    "tiny_imagenet": _listed(image_trees.tiny_imagenet),
    "imagenet100": _listed(image_trees.imagenet, only="imagenet100"),
    "imagenet1k": _listed(image_trees.imagenet),
    **{domain: _listed(image_trees.domainnet, domain=domain) for domain in DOMAINS},
    "inat2018": _listed(image_trees.inaturalist, year=2018),
    "inat2019": _listed(image_trees.inaturalist, year=2019),
    **{
        f"inat{year}_{level}": _listed(image_trees.inaturalist, year=year, level=level)
        for year in (2018, 2019)
        for level in image_trees.RANKS
    },
    "food101": _listed(image_trees.food),
    "pets": _listed(image_trees.pets),
    "aircraft": _listed(image_trees.aircraft),
    "cub200": _listed(image_trees.cub),
    "cars": _listed(image_trees.cars),
    "coco2017": lambda root, split: _with_objects(objects.coco2017(root.parent, split)),
    "ade20k": lambda root, split: _with_masks(masks.ade20k(root.parent, split)),
}
