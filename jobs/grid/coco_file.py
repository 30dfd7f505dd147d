"""Files of annotated objects as COCO has them (Lin et al. 2014)."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from ..errors import BadInput


class Picture(msgspec.Struct, frozen=True, gc=False):
    """An image."""

    id: int
    file_name: str
    """In the folder of its part."""
    width: int
    """Pixels."""
    height: int
    """Pixels."""


class Annotation(msgspec.Struct, frozen=True, gc=False):
    """An object of an image."""

    image_id: int
    category_id: int
    bbox: tuple[float, float, float, float]
    """Left, top, width and height, pixels."""
    segmentation: msgspec.Raw = msgspec.Raw()
    """Polygons, [x, y, x, y, …] each, or a run-length code; as text, decoded where it is needed."""
    iscrowd: int = 0
    """1: many objects that nobody told apart, which are neither trained on nor scored."""
    area: float | None = None
    """Of its mask, square pixels; None: that of its box."""


class Category(msgspec.Struct, frozen=True, gc=False):
    """A class of objects."""

    id: int
    name: str


class CocoFile(msgspec.Struct, frozen=True, gc=False):
    """What a file of annotations holds."""

    images: list[Picture]
    annotations: list[Annotation]
    categories: list[Category]

    @property
    def classes(self) -> dict[int, str]:
        """Number -> name of each class, in the order of the numbers."""
        return dict(sorted((one.id, one.name) for one in self.categories))

    def of_images(self) -> list[list[Annotation]]:
        """Return the annotations of each image, in the order of the images."""
        place = {one.id: number for number, one in enumerate(self.images)}
        found: list[list[Annotation]] = [[] for _ in self.images]
        for one in self.annotations:
            found[place[one.image_id]].append(one)
        return found


def read_coco(path: Path) -> CocoFile:
    """Read a file of annotations.

    Raises:
        OSError: it is not there, or cannot be read.
        BadInput: it is no such file; the message names it and the place in it.
    """
    try:
        found = msgspec.json.decode(path.read_bytes(), type=CocoFile)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: no file of annotations as COCO has them: {error}") from None
    problem = next(_problems(found), None)
    if problem is not None:
        raise BadInput(f"{path}: {problem}")
    return found


def segmentation_of(one: Annotation) -> Any:
    """Return an object's polygons or run-length code; None where it has none."""
    return msgspec.json.decode(one.segmentation) if one.segmentation else None


def is_trained_on(one: Annotation) -> bool:
    """Whether an object counts in training: it is no crowd, and at least a pixel wide and high."""
    _, _, width, height = one.bbox
    return not one.iscrowd and min(width, height) >= 1 and (one.area is None or one.area > 0)


def _problems(found: CocoFile) -> Iterator[str]:
    """Yield what contradicts itself in a file."""
    for name, ids in (
        ("images", [one.id for one in found.images]),
        ("categories", [one.id for one in found.categories]),
    ):
        if not ids:
            yield f"it has no {name}"
        if len(set(ids)) < len(ids):
            yield f"two of its {name} have the same id"
    images = {one.id for one in found.images}
    categories = {one.id for one in found.categories}
    for number, one in enumerate(found.annotations):
        where = f"annotations[{number}]"
        if one.image_id not in images:
            yield f"{where}: there is no image with id {one.image_id}"
        if one.category_id not in categories:
            yield f"{where}: there is no category with id {one.category_id}"
        if not all(map(math.isfinite, one.bbox)) or min(one.bbox[2:]) < 0:
            yield f"{where}: bbox {list(one.bbox)} is none. Expected [left, top, width, height]"
        if bytes(one.segmentation) in (b"", b"[]", b"null"):
            yield f"{where}: no segmentation. Mask R-CNN learns a mask for each object"
