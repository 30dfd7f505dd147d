"""A backbone's maps, of several resolutions, for what is decoded from them."""

import torch
from torch import Tensor, nn

from ..errors import BackboneError
from .maps import last_of_each_size
from .tokens import Tap

# Side of the images that a backbone is tried on, if it takes any size; pixels.
_PROBE = 224
_GROUPS = 32
# Fewest channels of a group: of what was pooled into one bin, one channel alone has no deviation.
_GROUP_WIDTH = 8
# Maps of a plain transformer, all of one resolution, are brought to these sizes (Bao et al. 2022).
_SCALES = (4.0, 2.0, 1.0, 0.5)


class OnMaps(nn.Module):
    """A backbone whose maps are decoded.

    Args:
        encoder: the backbone. What of it the maps do not depend on is frozen.
        channels: of the images.
        size: side of the training images, pixels.

    Raises:
        BackboneError: vtjobs does not know its blocks, or its tokens form no grid.
    """

    has_own_losses = False
    """Whether it learns within, by `losses`, from targets; else by its logits."""

    def __init__(self, encoder: nn.Module, *, channels: int, size: int) -> None:
        super().__init__()
        if hasattr(encoder, "reset_classifier"):
            encoder.reset_classifier(0)
        self.encoder = encoder
        probe = min(size, _PROBE)
        self.takes_any_size = _takes_any_size(encoder, channels=channels, size=probe)
        """Whether a whole image can be shown to it, whatever its sides."""
        size = probe if self.takes_any_size else size
        self._pyramid = _Pyramid(encoder, channels=channels, size=size)
        self.rescaled = nn.ModuleList(
            _rescaled(width, scale) for width, scale in self._pyramid.levels
        )
        self.widths = [width for width, _ in self._pyramid.levels]
        """Channels of the maps, finest first."""
        self.strides = self._pyramid.strides
        """Pixels from one place of a map to the next, finest first."""
        self.norms = nn.ModuleList(nn.LayerNorm(width) for width in self.widths)

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
        self.strides = [
            size / (grids[place].shape[1] * scale)
            for place, scale in zip(self._places, scales, strict=True)
        ]
        """Side of the square of pixels that a place of each map stands for, then."""
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


def _rescaled(width: int, scale: float) -> nn.Module:
    """Return what brings the sides of a map to a factor."""
    match scale:
        case 4.0:
            return nn.Sequential(
                nn.ConvTranspose2d(width, width, 2, stride=2),
                normalised(width),
                nn.GELU(),
                nn.ConvTranspose2d(width, width, 2, stride=2),
            )
        case 2.0:
            return nn.ConvTranspose2d(width, width, 2, stride=2)
        case 0.5:
            return _Halved()
    return nn.Identity()


def normalised(width: int) -> nn.Module:
    """Return a normalisation of groups of channels, image by image."""
    most = max(1, min(_GROUPS, width // _GROUP_WIDTH))
    return nn.GroupNorm(next(n for n in range(most, 0, -1) if width % n == 0), width)
