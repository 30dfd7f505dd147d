"""A lab's own dataset, read by the class that came with the run."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy
import torch
from torch import Tensor

from ...jobs.run.settings import DatasetSettings
from ..errors import DataError
from ..own_parts import OwnPartError, load

# Number of channels -> Pillow's mode.
MODES = {1: "L", 3: "RGB"}


class OwnImages(NamedTuple):
    """What a lab's own class gives for a split."""

    labels: Tensor
    """[N] int64."""
    images: Tensor | None
    """[N, C, H, W] uint8, where its items are arrays."""
    reader: Callable[[int], Any] | None
    """Index -> Pillow image, where its items are such."""


def read(dataset: DatasetSettings, split: str, root: str) -> OwnImages:
    """Make a lab's own dataset and read its labels; and its images, where these are arrays.

    Args:
        dataset: of a run.
        split: train, test, or a further set of the grid.
        root: where its files are.

    Raises:
        OwnPartError: it is no map-style dataset with `targets`.
        DataError: an item is no image, or has not the form of the others.
    """
    name = dataset.name
    assert dataset.source is not None
    made = load("dataset", name, dataset.source)(root, split, **dataset.args)
    labels = _labels(made, name)
    if not len(labels) or not _is_array(_image(made, 0, name)):
        return OwnImages(labels, None, lambda index: _picture(made, index, dataset))
    shape: tuple[int, ...] | None = None
    found = []
    for index in range(len(labels)):
        image = _as_tensor(_image(made, index, name), dataset, index)
        if shape is not None and tuple(image.shape) != shape:
            raise DataError(
                f"dataset {name}: item {index} has shape {tuple(image.shape)}, the others {shape}."
                " Return Pillow images where sizes differ"
            )
        shape = tuple(image.shape)
        found.append(image)
    return OwnImages(labels, torch.stack(found), None)


def _labels(made: Any, name: str) -> Tensor:
    for method in ("__len__", "__getitem__"):
        if not hasattr(made, method):
            raise OwnPartError(f"dataset {name}: the class has no {method}")
    targets = getattr(made, "targets", None)
    if targets is None:
        raise OwnPartError(
            f"dataset {name}: the object has no attribute targets, the class number of each item"
        )
    labels = torch.as_tensor(targets)
    if labels.ndim != 1 or labels.is_floating_point() or len(labels) != len(made):
        raise OwnPartError(
            f"dataset {name}: targets must be {len(made)} whole numbers, one for each item"
        )
    return labels.long()


def _image(made: Any, index: int, name: str) -> Any:
    """Return the image of an item, which is the image, or begins with it as torchvision's do."""
    try:
        item = made[index]
    except IndexError as error:
        raise DataError(f"dataset {name}: has no item {index} ({error})") from error
    return item[0] if isinstance(item, tuple | list) else item


def _is_array(image: Any) -> bool:
    return isinstance(image, Tensor | numpy.ndarray)


def _as_tensor(image: Any, dataset: DatasetSettings, index: int) -> Tensor:
    """Return [C, H, W] uint8 of an array [H, W] or [H, W, C], or of a tensor [C, H, W]."""
    found = image if isinstance(image, Tensor) else torch.from_numpy(numpy.asarray(image))
    if found.ndim == 2:
        found = found[None]
    elif found.ndim == 3 and not isinstance(image, Tensor):
        found = found.permute(2, 0, 1)
    if found.dtype != torch.uint8 or found.ndim != 3 or found.shape[0] != dataset.channels:
        raise DataError(
            f"dataset {dataset.name}: item {index} is {found.dtype} of shape {tuple(image.shape)};"
            f" expected uint8 with {dataset.channels} channels, [H, W, C] in an array and"
            " [C, H, W] in a tensor"
        )
    return found.contiguous()


def _picture(made: Any, index: int, dataset: DatasetSettings) -> Any:
    from PIL import Image

    image = _image(made, index, dataset.name)
    if not isinstance(image, Image.Image):
        raise DataError(
            f"dataset {dataset.name}: item {index} is a {type(image).__name__}, not a Pillow image"
        )
    if dataset.channels not in MODES:
        raise DataError(
            f"dataset {dataset.name}: Pillow images have 1 or 3 channels, not {dataset.channels}."
            " Return arrays"
        )
    return image.convert(MODES[dataset.channels])
