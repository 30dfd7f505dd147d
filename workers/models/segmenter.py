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

from ..errors import BackboneError
from .maps import last_of_each_size
from .tokens import Tap

WIDTH = 512
# Of the auxiliary classifier.
AUXILIARY_WIDTH = 256
# Bins a side that the coarsest map is pooled into.
POOLED = (1, 2, 3, 6)
DROPOUT = 0.1
_GROUPS = 32
# Fewest channels of a group: of what was pooled into one bin, one channel alone has no deviation.
_GROUP_WIDTH = 8
# Maps of a plain transformer, all of one resolution, are brought to these sizes (Bao et al. 2022).
_SCALES = (4.0, 2.0, 1.0, 0.5)


class MaskLogits(NamedTuple):
    """What training gets of a segmenter."""

    pixels: Tensor
    """[B, classes, S, S]."""
    auxiliary: Tensor
    """[B, classes, h, w], of the last but one map."""


class Segmenter(nn.Module):
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
        super().__init__()
        if hasattr(encoder, "reset_classifier"):
            encoder.reset_classifier(0)
        self.encoder = encoder
        self.num_classes = classes
        self.takes_any_size = _takes_any_size(encoder, channels=channels, size=size)
        """Whether a whole image can be shown to it, whatever its sides."""
        self._pyramid = _Pyramid(encoder, channels=channels, size=size)
        self.rescaled = nn.ModuleList(
            _rescaled(width, scale) for width, scale in self._pyramid.levels
        )
        widths = [width for width, _ in self._pyramid.levels]
        self.norms = nn.ModuleList(nn.LayerNorm(width) for width in widths)
        self.decoder = UperNet(widths, classes=classes, width=width)
        self.auxiliary = nn.Sequential(
            _convolution(widths[-2], AUXILIARY_WIDTH, 3),
            nn.Dropout2d(DROPOUT),
            nn.Conv2d(AUXILIARY_WIDTH, classes, 1),
        )

    def no_weight_decay(self) -> set[str]:
        """Return the backbone's parameters that take no weight decay."""
        named: set[str] = set(getattr(self.encoder, "no_weight_decay", set)())
        return {f"encoder.{name}" for name in named}

    def forward_features(self, images: Tensor) -> list[Tensor]:
        """Return the maps of images [B, C, S, S]: [B, D, h, w] each, finest first."""
        maps = self._pyramid(images)
        return [
            change(norm(grid).permute(0, 3, 1, 2))
            for grid, norm, change in zip(maps, self.norms, self.rescaled, strict=True)
        ]

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


class _Pyramid:
    """Takes a backbone's maps: the last of each resolution, or four depths where there is one."""

    def __init__(self, encoder: nn.Module, *, channels: int, size: int) -> None:
        self._tap = Tap(encoder, "blocks")
        training = encoder.training
        encoder.eval()
        device = next(encoder.parameters()).device
        _, grids = self._tap.features(torch.zeros(1, channels, size, size, device=device))
        self._places = last_of_each_size(grids)
        if len(self._places) > 1:
            scales = [1.0] * len(self._places)
        else:
            # A shallow one gives a block's map more than once.
            parts = range(1, len(_SCALES) + 1)
            self._places = [max(0, len(grids) * part // len(_SCALES) - 1) for part in parts]
            scales = list(_SCALES)
        if len(self._places) < len(("fine", "coarse")):
            raise BackboneError(f"backbone {type(encoder).__name__} has no two maps to decode")
        self.levels = [
            (int(grids[place].shape[3]), scale)
            for place, scale in zip(self._places, scales, strict=True)
        ]
        """Channels of each map, and the factor that its sides are brought to; finest first."""
        _freeze_what_no_map_needs(encoder, [grids[place] for place in self._places])
        encoder.train(training)

    def __call__(self, images: Tensor) -> list[Tensor]:
        """Return maps [B, h, w, D] of images [B, C, S, S]."""
        _, grids = self._tap.features(images)
        return [grids[place] for place in self._places]


def _freeze_what_no_map_needs(encoder: nn.Module, grids: list[Tensor]) -> None:
    """Leave without gradient what has no part in the maps, such as a norm after the last block.

    DDP waits for every gradient.
    """
    torch.stack([grid.sum() for grid in grids]).sum().backward()
    for parameter in encoder.parameters():
        parameter.requires_grad_(parameter.requires_grad and parameter.grad is not None)
        parameter.grad = None


class _Halved(nn.Module):
    """The largest of each 2 x 2 pixels.

    Where two are alike both get a part of the gradient, so that the sum has a fixed order on a GPU;
    torch's own pooling has none.
    """

    def forward(self, values: Tensor) -> Tensor:
        """Return [B, D, h // 2, w // 2] of [B, D, h, w]."""
        height, width = (length // 2 * 2 for length in values.shape[2:])
        squares = values[..., :height, :width].unflatten(3, (-1, 2)).unflatten(2, (-1, 2))
        return squares.amax((3, 5))


def _takes_any_size(encoder: nn.Module, *, channels: int, size: int) -> bool:
    """Return whether a backbone gives a grid of tokens of an image that is twice as wide.

    Its tokens are no square number, so none is taken for a square by mistake.
    """
    training = encoder.training
    encoder.eval()
    device = next(encoder.parameters()).device
    try:
        with torch.no_grad():
            _, grids = Tap(encoder, "after_norm").features(
                torch.zeros(1, channels, size, 2 * size, device=device)
            )
    # Whatever a model raises on an input that it cannot take.
    except Exception:
        return False
    finally:
        encoder.train(training)
    return all(grid.shape[2] == 2 * grid.shape[1] for grid in grids)


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


def _rescaled(width: int, scale: float) -> nn.Module:
    """Return what brings the sides of a map to a factor."""
    match scale:
        case 4.0:
            return nn.Sequential(
                nn.ConvTranspose2d(width, width, 2, stride=2),
                _normalised(width),
                nn.GELU(),
                nn.ConvTranspose2d(width, width, 2, stride=2),
            )
        case 2.0:
            return nn.ConvTranspose2d(width, width, 2, stride=2)
        case 0.5:
            return _Halved()
    return nn.Identity()


def _convolution(inputs: int, outputs: int, side: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, side, padding=side // 2, bias=False),
        _normalised(outputs),
        nn.ReLU(inplace=True),
    )


def _normalised(width: int) -> nn.Module:
    most = max(1, min(_GROUPS, width // _GROUP_WIDTH))
    return nn.GroupNorm(next(n for n in range(most, 0, -1) if width % n == 0), width)


def resized(values: Tensor, like: Tensor) -> Tensor:
    """Return maps [B, D, h, w] at the height and width of others, between pixels bilinear."""
    return F.interpolate(values, size=like.shape[2:], mode="bilinear", align_corners=False)
