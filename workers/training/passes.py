"""What goes into a forward pass of backbone and head, and what comes out of it."""

from typing import Any, NamedTuple

from torch import Tensor

from ..data.batches import Labels


class Shown(NamedTuple):
    """The arguments of a forward pass."""

    images: Tensor
    """[B, C, S, S], or [B·V, C, S, S] for a head that wants V views of each image."""
    draws: Any = None
    """What the trainee's `draw` returned; without it the head has no part."""
    places: Tensor | None = None
    """[B, h·w] int64, where each token's patch lay in the image; None: nothing was shuffled."""
    labels: Labels | None = None
    """For a head on features classes, [B] int64; for a detector objects; else None."""
    indices: Tensor | None = None
    """[B] int64, which training images these are, for a head on features."""


class Passed(NamedTuple):
    """What a forward pass returns."""

    logits: Tensor | tuple[Tensor, ...] | None
    """[B, classes], or those of the classifier and of the distillation token; a segmenter's logits,
    a detector's losses; None without any."""
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
    targets: Labels
    """[B] int64 or [B, classes], of the classifier; masks, or objects."""
    places: Tensor | None
    labels: Labels | None
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


def _split(values: Labels | None, sizes: list[int]) -> list[Any]:
    return [None] * len(sizes) if values is None else list(values.split(sizes))
