"""Pictures in files, as a set of images whose reading can be watched."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torchvision.transforms import functional as F

from vtjobs.workers.data import decoded, decoded_files
from vtjobs.workers.data.decoded import Fit
from vtjobs.workers.data.image_set import ImageSet
from vtjobs.workers.data.listed import Listed

FIT = Fit(size=16, kernel="bicubic", crop_pct=0.875)
LIMIT = 1 << 30


def keep_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep every set, in files of 8 images that are decoded 3 at a time."""
    monkeypatch.setattr(decoded, "SMALL_BYTES", 0)
    for module in (decoded, decoded_files):
        monkeypatch.setattr(module, "SEGMENT", 8)
    monkeypatch.setattr(decoded, "CHUNK", 3)
    monkeypatch.setattr(decoded_files, "POLL_S", 0.01)


def pictures(folder: Path, count: int = 20) -> ImageSet:
    """Write pictures of different sizes and return them as a set that opens them one by one."""
    folder.mkdir(exist_ok=True)
    draw = torch.Generator().manual_seed(0)
    paths = [folder / f"{number:03d}.png" for number in range(count)]
    for number, path in enumerate(paths):
        if not path.exists():
            pixels = torch.randint(0, 256, (3, 20 + number, 31), generator=draw, dtype=torch.uint8)
            F.to_pil_image(pixels).save(path)
    found = Listed((path, 0) for path in paths)
    return ImageSet(labels=found.labels, reader=found.__getitem__, files=found.paths)


def seen(images: ImageSet, note: Callable[[int], None]) -> ImageSet:
    """Return the same images, and tell of each that is opened."""

    def reader(index: int) -> Any:
        note(index)
        return images.pil(index)

    return ImageSet(labels=images.labels, reader=reader, files=images.files)
