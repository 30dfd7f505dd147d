"""Files of annotated objects as COCO has them (Lin et al. 2014)."""

import math
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from ..errors import BadInput

# Some programs write a mark of the byte order in front of the text.
_MARK = b"\xef\xbb\xbf"
# A polygon has three corners or more.
_FEWEST = 6
# How far beyond its image a corner may lie, in sides of the image.
_BEYOND = 2
# Bits of a run's length.
_LONGEST = 60
Number = int | str
"""Of an image or a class: COCO has integers, some programs write text."""
Segmentation = list[list[float]] | dict[str, Any]
"""Polygons, [x, y, x, y, …] each, or a run-length code: `size` and `counts`."""


class Picture(msgspec.Struct, frozen=True, gc=False):
    """An image."""

    id: Number
    file_name: str
    """In the folder of its part."""
    width: float
    """Pixels."""
    height: float
    """Pixels."""

    @property
    def size(self) -> tuple[int, int]:
        """Height and width, pixels."""
        return int(self.height), int(self.width)


class Annotation(msgspec.Struct, frozen=True, gc=False):
    """An object of an image."""

    image_id: Number
    category_id: Number
    bbox: tuple[float, float, float, float]
    """Left, top, width and height, pixels."""
    segmentation: msgspec.Raw = msgspec.Raw()
    """As text: most of a file is this, and it is decoded where it is needed."""
    iscrowd: bool | int = 0
    """1: many objects that nobody told apart, which are neither trained on nor scored."""
    area: float | None = None
    """Of its mask, square pixels; None: as it is."""


class Category(msgspec.Struct, frozen=True, gc=False):
    """A class of objects."""

    id: Number
    name: str


class CocoFile(msgspec.Struct, frozen=True, gc=False):
    """What a file of annotations holds."""

    images: list[Picture]
    annotations: list[Annotation]
    categories: list[Category]

    @property
    def classes(self) -> dict[Number, str]:
        """Number -> name of each class, in the order of the numbers."""
        named = {one.id: one.name for one in self.categories}
        return {number: named[number] for number in sorted(named, key=_rank)}

    def of_images(self) -> list[list[Annotation]]:
        """Return the annotations of each image, in the order of the images."""
        place = {one.id: number for number, one in enumerate(self.images)}
        found: list[list[Annotation]] = [[] for _ in self.images]
        for one in self.annotations:
            found[place[one.image_id]].append(one)
        return found


def _rank(number: Number) -> tuple[bool, Any]:
    return isinstance(number, str), number


def read_coco(path: Path) -> CocoFile:
    """Read a file of annotations.

    Raises:
        OSError: it is not there, or cannot be read.
        BadInput: it is no such file; the message names it and the place in it.
    """
    try:
        found = msgspec.json.decode(path.read_bytes().removeprefix(_MARK), type=CocoFile)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: no file of annotations as COCO has them: {error}") from None
    problem = next(_problems(found), None)
    if problem is not None:
        raise BadInput(f"{path}: {problem}")
    return found


def check_masks(path: Path, found: CocoFile) -> None:
    """Look at the mask of every object.

    Raises:
        BadInput: one is none, or no mask of its image; the message names it.
    """
    without = [number for number, one in enumerate(found.annotations) if not _has_mask(one)]
    if without:
        first = found.annotations[without[0]]
        raise BadInput(
            f"{path}: {len(without)} of {len(found.annotations)} objects have no segmentation, the"
            f" first is annotations[{without[0]}], on image {first.image_id}. Mask R-CNN learns a"
            " mask for each object: draw them, or leave out the objects without"
        )
    sizes = {one.id: one.size for one in found.images}
    for number, one in enumerate(found.annotations):
        try:
            segmentation_of(one, sizes[one.image_id])
        except ValueError as error:
            raise BadInput(f"{path}: annotations[{number}]: segmentation: {error}") from None


def segmentation_of(one: Annotation, size: tuple[int, int]) -> Segmentation:
    """Return an object's polygons or run-length code.

    COCO's own program reads beyond its memory, or never ends, on some that are none.

    Args:
        one: the object.
        size: height and width of its image, pixels.

    Raises:
        ValueError: it is none, or no mask of an image of this size.
    """
    if not _has_mask(one):
        raise ValueError("there is none")
    try:
        found: Segmentation = msgspec.json.decode(one.segmentation, type=Segmentation)
    except msgspec.DecodeError as error:
        raise ValueError(f"expected polygons or a run-length code: {error}") from None
    problem = _of_code(found, size) if isinstance(found, dict) else _of_polygons(found, size)
    if problem:
        raise ValueError(problem)
    return found


def is_trained_on(one: Annotation) -> bool:
    """Whether an object counts in training: it is no crowd, and at least a pixel wide and high."""
    _, _, width, height = one.bbox
    return not one.iscrowd and min(width, height) >= 1 and (one.area is None or one.area > 0)


def _has_mask(one: Annotation) -> bool:
    return bytes(one.segmentation) not in (b"", b"[]", b"null")


def _of_polygons(polygons: list[list[float]], size: tuple[int, int]) -> str:
    """Return what is wrong with polygons, or nothing."""
    height, width = size
    for corners in polygons:
        if len(corners) < _FEWEST or len(corners) % 2:
            return f"a polygon of {len(corners)} numbers. Expected [x, y, x, y, x, y, …]"
        for values, side in ((corners[::2], width), (corners[1::2], height)):
            if not all(-_BEYOND * side <= value <= (1 + _BEYOND) * side for value in values):
                return f"a corner lies far beyond the image of {width}x{height} pixels"
    return ""


def _of_code(code: dict[str, Any], size: tuple[int, int]) -> str:
    """Return what is wrong with a run-length code, or nothing."""
    height, width = size
    if code.get("size") != [height, width]:
        return f"its size is {code.get('size')}, the image's {[height, width]}"
    runs = code.get("counts")
    if isinstance(runs, str):
        runs = list(_unpacked(runs))
    if not isinstance(runs, list) or not all(isinstance(run, int) and run >= 0 for run in runs):
        return "its counts are no lengths of runs"
    if sum(runs) != height * width:
        return f"its runs are of {sum(runs)} pixels, the image has {height * width}"
    return ""


def _unpacked(text: str) -> Iterator[int]:
    """Yield the runs of a code that COCO's program has packed into text; -1: it is none.

    Each character has 5 bits of a number, and whether there are more; from the fourth run on a
    number is the difference to the run before the last one.
    """
    runs: list[int] = []
    value = shift = 0
    for character in text:
        bits = ord(character) - 48
        # No run is so long, and to add up numbers without end would take for ever.
        if not 0 <= bits < 64 or shift > _LONGEST:
            yield -1
            return
        value |= (bits & 0x1F) << shift
        shift += 5
        if bits & 0x20:
            continue
        if bits & 0x10:
            value -= 1 << shift
        runs.append(value + (runs[-2] if len(runs) > 2 else 0))
        yield runs[-1]
        value = shift = 0
    if shift:
        yield -1


def _problems(found: CocoFile) -> Iterator[str]:
    """Yield what contradicts itself in a file."""
    yield from _of_list("images", "id", [one.id for one in found.images])
    yield from _of_list("images", "file_name", [one.file_name for one in found.images])
    yield from _of_list("categories", "id", [one.id for one in found.categories])
    yield from _of_list("categories", "name", [one.name for one in found.categories])
    for number, picture in enumerate(found.images):
        yield from _of_picture(f"images[{number}]", picture)
    images, categories = {one.id for one in found.images}, {one.id for one in found.categories}
    for number, one in enumerate(found.annotations):
        yield from _of_annotation(f"annotations[{number}]", one, images, categories)


def _of_picture(where: str, picture: Picture) -> Iterator[str]:
    path = PurePosixPath(picture.file_name)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        yield f"{where}: file_name {picture.file_name!r} leaves the images' folder"
    if not all(side.is_integer() and side >= 1 for side in (picture.width, picture.height)):
        yield f"{where}: width and height must be whole numbers above 0"


def _of_annotation(
    where: str, one: Annotation, images: set[Number], categories: set[Number]
) -> Iterator[str]:
    if one.image_id not in images:
        yield f"{where}: there is no image with id {one.image_id}"
    if one.category_id not in categories:
        yield f"{where}: there is no category with id {one.category_id}"
    if not all(map(math.isfinite, one.bbox)) or min(one.bbox[2:]) < 0:
        yield f"{where}: bbox {list(one.bbox)} is none. Expected [left, top, width, height]"


def _of_list(name: str, field: str, values: list[Any]) -> Iterator[str]:
    if not values:
        yield f"it has no {name}"
    seen = set()
    for value in values:
        if value in seen:
            yield f"two of its {name} have the {field} {value!r}"
        seen.add(value)
