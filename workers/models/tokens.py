"""Patch tokens as grids, [B, h, w, D], taken out of one forward pass of any backbone by hooks."""

import re
from dataclasses import dataclass
from typing import Any, Literal

import torch
from timm.models.swin_transformer import SwinTransformer
from torch import Tensor, nn

from ..errors import BackboneError

Where = Literal["before_norm", "after_norm", "blocks", "stages"]
# timm's transformers, its ResNets, and our CvT.
_BLOCK = re.compile(r"(?:.*\.)?(?:blocks\.[0-9]+|layer[0-9]+\.[0-9]+|stages\.[0-9]+\.[0-9]+)\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The shape of a token grid."""

    width: int
    """D, the length of a token's vector."""
    height: int
    """h, tokens in a column."""
    columns: int
    """w, tokens in a row."""


class Tap:
    """Takes the grids that a head wants from the next forward pass of a backbone.

    Hooks see what the model computes anyway: no forward is copied, none is run twice.
    """

    def __init__(self, backbone: nn.Module, where: Where) -> None:
        self.backbone = backbone
        self.where = where
        self._taken: list[Tensor] = []
        self._is_open = False
        if where == "before_norm":
            last = getattr(backbone, "norm", None)
            if not isinstance(last, nn.Module) or isinstance(last, nn.Identity):
                # Nothing to stand before: the features themselves.
                self.where = "after_norm"
            else:
                last.register_forward_pre_hook(self._take_input)
        elif where == "blocks":
            for block in blocks_of(backbone):
                block.register_forward_hook(self._take_output)
        elif where == "stages":
            for end in _ends_of_stages(backbone):
                end.register_forward_hook(self._take_output)

    # Methods: a copy of the backbone that has its tap within takes its own tokens then.
    def _take_input(self, _: nn.Module, inputs: Any) -> None:
        if self._is_open:
            self._taken.append(inputs[0])

    def _take_output(self, _module: nn.Module, _inputs: Any, output: Any) -> None:
        if self._is_open:
            self._taken.append(output)

    def features(self, images: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Return the backbone's own features and the grids.

        Raises:
            BackboneError: the tokens form no grid.
        """
        self._is_open = True
        try:
            features: Tensor = self.backbone.forward_features(images)
        finally:
            self._is_open = False
            taken, self._taken = self._taken, []
        found = taken if self.where != "after_norm" else [features]
        return features, [token_grid(self.backbone, tokens) for tokens in found]


def blocks_of(backbone: nn.Module) -> list[nn.Module]:
    """Return the blocks of a backbone, found by their names, in their order.

    Raises:
        BackboneError: it has none that vtjobs knows.
    """
    blocks = [module for name, module in backbone.named_modules() if _BLOCK.match(name)]
    if not blocks:
        raise BackboneError(
            f"the blocks of backbone {type(backbone).__name__} are not known to vtjobs"
        )
    return blocks


def _ends_of_stages(backbone: nn.Module) -> list[nn.Module]:
    """Return what gives out the tokens at the end of each of a Swin's stages.

    A stage of the published Swin ends with the merging of its patches, which in timm begins the
    next one.

    Raises:
        BackboneError: the backbone is no Swin.
    """
    layers = getattr(backbone, "layers", None)
    if not isinstance(backbone, SwinTransformer) or not isinstance(layers, nn.Sequential):
        raise BackboneError(
            f"backbone {type(backbone).__name__}: blocks: stages needs a Swin. Write blocks: all"
        )
    stages: list[Any] = list(layers)
    return [*(stage.downsample for stage in stages[1:]), stages[-1]]


def token_grid(model: nn.Module, features: Tensor) -> Tensor:
    """Return patch tokens as [B, h, w, D]; class and register tokens are dropped.

    Raises:
        BackboneError: the features form no grid.
    """
    if not isinstance(features, Tensor):
        # Such as CrossViT, which has two kinds of patches.
        raise BackboneError(f"features of {type(model).__name__} are no single tensor")
    if features.ndim == 4:
        width = getattr(model, "num_features", None)
        if features.shape[3] == width and features.shape[1] != width:
            return features
        if getattr(model, "output_fmt", "NCHW") == "NHWC":
            return features
        return features.permute(0, 2, 3, 1)
    if features.ndim == 3:
        # Not every version of timm counts the class token of CaiT, which joins the patches at last.
        prefix = int(getattr(model, "num_prefix_tokens", hasattr(model, "cls_token")))
        sizes = [(number, grid_size(model, features.shape[1] - number)) for number in (prefix, 0)]
        for number, size in sizes:
            if size is not None:
                return features[:, number:].unflatten(1, size)
        raise BackboneError(f"{features.shape[1] - prefix} tokens do not form a square grid")
    raise BackboneError(f"features of shape {tuple(features.shape)} do not form a grid of tokens")


def grid_size(model: nn.Module, count: int) -> tuple[int, int] | None:
    """Return rows and columns of a number of patch tokens; None where they form no grid."""
    known = getattr(getattr(model, "patch_embed", None), "grid_size", None)
    if known is not None and known[0] * known[1] == count:
        return int(known[0]), int(known[1])
    side = round(count**0.5) if count > 0 else 0
    return (side, side) if side and side * side == count else None


def grid_shapes(tap: Tap, channels: int, size: int) -> list[Grid]:
    """Return the shapes of the grids that a tap takes, without disturbing the backbone."""
    backbone = tap.backbone
    training = backbone.training
    backbone.eval()
    device = next(backbone.parameters()).device
    with torch.no_grad():
        _, grids = tap.features(torch.zeros(1, channels, size, size, device=device))
    backbone.train(training)
    return [
        Grid(width=int(tokens.shape[3]), height=int(tokens.shape[1]), columns=int(tokens.shape[2]))
        for tokens in grids
    ]
