"""Datasets whose images have masks: a class for each pixel."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor

from ...jobs.grid.image_folder import MASK_SUFFIX, MASKS, PICTURES, TEST_FOLDERS, is_image
from ..errors import STORAGE_ERRORS, DataError, DataMissing
from .listed import Listed

# In a mask: a pixel without a class, which is neither trained on nor scored.
IGNORED = 255


class Masked:
    """Pictures by path, and a mask for each, in a file of its own.

    Args:
        pairs: of a picture and its mask.
        classes: of a pixel.
        first: the level of class 0 in a mask's file; lower ones are no class.

    Raises:
        DataMissing: a picture has no mask.
    """

    def __init__(self, pairs: Iterable[tuple[Path, Path]], *, classes: int, first: int = 0) -> None:
        found = list(pairs)
        # An image as a whole has no class.
        self.pictures = Listed((picture, 0) for picture, _ in found)
        self._masks = [mask for _, mask in found]
        self._classes, self._first = classes, first

    def mask(self, index: int) -> Tensor:
        """Return a mask, [H, W] uint8: classes, and `IGNORED`.

        Raises:
            DataError: it is damaged, no picture of whole levels, or has levels that are no class;
                the message names its file.
        """
        path = self._masks[index]
        levels = _levels(path)
        named = levels - self._first
        wrong = (named >= self._classes) & (levels != IGNORED)
        if wrong.any():
            level = int(levels[wrong][0])
            last = self._first + self._classes - 1
            raise DataError(f"mask {path}: level {level}; classes are {self._first} to {last}")
        is_none = (levels == IGNORED) | (levels < self._first)
        return torch.from_numpy(numpy.where(is_none, IGNORED, named).astype(numpy.uint8))


def _levels(path: Path) -> Any:
    """Return the levels of a picture with one channel, [H, W] int64."""
    from PIL import Image

    try:
        with Image.open(path) as mask:
            if mask.mode not in ("L", "P"):
                raise DataError(f"mask {path}: expected one channel of 8 bits, it is {mask.mode}")
            return numpy.asarray(mask).astype(numpy.int64)
    except (MemoryError, DataError):
        raise
    except Exception as error:
        # Pillow's readers raise whatever they come across: OSError, SyntaxError, struct.error.
        if isinstance(error, OSError) and error.errno in STORAGE_ERRORS:
            raise
        kind = DataMissing if isinstance(error, FileNotFoundError) else DataError
        raise kind(f"mask {path} cannot be read: {error}") from error


def ade20k(root: Path, split: str) -> Masked:
    """Read ADE20K (Zhou et al. 2019) as it was cut for the scene parsing challenge: 150 classes.

    In its masks 1 to 150 are the classes, and 0 is what belongs to none. The published validation
    part is the test set.
    """
    folder = root / "ade20k" / "ADEChallengeData2016"
    part = "training" if split == "train" else "validation"
    pictures, masks = folder / "images" / part, folder / "annotations" / part
    return Masked(_paired(pictures, masks), classes=150, first=1)


def folder_of_masks(root: Path, split: str, *, classes: int) -> Masked:
    """Read a lab's own folder: images/train/NAME.jpg with masks/train/NAME.png, and test or val.

    In its masks a level is the number of a class, and 255 is none.
    """
    part = split
    if split == "test" and not (root / PICTURES / split).is_dir():
        part = TEST_FOLDERS[-1]
    return Masked(_paired(root / PICTURES / part, root / MASKS / part), classes=classes)


def _paired(pictures: Path, masks: Path) -> list[tuple[Path, Path]]:
    """Return each picture of a folder, in the order of their names, with its mask in another.

    Raises:
        DataMissing: one has no mask.
        FileNotFoundError: there is no such folder.
    """
    found = []
    images = sorted(path for path in pictures.iterdir() if is_image(path))
    there = {path.stem: path for path in masks.iterdir() if path.suffix == MASK_SUFFIX}
    for picture in images:
        if picture.stem not in there:
            raise DataMissing(f"image {picture} has no mask {masks / picture.stem}{MASK_SUFFIX}")
        found.append((picture, there[picture.stem]))
    return found
