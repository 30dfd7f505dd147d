"""What goes into a forward pass of backbone and head, and what comes out of it."""

from typing import Any, NamedTuple

import torch
from torch import Tensor


class Shown(NamedTuple):
    """The arguments of a forward pass."""

    images: Tensor
    """[B, C, S, S], or [B·V, C, S, S] for a head that wants V views of each image."""
    draws: Any = None
    """What the trainee's `draw` returned; without it the head has no part."""
    places: Tensor | None = None
    """[B, h·w] int64, where each token's patch lay in the image; None: nothing was shuffled."""
    labels: Tensor | None = None
    """[B] int64, for a head on features; any other head gets None."""
    indices: Tensor | None = None
    """[B] int64, which training images these are, for a head on features."""


class Passed(NamedTuple):
    """What a forward pass returns."""

    logits: Tensor | tuple[Tensor, Tensor] | None
    """[B, classes], or those of the classifier and of the distillation token; None without one."""
    loss: Tensor | None
    """Of the head, mean over the images; None without one."""
    metrics: dict[str, Tensor]
    """Of the head, means over the images."""
    kept: Tensor | None
    """What a head on features keeps of the images until the step is done."""


class Share(NamedTuple):
    """What one virtual rank gets in one step."""

    images: Tensor
    """[B·V, C, S, S]; the views of an image follow each other."""
    targets: Tensor
    """[B] int64 or [B, classes], of the classifier."""
    places: Tensor | None
    labels: Tensor | None
    indices: Tensor | None

    def cut(self, parts: int) -> "list[Share]":
        """Return the share in so many parts, or in fewer if it has fewer images.

        All views of an image are in one part.
        """
        views = len(self.images) // len(self.targets)
        targets = self.targets.chunk(parts)
        sizes = [len(part) for part in targets]
        images = self.images.split([views * size for size in sizes])
        others = (_split(value, sizes) for value in (self.places, self.labels, self.indices))
        return [Share(*part) for part in zip(images, targets, *others, strict=True)]

    def shown(self, draws: Any) -> Shown:
        """Return what a forward pass gets of it."""
        return Shown(self.images, draws, self.places, self.labels, self.indices)


def _split(values: Tensor | None, sizes: list[int]) -> "list[Tensor | None]":
    return [None] * len(sizes) if values is None else list(torch.split(values, sizes))
