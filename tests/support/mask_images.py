"""Images with masks, generated."""

from pathlib import Path

import numpy
from PIL import Image


def mask_folder(
    root: Path, *, train: int, test: int, classes: int = 3, size: tuple[int, int] = (20, 24)
) -> Path:
    """Write images of many sizes with masks: each class is a rectangle of its own brightness."""
    draw = numpy.random.default_rng(0)
    for split, count in (("train", train), ("test", test)):
        for kind in ("images", "masks"):
            (root / kind / split).mkdir(parents=True)
        for index in range(count):
            height, width = size[0] + index % 3, size[1] + index % 2
            mask = numpy.zeros((height, width), dtype=numpy.uint8)
            for label in range(1, classes):
                top, left = draw.integers(height // 2), draw.integers(width // 2)
                mask[top : top + height // 2, left : left + width // 2] = label
            noise = draw.integers(0, 20, (height, width, 3))
            pixels = (mask[:, :, None] * (200 // classes) + noise).astype(numpy.uint8)
            # A border that belongs to no class.
            mask[0] = 255
            Image.fromarray(pixels).save(root / "images" / split / f"{index}.png")
            Image.fromarray(mask).save(root / "masks" / split / f"{index}.png")
    (root / "classes.txt").write_text("".join(f"class {label}\n" for label in range(classes)))
    return root
