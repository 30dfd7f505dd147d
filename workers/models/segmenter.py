"""Semantic segmentation: any backbone with UperNet's decoder, a class for each pixel.

UperNet is that of Xiao et al. 2018 (Unified Perceptual Parsing for Scene Understanding), with the
auxiliary classifier of mmsegmentation's programs. Those normalise the decoder over the images of
all GPUs at once (SyncBN); here groups of channels are normalised image by image (GroupNorm, Wu and
He 2018), so that a run's result does not depend on how its batch is shared.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .pyramid import OnMaps, normalised

WIDTH = 512
# Of the auxiliary classifier.
AUXILIARY_WIDTH = 256
# Bins a side that the coarsest map is pooled into.
POOLED = (1, 2, 3, 6)
DROPOUT = 0.1


class MaskLogits(NamedTuple):
    """What training gets of a segmenter."""

    pixels: Tensor
    """[B, classes, S, S]."""
    auxiliary: Tensor
    """[B, classes, h, w], of the last but one map."""


class Segmenter(OnMaps):
    """A backbone and a decoder, with the two halves of the forward pass that timm's models have.

    Args:
        encoder: the backbone. What of it the maps do not depend on is frozen.
        classes: of a pixel.
        channels: of the images.
        size: side of the training images, pixels.
        width: channels of the decoder.

    Raises:
        BackboneError: vtjobs does not know its blocks, or its tokens form no grid.
    """

    def __init__(
        self, encoder: nn.Module, *, classes: int, channels: int, size: int, width: int = WIDTH
    ) -> None:
        super().__init__(encoder, channels=channels, size=size)
        self.num_classes = classes
        self.decoder = UperNet(self.widths, classes=classes, width=width)
        self.auxiliary = nn.Sequential(
            _convolution(self.widths[-2], AUXILIARY_WIDTH, 3),
            nn.Dropout2d(DROPOUT),
            nn.Conv2d(AUXILIARY_WIDTH, classes, 1),
        )

    def forward_head(self, maps: list[Tensor]) -> Tensor | MaskLogits:
        """Return logits, [B, classes, h, w] at the finest map's resolution; in training both."""
        pixels = self.decoder(maps)
        return MaskLogits(pixels, self.auxiliary(maps[-2])) if self.training else pixels

    def forward(self, images: Tensor) -> Tensor | MaskLogits:
        """Return the logits of images [B, C, S, S]."""
        return self.forward_head(self.forward_features(images))


class UperNet(nn.Module):
    """Maps of falling resolution -> logits at the resolution of the finest.

    The coarsest one is pooled into grids of several sizes; each finer map is added to what comes
    from above; all are brought to one size and classified together.

    Args:
        widths: channels of the maps, finest first.
        classes: of a pixel.
        width: channels of the decoder.
    """

    def __init__(self, widths: list[int], *, classes: int, width: int) -> None:
        super().__init__()
        *finer, coarsest = widths
        self.pooled = nn.ModuleList(_convolution(coarsest, width, 1) for _ in POOLED)
        self.bottleneck = _convolution(coarsest + len(POOLED) * width, width, 3)
        self.laterals = nn.ModuleList(_convolution(one, width, 1) for one in finer)
        self.smoothed = nn.ModuleList(_convolution(width, width, 3) for _ in finer)
        self.fusion = _convolution(len(widths) * width, width, 3)
        self.dropout = nn.Dropout2d(DROPOUT)
        self.classifier = nn.Conv2d(width, classes, 1)

    def forward(self, maps: list[Tensor]) -> Tensor:
        """Return [B, classes, h, w] of maps [B, D, h, w] each, finest first."""
        levels = [change(one) for change, one in zip(self.laterals, maps[:-1], strict=True)]
        levels.append(self._scene(maps[-1]))
        for place in range(len(levels) - 2, -1, -1):
            levels[place] = levels[place] + resized(levels[place + 1], levels[place])
        found = [smooth(one) for smooth, one in zip(self.smoothed, levels[:-1], strict=True)]
        found.append(levels[-1])
        together = torch.cat([resized(one, found[0]) for one in found], dim=1)
        logits: Tensor = self.classifier(self.dropout(self.fusion(together)))
        return logits

    def _scene(self, coarsest: Tensor) -> Tensor:
        """Return the coarsest map with what its pooled forms say of the whole image."""
        pooled = [
            resized(change(_pooled(coarsest, bins)), coarsest)
            for bins, change in zip(POOLED, self.pooled, strict=True)
        ]
        found: Tensor = self.bottleneck(torch.cat([coarsest, *pooled], dim=1))
        return found


def _pooled(values: Tensor, bins: int) -> Tensor:
    """Return means over a grid of bins, [B, D, bins, bins], of maps [B, D, h, w].

    As matrix products, whose sums have a fixed order on a GPU; torch's own pooling has none.
    """
    rows, columns = (_means(bins, length, values) for length in values.shape[2:])
    return rows @ values @ columns.T


def _means(bins: int, length: int, like: Tensor) -> Tensor:
    """Return the matrix that takes the means over parts of a length, [bins, length].

    The parts are those of torch's adaptive pooling: they may overlap by one.
    """
    found = torch.zeros(bins, length)
    for number in range(bins):
        start, stop = number * length // bins, -(-(number + 1) * length // bins)
        found[number, start:stop] = 1 / (stop - start)
    return found.to(like)


def _convolution(inputs: int, outputs: int, side: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, side, padding=side // 2, bias=False),
        normalised(outputs),
        nn.ReLU(inplace=True),
    )


def resized(values: Tensor, like: Tensor) -> Tensor:
    """Return maps [B, D, h, w] at the height and width of others, between pixels bilinear."""
    return F.interpolate(values, size=like.shape[2:], mode="bilinear", align_corners=False)
