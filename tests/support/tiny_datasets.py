"""The papers' datasets with a few generated images each, in the layouts they are published in."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy
from PIL import Image

from vtjobs.jobs.grid import catalogue

from .published import write_cifar, write_flowers, write_svhn

SIDE = 64
DOMAINS = ("clipart", "infograph", "painting", "quickdraw", "real", "sketch")
YEARS = (2018, 2019)
# Images for training where the papers ask for the 30 nearest of them.
NEIGHBOURS = 32


@dataclass(slots=True)
class Written:
    """What was written, as far as a program that reads it has to be told."""

    counts: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Dataset -> images for training and for testing."""
    checksums: list[tuple[str, str, Any]] = field(default_factory=list)
    """Class of `torchvision.datasets`, attribute, value."""

    def setattr(self, target: Any, name: str, value: Any) -> None:
        """Note a checksum, in the way in which pytest's `monkeypatch` sets it."""
        self.checksums.append((target.__name__, name, value))

    def as_program(self) -> str:
        """Return lines that set the checksums."""
        lines = [f"_published.{kind}.{name} = {value!r}" for kind, name, value in self.checksums]
        return "\n".join(["", "from torchvision import datasets as _published", *lines, ""])


def write_datasets(root: Path, *, train: int, test: int) -> Written:
    """Write one dataset of each layout, with about so many images."""
    from torchvision import datasets

    written = Written()
    write_cifar(root / "cifar10", datasets.CIFAR10, each=test, patch=written)
    written.counts["cifar10"] = 5 * test, test
    write_cifar(root / "cifar100", datasets.CIFAR100, each=NEIGHBOURS, patch=written)
    written.counts["cifar100"] = written.counts["cifar100_coarse"] = NEIGHBOURS, NEIGHBOURS
    write_svhn(root / "svhn", datasets.SVHN, each=train, patch=written)
    written.counts["svhn"] = train, train
    write_flowers(root / "flowers102", datasets.Flowers102, each=train, patch=written)
    written.counts |= {"flowers102": (2 * train, train), "flowers102_relvit": (train, train)}
    _imagenet(root / "imagenet1k", train, test)
    _tiny_imagenet(root / "tiny_imagenet" / "tiny-imagenet-200", train, test)
    for domain in DOMAINS:
        _domain(root / "domainnet", domain, train, test)
    for year in YEARS:
        _inaturalist(root / f"inat{year}", year, NEIGHBOURS, test)
        written.counts[f"inat{year}"] = NEIGHBOURS, test
    _cars(root / "cars" / "stanford_cars", train, test)
    written.counts["cars"] = train, test
    _food(root / "food101" / "food-101", train, test)
    _ade20k(root / "ade20k" / "ADEChallengeData2016", train, test)
    _coco2017(root / "coco2017", train, test)
    for name in (
        "food101",
        "imagenet1k",
        "imagenet100",
        "tiny_imagenet",
        "ade20k",
        "coco2017",
        *DOMAINS,
    ):
        written.counts[name] = train, test
    return written


def write_weights(root: Path) -> None:
    """Write the weights that DRLoc's table 5 starts from, drawn and not trained."""
    import timm
    from safetensors.torch import save_file

    from vtjobs.workers.models import t2t

    root.mkdir()
    # And the thesis' teacher.
    for name in (
        "swin_tiny_patch4_window7_224.ms_in1k",
        "resnet50.tv_in1k",
        "regnety_160.deit_in1k",
    ):
        model = timm.create_model(name, pretrained=False)
        save_file(model.state_dict(), str(root / f"{name}.safetensors"))
    save_file(t2t.t2t_vit_14().state_dict(), str(root / "t2t_vit_14.safetensors"))


def _pictures(paths: Iterable[Path]) -> None:
    draw = numpy.random.default_rng(0)
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = draw.integers(0, 256, (SIDE, SIDE + 8, 3), dtype=numpy.uint8)
        Image.fromarray(pixels).save(path, "JPEG")


def _imagenet(root: Path, train: int, test: int) -> None:
    # ImageNet-100 asks for all of its classes; the first two have the images.
    names = catalogue.class_list("imagenet100")
    for part, count in (("train", train), ("val", test)):
        for name in names:
            (root / part / name).mkdir(parents=True)
        _pictures(
            root / part / names[number % 2] / f"{part}_{number}.JPEG" for number in range(count)
        )


def _tiny_imagenet(root: Path, train: int, test: int) -> None:
    names = ("n01443537", "n01629819")
    _pictures(
        root / "train" / names[at % 2] / "images" / f"{names[at % 2]}_{at}.JPEG"
        for at in range(train)
    )
    _pictures(root / "val" / "images" / f"val_{at}.JPEG" for at in range(test))
    rows = [f"val_{at}.JPEG\t{names[at % 2]}\t0\t0\t62\t62\n" for at in range(test)]
    (root / "val" / "val_annotations.txt").write_text("".join(rows))
    (root / "wnids.txt").write_text("".join(f"{name}\n" for name in names))


def _cars(root: Path, train: int, test: int) -> None:
    from scipy.io import savemat

    (root / "devkit").mkdir(parents=True)
    for part, count, file in (
        ("cars_train", train, root / "devkit" / "cars_train_annos.mat"),
        ("cars_test", test, root / "cars_test_annos_withlabels.mat"),
    ):
        names = [f"{number:05}.jpg" for number in range(count)]
        _pictures(root / part / name for name in names)
        kinds = [("fname", "O"), ("class", "O")]
        rows = [(name, 1 + number % 2) for number, name in enumerate(names)]
        savemat(file, {"annotations": numpy.array(rows, dtype=kinds)})
    savemat(root / "devkit" / "cars_meta.mat", {"class_names": ["one", "two"]})


def _food(root: Path, train: int, test: int) -> None:
    (root / "meta").mkdir(parents=True)
    for part, count in (("train", train), ("test", test)):
        names = [f"{('pie', 'soup')[number % 2]}/{part}{number}" for number in range(count)]
        listed = {
            kind: [name for name in names if name.startswith(kind)] for kind in ("pie", "soup")
        }
        (root / "meta" / f"{part}.json").write_text(json.dumps(listed))
        _pictures(root / "images" / f"{name}.jpg" for name in names)


def _ade20k(root: Path, train: int, test: int) -> None:
    for part, count in (("training", train), ("validation", test)):
        names = [f"ADE_{number}" for number in range(count)]
        _pictures(root / "images" / part / f"{name}.jpg" for name in names)
        (root / "annotations" / part).mkdir(parents=True)
        for name in names:
            levels = numpy.arange(SIDE * (SIDE + 8), dtype=numpy.int64).reshape(SIDE, SIDE + 8)
            mask = (levels // 97 % 151).astype(numpy.uint8)
            Image.fromarray(mask).save(root / "annotations" / part / f"{name}.png")


def _coco2017(root: Path, train: int, test: int) -> None:
    (root / "annotations").mkdir(parents=True)
    left, top, side = 4.0, 6.0, 20.0
    square = [left, top, left + side, top, left + side, top + side, left, top + side]
    for part, count in (("train2017", train), ("val2017", test)):
        names = [f"{number:012}.jpg" for number in range(count)]
        _pictures(root / part / name for name in names)
        described = {
            "images": [
                {"id": number, "file_name": name, "width": SIDE + 8, "height": SIDE}
                for number, name in enumerate(names)
            ],
            "annotations": [
                {
                    "id": number,
                    "image_id": number,
                    "category_id": 1 + number % 80,
                    "bbox": [left, top, side, side],
                    "segmentation": [square],
                    "area": side * side,
                    "iscrowd": 0,
                }
                for number in range(count)
            ],
            "categories": [{"id": number, "name": f"class {number}"} for number in range(1, 81)],
        }
        (root / "annotations" / f"instances_{part}.json").write_text(json.dumps(described))


def _domain(root: Path, domain: str, train: int, test: int) -> None:
    for part, count in (("train", train), ("test", test)):
        files = [f"{domain}/class_{number % 2}/{part}_{number}.jpg" for number in range(count)]
        _pictures(root / file for file in files)
        lines = [f"{file} {number % 2}\n" for number, file in enumerate(files)]
        (root / f"{domain}_{part}.txt").write_text("".join(lines))


def _inaturalist(root: Path, year: int, train: int, test: int) -> None:
    ranks = ("kingdom", "phylum", "class", "order", "family", "genus")
    categories = [{"id": number, **dict.fromkeys(ranks, f"taxon {number}")} for number in range(2)]
    for part, ids in (("train", range(train)), ("val", range(train, train + test))):
        images = [{"id": at, "file_name": f"train_val{year}/Plants/{at}.jpg"} for at in ids]
        notes = [{"id": at, "image_id": at, "category_id": at % 2} for at in ids]
        _pictures(root / str(image["file_name"]) for image in images)
        document = {"images": images, "annotations": notes, "categories": categories}
        (root / f"{part}{year}.json").write_text(json.dumps(document))
