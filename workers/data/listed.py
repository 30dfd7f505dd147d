"""Pictures that are opened one by one."""

import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import STORAGE_ERRORS, DataError, DataMissing

# How Pillow's names of pixels with 16 or 32 bits begin.
_DEEP = ("I", "F")


class Listed:
    """Pictures by path, each in a file of its own."""

    def __init__(
        self,
        pairs: Iterable[tuple[Path, int]],
        *,
        answers: Sequence[Sequence[int]] | None = None,
        only: Sequence[int] | None = None,
    ) -> None:
        self.answers = answers
        """Of each picture, all classes that are right; None: its label alone."""
        self.only = only
        """The classes that a model may choose from; None: all."""
        self.paths: list[Path] = []
        labels = []
        for path, label in pairs:
            self.paths.append(path)
            labels.append(label)
        self.labels: Tensor = torch.tensor(labels, dtype=torch.int64)

    def __getitem__(self, index: int) -> Any:
        """Return a picture.

        Raises:
            DataError: it is damaged or too large; the message names its file.
            OSError: the file system failed.
        """
        path = self.paths[index]
        try:
            # Pillow would ask the file system for each folder on the way to a path.
            data = path.read_bytes()
        except OSError as error:
            if error.errno in STORAGE_ERRORS:
                raise
            kind = DataMissing if isinstance(error, FileNotFoundError) else DataError
            raise kind(f"image {path} cannot be read: {error}") from error
        return picture(data, path)


def picture(data: bytes, path: Path) -> Any:
    """Return a picture as Pillow's, in RGB.

    Args:
        data: of its file.
        path: names it in errors.

    Raises:
        DataError: it is damaged or too large; the message names it.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(data)) as image:
            # Pillow would make white of every level above 255.
            if image.mode.startswith(_DEEP):
                raise DataError(f"image {path} has more than 8 bits per pixel. Save it with 8")
            return image.convert("RGB")
    except (MemoryError, DataError):
        raise
    except UnidentifiedImageError as error:
        raise DataError(f"image {path} cannot be read: Pillow knows no such image") from error
    except Exception as error:
        # Pillow's readers raise whatever they come across: OSError, SyntaxError, struct.error.
        raise DataError(f"image {path} cannot be read: {error}") from error
