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
    Segmentation,
    is_trained_on,
    read_coco,
    segmentation_of,
)
from ...jobs.grid.image_folder import PICTURES
from ...jobs.grid.object_folder import annotations_of, test_part
from ..errors import DataError, DataMissing
from .listed import Listed

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
        self._sizes: list[Size] = [one.size for one, _ in chosen]
        self._objects = [objects for _, objects in chosen]

    def size(self, index: int) -> Size:
        """Return height and width of an image, pixels."""
        return self._sizes[index]

    def objects(self, index: int, shown: Size) -> OfImage:
        """Return the objects of an image that are trained on.

        Args:
            index: of the image.
            shown: height and width that it is brought to, pixels.

        Raises:
            DataError: a mask cannot be read.
        """
        height, width = size = self._sizes[index]
        limits = torch.tensor([width, height, width, height], dtype=torch.float32)
        learnt, boxes = [], []
        for one in filter(is_trained_on, self._objects[index]):
            box = torch.tensor(one.bbox, dtype=torch.float32)
            box[2:] += box[:2]
            box = box.clamp(min=torch.zeros(4), max=limits)
            # What lies beyond the image is cut off; of some objects nothing is left.
            if (box[2:] - box[:2]).min() >= 1:
                learnt.append(one)
                boxes.append(box)
        if not learnt:
            return next(no_objects(1, shown, torch.device("cpu")).by_image())
        down, across = (there / here for there, here in zip(shown, size, strict=True))
        return OfImage(
            torch.stack(boxes) * torch.tensor([across, down, across, down]),
            torch.tensor([self._place[one.category_id] for one in learnt]),
            torch.stack([self._mask(one, size, shown) for one in learnt]),
        )

    def truth(self, index: int) -> list[dict[str, Any]]:
        """Return all objects of an image, crowds included, as COCO's own program takes them.

        Raises:
            DataError: a mask cannot be read.
        """
        from pycocotools import mask

        size = self._sizes[index]
        found = []
        for one in self._objects[index]:
            given = self._segmentation(one, size)
            area = one.area
            if area is None:
                area = float(mask.area(_code_of(given, size)))
            found.append(
                {
                    "category_id": self._place[one.category_id],
                    "bbox": list(one.bbox),
                    "segmentation": given,
                    "area": area,
                    "iscrowd": int(one.iscrowd),
                }
            )
        return found

    def _segmentation(self, one: Annotation, size: Size) -> Segmentation:
        try:
            return segmentation_of(one, size)
        except ValueError as error:
            where = f"segmentation of an object of image {one.image_id}"
            raise DataError(f"{self._file}: {where}: {error}") from error

    def _mask(self, one: Annotation, size: Size, shown: Size) -> Tensor:
        """Return an object's mask at a size, [H, W] bool."""
        from pycocotools import mask
        from torch.nn import functional as F

        given = self._segmentation(one, size)
        if isinstance(given, dict):
            whole = torch.from_numpy(mask.decode(_code_of(given, size)))
            return F.interpolate(whole[None, None], size=shown, mode="nearest-exact")[0, 0].bool()
        # Drawn at the size itself: a whole photograph may have a hundred times as many pixels.
        down, across = (there / here for there, here in zip(shown, size, strict=True))
        moved = [
            [value * (down if place % 2 else across) for place, value in enumerate(corners)]
            for corners in given
        ]
        return torch.from_numpy(mask.decode(_code_of(moved, shown))).bool()


def _code_of(given: Segmentation, size: Size) -> Any:
    """Return the run-length code, packed as COCO's own program has it, of one that was checked."""
    from pycocotools import mask

    if isinstance(given, dict) and isinstance(given["counts"], str):
        return given
    read: Any = mask.frPyObjects
    packed = read(given, *size)
    return mask.merge(packed) if isinstance(packed, list) else packed


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
