"""Feature maps of any backbone, for detectors and segmenters."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ..errors import BackboneError
from .tokens import Tap


def last_of_each_size(grids: Sequence[Tensor]) -> list[int]:
    """Return the places of the last grid of each resolution, in their order.

    Args:
        grids: [B, h, w, D] each, of the blocks of a backbone.
    """
    last = {tuple(grid.shape[1:3]): place for place, grid in enumerate(grids)}
    return sorted(last.values())


class FeatureMaps(nn.Module):
    """A backbone that returns feature maps instead of classes: one of each resolution.

    Each map is what the last block of its resolution gives out, channels first. Class and register
    tokens are no part of it.

    Args:
        model: the backbone. Its blocks are found by their names; without blocks that vtjobs knows,
            its features are the only map.
        channels: of the images.
        size: side of the images, in pixels.

    Raises:
        BackboneError: the tokens form no grid.
    """

    def __init__(self, model: nn.Module, *, channels: int, size: int) -> None:
        super().__init__()
        self.model = model
        try:
            self._tap = Tap(model, "blocks")
        except BackboneError:
            self._tap = Tap(model, "after_norm")
        training = model.training
        model.eval()
        with torch.no_grad():
            _, grids = self._tap.features(torch.zeros(1, channels, size, size))
        model.train(training)
        self._places = last_of_each_size(grids)
        self.channels = [int(grids[place].shape[3]) for place in self._places]
        """Of each map, finest first."""
        self.reduction = [size // int(grids[place].shape[1]) for place in self._places]
        """How many pixels of the image a side of a map's pixel has."""

    def forward(self, images: Tensor) -> list[Tensor]:
        """Return the maps of images [B, C, H, W]: [B, D, h, w] each, finest first."""
        _, grids = self._tap.features(images)
        return [grids[place].permute(0, 3, 1, 2) for place in self._places]
