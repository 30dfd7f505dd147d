"""The datasets that lie as trees of pictures with lists beside them.

Read in the layouts that they are published in.
"""

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ...jobs.grid import catalogue
from ..errors import DataError
from .listed import Listed

V2 = "imagenetv2-matched-frequency-format-val"


def _pictures(folder: Path) -> list[Path]:
    """Return the files of a folder in the order of their names.

    Raises:
        FileNotFoundError: there is no such folder.
    """
    return [folder / name for name in _names(folder, os.DirEntry.is_file)]


def _names(folder: Path, is_wanted: Callable[[os.DirEntry[str]], bool]) -> list[str]:
    # A listing says what is a file. To ask for each, as Path.is_file does, costs a millisecond an
    # image on a shared file system, for ImageNet twenty minutes.
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries if is_wanted(entry))


def _lines(path: Path) -> list[str]:
    return [line for line in path.read_text("utf-8").splitlines() if line.strip()]


def imagenet(root: Path, split: str, *, only: str | None = None) -> Listed:
    """Read train/<wnid>/ and val/<wnid>/; classes are numbered in the order of their ids.

    Args:
        root: the data folder.
        split: train, test, which is the published val part, or a further set.
        only: a list of the catalogue that names the classes.
    """
    place = root / "imagenet1k"
    if split == "v2":
        # ImageNetV2 (Recht et al. 2019), whose folders are the classes' numbers.
        return Listed(
            (path, label) for label in range(1000) for path in _pictures(place / V2 / str(label))
        )
    if split == "real":
        return _reassessed(place)
    if split in SETS_BY_CLASS:
        return _by_class(place, place / SETS_BY_CLASS[split])
    if split.startswith("c_"):
        name, _, severity = split.removeprefix("c_").rpartition("_")
        return _by_class(place, place / "imagenet-c" / name / severity)
    folder = place / ("train" if split == "train" else "val")
    names = catalogue.class_list(only) if only else _folders(folder)
    return Listed(
        (path, label) for label, name in enumerate(names) for path in _pictures(folder / name)
    )


CLASSES = 1000
# ImageNet-A (Hendrycks et al. 2021, Natural Adversarial Examples) and -R (Hendrycks et al. 2021,
# The Many Faces of Robustness) have 200 of the classes; ImageNet-Sketch (Wang et al. 2019) has all.
SETS_BY_CLASS = {"a": "imagenet-a", "r": "imagenet-r", "sketch": "sketch"}


def _folders(folder: Path) -> list[str]:
    return _names(folder, os.DirEntry.is_dir)


def _class_ids(place: Path) -> list[str]:
    """Return ImageNet's class ids in order: of its train part, else those that timm knows."""
    if (place / "train").is_dir():
        return _folders(place / "train")
    from timm.data import ImageNetInfo

    return list(ImageNetInfo("imagenet-1k").label_names())


def _by_class(place: Path, folder: Path) -> Listed:
    """Read <wnid>/ folders; a model chooses among the classes that are there.

    Raises:
        DataError: a folder is no class of ImageNet.
    """
    number = {name: label for label, name in enumerate(_class_ids(place))}
    names = _folders(folder)
    for name in names:
        if name not in number:
            raise DataError(f"folder {folder / name}: {name} is no class of ImageNet")
    labels = [number[name] for name in names]
    return Listed(
        (
            (path, label)
            for name, label in zip(names, labels, strict=True)
            for path in _pictures(folder / name)
        ),
        only=labels if len(labels) < len(number) else None,
    )


def _reassessed(place: Path) -> Listed:
    """Read the val part with the labels of Beyer et al. 2020, Are we done with ImageNet?

    Images without a label are left out, as in their program.

    Raises:
        DataError: the file is none of theirs, or an image's name has no number.
    """
    path = place / "real.json"
    try:
        given = [[int(label) for label in labels] for labels in json.loads(path.read_text("utf-8"))]
    except (ValueError, TypeError) as error:
        raise DataError(f"{path} is not a list of lists of classes") from error
    if any(not 0 <= label < CLASSES for labels in given for label in labels):
        raise DataError(f"{path} has classes outside 0 … {CLASSES - 1}")
    found = []
    for name in _folders(place / "val"):
        for image in _pictures(place / "val" / name):
            number = image.stem.rpartition("_")[2]
            if not number.isdecimal() or not 1 <= int(number) <= len(given):
                raise DataError(f"image {image}: its name must end in its number, 1 … {len(given)}")
            found.append((image, given[int(number) - 1]))
    kept = [(image, labels) for image, labels in found if labels]
    return Listed(
        ((image, labels[0]) for image, labels in kept), answers=[labels for _, labels in kept]
    )


def tiny_imagenet(root: Path, split: str) -> Listed:
    """Read tiny-imagenet-200: train/<wnid>/images/, val/images/ with val_annotations.txt."""
    folder = root / "tiny_imagenet" / "tiny-imagenet-200"
    number = {name: label for label, name in enumerate(sorted(_lines(folder / "wnids.txt")))}
    if split == "train":
        return Listed(
            (path, number[name])
            for name in sorted(number)
            for path in _pictures(folder / "train" / name / "images")
        )
    rows = [line.split("\t") for line in _lines(folder / "val" / "val_annotations.txt")]
    return Listed((folder / "val" / "images" / row[0], number[row[1]]) for row in rows)


def domainnet(root: Path, split: str, *, domain: str) -> Listed:
    """Read a domain by its list: `clipart/airplane/clipart_002_000001.jpg 1` a line.

    Classes are numbered in the order of their folders' names, as in DRLoc's program; the list's own
    numbers agree.
    """
    folder = root / "domainnet"
    files = [line.rsplit(" ", 1)[0] for line in _lines(folder / f"{domain}_{split}.txt")]
    # Of both parts, as one might lack a class.
    known = files + [
        line.rsplit(" ", 1)[0] for line in _lines(folder / f"{domain}_{_other(split)}.txt")
    ]
    number = {
        name: label for label, name in enumerate(sorted({file.split("/")[1] for file in known}))
    }
    return Listed((folder / file, number[file.split("/")[1]]) for file in files)


def _other(split: str) -> str:
    return "test" if split == "train" else "train"


# Levels of iNaturalist's taxonomy above the species.
RANKS = ("kingdom", "phylum", "class", "order", "family", "genus")


def inaturalist(root: Path, split: str, *, year: int, level: str | None = None) -> Listed:
    """Read a year's competition: train<year>.json and val<year>.json in COCO's form.

    The category's id is the class. With a level of the taxonomy, one of `RANKS`, classes are
    numbered in the order of their first categories, as train<year>.json has them: the makers gave
    the names away later, and their order would be another one.
    """
    folder = root / f"inat{year}"

    def read(part: str) -> Any:
        return json.loads((folder / f"{part}{year}.json").read_text("utf-8"))

    data = read("train" if split == "train" else "val")
    label = {row["image_id"]: int(row["category_id"]) for row in data["annotations"]}
    if level is not None:
        species = (data if split == "train" else read("train"))["categories"]
        names = {int(row["id"]): str(row[level]) for row in species}
        ordered = dict.fromkeys(names[category] for category in sorted(names))
        numbers = {name: at for at, name in enumerate(ordered)}
        above = {category: numbers[name] for category, name in names.items()}
        label = {image: above[category] for image, category in label.items()}
    return Listed((folder / row["file_name"], label[row["id"]]) for row in data["images"])


def cars(root: Path, split: str) -> Listed:
    """Read Stanford Cars as torchvision does, from its devkit."""
    from torchvision import datasets

    found = datasets.StanfordCars(str(root / "cars"), split=split)
    return Listed((Path(path), int(label)) for path, label in found._samples)


def food(root: Path, split: str) -> Listed:
    """Read Food-101 (Bossard et al. 2014) as torchvision does, from its lists."""
    from torchvision import datasets

    found = datasets.Food101(str(root / "food101"), split=split)
    return _zipped(found._image_files, found._labels)


def pets(root: Path, split: str) -> Listed:
    """Read Oxford-IIIT Pet (Parkhi et al. 2012) as torchvision does; classes are the 37 breeds."""
    from torchvision import datasets

    found = datasets.OxfordIIITPet(str(root / "pets"), split=_trainval(split))
    return _zipped(found._images, found._labels)


def aircraft(root: Path, split: str) -> Listed:
    """Read FGVC-Aircraft (Maji et al. 2013) as torchvision does; classes are the 100 variants.

    The strip with the copyright at the foot of each picture stays.
    """
    from torchvision import datasets

    found = datasets.FGVCAircraft(str(root / "aircraft"), split=_trainval(split))
    return _zipped(found._image_files, found._labels)


def cub(root: Path, split: str) -> Listed:
    """Read CUB-200-2011 (Wah et al. 2011) by its lists: `1 001.Black_footed_Albatross/….jpg`.

    `train_test_split.txt` has 1 for what is trained on; labels begin at 1.
    """
    folder = root / "cub200" / "CUB_200_2011"

    def column(name: str) -> dict[str, str]:
        rows = (line.split(" ", 1) for line in _lines(folder / name))
        return {number: value for number, value in rows}

    labels, trained_on = column("image_class_labels.txt"), column("train_test_split.txt")
    wanted = "1" if split == "train" else "0"
    return Listed(
        (folder / "images" / path, int(labels[number]) - 1)
        for number, path in column("images.txt").items()
        if trained_on[number] == wanted
    )


def _trainval(split: str) -> str:
    """Return what a data set that publishes a part for validation too calls this part."""
    return "trainval" if split == "train" else split


def _zipped(paths: Iterable[Any], labels: Iterable[int]) -> Listed:
    return Listed((Path(path), int(label)) for path, label in zip(paths, labels, strict=True))


def flowers_train_val(root: Path, split: str) -> Listed:
    """Read Flowers102 in RelViT's protocol.

    The official train part, tested on the official val part.
    """
    from torchvision import datasets

    found = datasets.Flowers102(
        str(root / "flowers102"), split="train" if split == "train" else "val"
    )
    return Listed(
        (Path(path), int(label))
        for path, label in zip(found._image_files, found._labels, strict=True)
    )
