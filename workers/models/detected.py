"""What a detector gives; apart from it, so that who asks for these need not import torchvision."""

from typing import NamedTuple

from torch import Tensor


class DetectionLosses(NamedTuple):
    """What training gets of a detector: means over a share's anchors, proposals and masks."""

    objectness: Tensor
    """Whether an anchor is on an object."""
    proposals: Tensor
    """Where that object is."""
    classes: Tensor
    """Of the proposals."""
    boxes: Tensor
    """Of the proposals that are on an object."""
    masks: Tensor
    """Of these."""


class Found(NamedTuple):
    """What a detector finds in an image, the surest first."""

    boxes: Tensor
    """[N, 4]: left, top, right, bottom, pixels of the image as it was shown."""
    classes: Tensor
    """[N] int64."""
    scores: Tensor
    """[N], from 0 to 1."""
    masks: Tensor
    """[N, 28, 28], from 0 to 1: of the pixels in the box."""
