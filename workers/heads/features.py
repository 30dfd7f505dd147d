"""A head that learns from the features of whole images, and from several views of each."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn


class Learnt(NamedTuple):
    """What a head has to say of a part of a batch."""

    loss: Tensor
    """Mean over the images."""
    metrics: dict[str, Tensor]
    """Each a mean over the images."""
    kept: Tensor | None
    """[B, D] float32, what `after_step` is given of the images; None: nothing."""


class FeatureHead(nn.Module):
    """What training asks of such a head beside a forward pass.

    Whatever it remembers is in its buffers and parameters: a checkpoint saves these, and a resumed
    run goes on bit for bit.
    """

    views: int
    """Augmented views of each image."""
    kept_width: int | None
    """D of what `learn` keeps of an image; None: it keeps nothing."""

    def begin(self, backbone: nn.Module, labels: Tensor) -> None:
        """Get ready for training; called once, before anything is moved to a device.

        Args:
            backbone: with the weights that training starts from.
            labels: [N] int64, of all training images.
        """
        raise NotImplementedError

    def learn(
        self, embeddings: Tensor, images: Tensor, labels: Tensor, indices: Tensor | None
    ) -> Learnt:
        """Return the loss of a part of a batch.

        Args:
            embeddings: [B·V, D], see `projector.embed`; the views of an image follow each other.
            images: [B·V, C, S, S], what they are of.
            labels: [B] int64.
            indices: [B] int64, which training images these are; None: images of another set, in one
                view each.
        """
        raise NotImplementedError

    def after_step(self, backbone: nn.Module, indices: Tensor, kept: Tensor | None) -> None:
        """Take in an optimizer step; called on every rank with the same values.

        Args:
            backbone: after the step.
            indices: [B] int64, the images of the whole batch.
            kept: [B, D] float32, what `learn` kept of them.
        """
        raise NotImplementedError

    def layers_with_statistics(self) -> list[nn.Module]:
        """Return the layers whose running statistics follow virtual rank 0."""
        return []

    def draw(self, batch: int, generator: torch.Generator) -> Any:
        """Return the draws of a forward pass: none."""
        return torch.empty(0)
