"""Images with objects, generated and annotated as in COCO."""

import json
from pathlib import Path
from typing import Any

import numpy
from PIL import Image, ImageDraw

# Number -> name of a class. Numbers may have gaps, as COCO's have.
CLASSES = {1: "square", 3: "disc"}


def object_folder(
    root: Path, *, train: int, test: int, size: tuple[int, int] = (40, 48), empty: int = 0
) -> Path:
    """Write images of many sizes with bright squares and dark discs on noise.

    Args:
        root: where.
        train: number of training images with objects.
        test: number of test images.
        size: of the smallest image, height and width.
        empty: number of training images more that have no object.
    """
    draw = numpy.random.default_rng(0)
    (root / "annotations").mkdir(parents=True)
    for part, count in (("train", train + empty), ("test", test)):
        folder = root / "images" / part
        folder.mkdir(parents=True)
        images: list[dict[str, Any]] = []
        objects: list[dict[str, Any]] = []
        for number in range(count):
            height, width = size[0] + number % 3, size[1] + number % 2
            image = Image.fromarray(draw.integers(90, 110, (height, width, 3)).astype("uint8"))
            images.append(
                {"id": 10 + number, "file_name": f"{number}.png", "width": width, "height": height}
            )
            is_empty = part == "train" and number >= train
            for label in [] if is_empty else CLASSES:
                objects.append(_object(image, label, draw) | {"image_id": 10 + number})
            image.save(folder / f"{number}.png")
        described = {
            "images": images,
            "annotations": [one | {"id": place} for place, one in enumerate(objects)],
            "categories": [{"id": number, "name": name} for number, name in CLASSES.items()],
        }
        (root / "annotations" / f"{part}.json").write_text(json.dumps(described))
    return root


def _object(image: Image.Image, label: int, draw: numpy.random.Generator) -> dict[str, Any]:
    """Draw an object, and return its annotation."""
    side = int(draw.integers(12, 18))
    left, top = (int(draw.integers(0, length - side)) for length in image.size)
    pen = ImageDraw.Draw(image)
    if label == 1:
        pen.rectangle((left, top, left + side - 1, top + side - 1), fill=(250, 250, 240))
        corners = [(0, 0), (side, 0), (side, side), (0, side)]
    else:
        pen.ellipse((left, top, left + side - 1, top + side - 1), fill=(10, 10, 20))
        angles = numpy.linspace(0, 2 * numpy.pi, 20, endpoint=False)
        radius = side / 2
        corners = [(radius + radius * numpy.cos(a), radius + radius * numpy.sin(a)) for a in angles]
    polygon = [float(value) for x, y in corners for value in (left + x, top + y)]
    return {
        "category_id": label,
        "bbox": [left, top, side, side],
        "segmentation": [polygon],
        "area": float(side * side),
        "iscrowd": 0,
    }
