"""Objects of images, each with a class, a box and a mask; and datasets that have them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...jobs.errors import BadInput
from ...jobs.grid.coco_file import (
    Annotation,
    CocoFile,
    is_trained_on,
    read_coco,
    segmentation_of,
)
from ...jobs.grid.image_folder import PICTURES
from ...jobs.grid.object_folder import annotations_of, test_part
from ..errors import DataError, DataMissing
from .image_trees import Listed

Size = tuple[int, int]
"""Height and width, pixels."""


class OfImage(NamedTuple):
    """The objects of one image."""

    boxes: Tensor
    """[N, 4] float32: left, top, right, bottom, pixels."""
    classes: Tensor
    """[N] int64."""
    masks: Tensor
    """[N, H, W] bool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Objects:
    """The objects of the images of a batch, one image's after the other's."""

    boxes: Tensor
    """[N, 4] float32: left, top, right, bottom, pixels."""
    classes: Tensor
    """[N] int64."""
    masks: Tensor
    """[N, H, W] bool."""
    counts: tuple[int, ...]
    """How many each image has."""
    sizes: tuple[Size, ...]
    """Of each image; what lies beyond, to the right and below, was filled up."""

    def __len__(self) -> int:
        """Return the number of images, as a batch's labels do."""
        return len(self.counts)

    def by_image(self) -> Iterator[OfImage]:
        """Yield those of each image."""
        parts = (values.split(self.counts) for values in (self.boxes, self.classes, self.masks))
        return map(OfImage, *parts)

    def split(self, sizes: Sequence[int]) -> "list[Objects]":
        """Return those of so many images each, as a tensor of labels would be split."""
        found, start = [], 0
        for images in sizes:
            stop = start + images
            low, high = sum(self.counts[:start]), sum(self.counts[:stop])
            found.append(
                Objects(
                    boxes=self.boxes[low:high],
                    classes=self.classes[low:high],
                    masks=self.masks[low:high],
                    counts=self.counts[start:stop],
                    sizes=self.sizes[start:stop],
                )
            )
            start = stop
        return found

    def chunk(self, parts: int) -> "list[Objects]":
        """Return them in so many parts or fewer, as a tensor of labels would be cut."""
        sizes = [len(part) for part in torch.arange(len(self)).chunk(parts)]
        return self.split(sizes)

    def to(self, device: torch.device, *, non_blocking: bool = False) -> "Objects":
        """Return them on a device."""
        boxes, classes, masks = (
            values.to(device, non_blocking=non_blocking)
            for values in (self.boxes, self.classes, self.masks)
        )
        return Objects(
            boxes=boxes, classes=classes, masks=masks, counts=self.counts, sizes=self.sizes
        )

    def pin_memory(self) -> "Objects":
        """Return them in memory that a GPU copies from without waiting."""
        boxes, classes, masks = (
            values.pin_memory() for values in (self.boxes, self.classes, self.masks)
        )
        return Objects(
            boxes=boxes, classes=classes, masks=masks, counts=self.counts, sizes=self.sizes
        )


def no_objects(images: int, size: Size, device: torch.device) -> Objects:
    """Return what images without any object have.

    Args:
        images: how many.
        size: of each.
        device: where.
    """
    return Objects(
        boxes=torch.zeros(0, 4, device=device),
        classes=torch.zeros(0, dtype=torch.int64, device=device),
        masks=torch.zeros(0, *size, dtype=torch.bool, device=device),
        counts=(0,) * images,
        sizes=(size,) * images,
    )


class Annotated:
    """Pictures by path, and the objects on each, in one file for all.

    Args:
        file: of annotations.
        folder: of the pictures.
        trains: whether pictures are left out that have no object but crowds.
        classes: how many there are.

    Raises:
        DataError: the file cannot be used, or has another number of classes.
        FileNotFoundError: it is not there.
    """

    def __init__(self, file: Path, folder: Path, *, trains: bool, classes: int) -> None:
        self._file = file
        try:
            found: CocoFile = read_coco(file)
        except BadInput as error:
            raise DataError(str(error)) from error
        if len(found.classes) != classes:
            raise DataError(f"{file}: {len(found.classes)} categories, expected {classes}")
        self._place = {number: place for place, number in enumerate(found.classes)}
        chosen = [
            (one, objects)
            for one, objects in zip(found.images, found.of_images(), strict=True)
            if not trains or not all(each.iscrowd for each in objects)
        ]
        # An image as a whole has no class.
        self.pictures = Listed((folder / one.file_name, 0) for one, _ in chosen)
        self._sizes: list[Size] = [(one.height, one.width) for one, _ in chosen]
        self._objects = [objects for _, objects in chosen]

    def size(self, index: int) -> Size:
        """Return height and width of an image, pixels."""
        return self._sizes[index]

    def objects(self, index: int) -> OfImage:
        """Return the objects of an image that are trained on.

        Raises:
            DataError: a mask cannot be read.
        """
        learnt = [one for one in self._objects[index] if is_trained_on(one)]
        size = self._sizes[index]
        if not learnt:
            return next(no_objects(1, size, torch.device("cpu")).by_image())
        boxes = torch.tensor([one.bbox for one in learnt], dtype=torch.float32)
        boxes[:, 2:] += boxes[:, :2]
        height, width = size
        limits = torch.tensor([width, height, width, height], dtype=torch.float32)
        return OfImage(
            boxes.clamp(min=torch.zeros(4), max=limits),
            torch.tensor([self._place[one.category_id] for one in learnt]),
            torch.stack([self._mask(one, size) for one in learnt]),
        )

    def truth(self, index: int) -> list[dict[str, Any]]:
        """Return all objects of an image, crowds included, as COCO's own program takes them."""
        return [
            {
                "category_id": self._place[one.category_id],
                "bbox": list(one.bbox),
                "segmentation": segmentation_of(one),
                "area": one.area if one.area is not None else one.bbox[2] * one.bbox[3],
                "iscrowd": one.iscrowd,
            }
            for one in self._objects[index]
        ]

    def _mask(self, one: Annotation, size: Size) -> Tensor:
        """Return an object's mask, [H, W] bool."""
        from pycocotools import mask

        height, width = size
        given = segmentation_of(one)
        try:
            is_packed = isinstance(given, dict) and isinstance(given.get("counts"), str)
            packed = given if is_packed else mask.frPyObjects(given, height, width)
            whole = mask.merge(packed) if isinstance(packed, list) else packed
            found = torch.from_numpy(mask.decode(whole)).bool()
        # pycocotools raises whatever it comes across, also plain `Exception`.
        except Exception as error:
            where = f"segmentation of an object of image {one.image_id}"
            raise DataError(f"{self._file}: {where} cannot be read: {error}") from error
        if tuple(found.shape) != size:
            where = f"segmentation of an object of image {one.image_id}"
            raise DataError(
                f"{self._file}: {where} has {found.shape[1]}x{found.shape[0]} pixels, the image"
                f" {width}x{height}"
            )
        return found


def coco2017(root: Path, split: str) -> Annotated:
    """Read COCO 2017 (Lin et al. 2014); the published validation part is the test set."""
    folder, part = root / "coco2017", "train2017" if split == "train" else "val2017"
    file = folder / "annotations" / f"instances_{part}.json"
    return Annotated(file, folder / part, trains=split == "train", classes=80)


def folder_of_objects(root: Path, split: str, *, classes: int) -> Annotated:
    """Read a lab's own folder: images/train/NAME.jpg with annotations/train.json, and test or val.

    Raises:
        DataMissing: a part has no file of annotations.
        DataError: as `Annotated`.
    """
    part = split
    if split == "test":
        part = test_part(root) or split
    file = annotations_of(root, part)
    if file is None:
        raise DataMissing(f"dataset folder {root} has no annotations/{part}.json")
    return Annotated(file, root / PICTURES / part, trains=split == "train", classes=classes)
