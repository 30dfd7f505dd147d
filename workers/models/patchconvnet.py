"""PatchConvNet.

Touvron et al. 2021, "Augmenting convolutional networks with attention-based aggregation".

A column of residual convolution blocks at one resolution (H/16), aggregated by one class-attention
block.
"""

from functools import partial
from itertools import pairwise
from typing import Any

import torch
from timm.layers import DropPath, SqueezeExcite
from timm.models import register_model
from timm.models.cait import LayerScaleBlockClassAttn
from torch import Tensor, nn

from .arguments import LAST, known

_norm = partial(nn.LayerNorm, eps=1e-6)


class Block(nn.Module):
    """Norm, 1×1, GELU, depthwise 3×3, GELU, squeeze-and-excite, 1×1.

    Scaled and dropped as a whole: [B, D, h, w].
    """

    def __init__(self, width: int, drop_path: float, scale: float) -> None:
        super().__init__()
        self.norm = _norm(width)
        self.branch = nn.Sequential(
            nn.Conv2d(width, width, 1),
            nn.GELU(),
            nn.Conv2d(width, width, 3, padding=1, groups=width),
            nn.GELU(),
            SqueezeExcite(width, rd_ratio=0.25),
            nn.Conv2d(width, width, 1),
        )
        self.gamma = nn.Parameter(scale * torch.ones(width))
        self.drop_path = DropPath(drop_path)

    def forward(self, x: Tensor) -> Tensor:
        normed = self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        out: Tensor = x + self.drop_path(self.gamma[:, None, None] * self.branch(normed))
        return out


class PatchConvNet(nn.Module):
    """The whole network; `forward_features` gives [B, 1 + h·w, D].

    The aggregate, then the patches, normed.
    """

    num_prefix_tokens = 1

    def __init__(
        self,
        *,
        embed_dim: int,
        depth: int,
        num_classes: int = 1000,
        in_chans: int = 3,
        drop_rate: float = 0.0,
        drop_path_rate: float = 0.0,
        layer_scale: float = 1e-4,
    ) -> None:
        super().__init__()
        self.num_classes, self.num_features = num_classes, embed_dim
        widths = [in_chans, *(embed_dim // part for part in (8, 4, 2, 1))]
        stem: list[nn.Module] = []
        for before, after in pairwise(widths):
            stem += [nn.Conv2d(before, after, 3, stride=2, padding=1, bias=False), nn.GELU()]
        self.stem = nn.Sequential(*stem[:-1])
        # One rate for all blocks (table 5.8 of Touvron's thesis), not one that grows with depth.
        self.blocks = nn.Sequential(
            *(Block(embed_dim, drop_path_rate, layer_scale) for _ in range(depth))
        )
        self.cls_token = nn.Parameter(torch.zeros(1, 1, embed_dim))
        self.pool = LayerScaleBlockClassAttn(
            embed_dim,
            1,
            mlp_ratio=3.0,
            qkv_bias=True,
            init_values=layer_scale,
            norm_layer=_norm,
            proj_drop=drop_rate,
        )
        self.norm = _norm(embed_dim)
        self.head = nn.Linear(embed_dim, num_classes) if num_classes else nn.Identity()
        if not self.cls_token.is_meta:
            nn.init.trunc_normal_(self.cls_token, std=0.02)
            self.apply(_init_weights)

    def forward_features(self, images: Tensor) -> Tensor:
        patches = self.blocks(self.stem(images)).flatten(2).transpose(1, 2)
        token = self.pool(patches, self.cls_token.expand(len(patches), -1, -1))
        out: Tensor = self.norm(torch.cat([token, patches], dim=1))
        return out

    def no_weight_decay(self) -> set[str]:
        """Return what does not decay beside norms and biases, as in the published program."""
        return {"cls_token"}

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        """Return the layers in timm's form: stem, blocks, and what pools them."""
        blocks = [(r"^blocks\.(\d+)", None), (r"^(?:pool|cls_token|norm)", LAST)]
        return {"stem": r"^stem", "blocks": blocks}

    def get_classifier(self) -> nn.Module:
        """Return what is left out of weights for other classes."""
        return self.head

    def reset_classifier(self, num_classes: int) -> None:
        """Replace the classifier; with no classes there is none."""
        self.num_classes = num_classes
        self.head = nn.Linear(self.num_features, num_classes) if num_classes else nn.Identity()

    def forward_head(self, features: Tensor, pre_logits: bool = False) -> Tensor:
        pooled = features[:, 0]
        return pooled if pre_logits else self.head(pooled)

    def forward(self, images: Tensor) -> Tensor:
        return self.forward_head(self.forward_features(images))


def _init_weights(layer: nn.Module) -> None:
    if isinstance(layer, nn.Linear):
        nn.init.trunc_normal_(layer.weight, std=0.02)
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)


def _make(usual: dict[str, Any], arguments: dict[str, Any]) -> PatchConvNet:
    return PatchConvNet(**{**usual, **known(arguments)})


# Drop-path rates are those of table 5.8. The published program has no S20, S36 and B36: their
# LayerScale is that of the S60 and the B60.


@register_model
def patchconvnet_s20(pretrained: bool = False, **arguments: Any) -> PatchConvNet:
    """PatchConvNet-S20: a third as deep as the S60."""
    return _make({"embed_dim": 384, "depth": 20, "drop_path_rate": 0.0}, arguments)


@register_model
def patchconvnet_s36(pretrained: bool = False, **arguments: Any) -> PatchConvNet:
    """PatchConvNet-S36: between the S20 and the S60."""
    return _make({"embed_dim": 384, "depth": 36, "drop_path_rate": 0.05}, arguments)


@register_model
def patchconvnet_s60(pretrained: bool = False, **arguments: Any) -> PatchConvNet:
    """PatchConvNet-S60: 25,231,096 parameters at 1000 classes."""
    return _make({"embed_dim": 384, "depth": 60, "drop_path_rate": 0.15}, arguments)


@register_model
def patchconvnet_s120(pretrained: bool = False, **arguments: Any) -> PatchConvNet:
    """PatchConvNet-S120: twice as deep."""
    return _make(
        {"embed_dim": 384, "depth": 120, "drop_path_rate": 0.2, "layer_scale": 1e-6}, arguments
    )


@register_model
def patchconvnet_b36(pretrained: bool = False, **arguments: Any) -> PatchConvNet:
    """PatchConvNet-B36: the S36 twice as wide."""
    return _make(
        {"embed_dim": 768, "depth": 36, "drop_path_rate": 0.2, "layer_scale": 1e-6}, arguments
    )


@register_model
def patchconvnet_b60(pretrained: bool = False, **arguments: Any) -> PatchConvNet:
    """PatchConvNet-B60: twice as wide."""
    return _make(
        {"embed_dim": 768, "depth": 60, "drop_path_rate": 0.3, "layer_scale": 1e-6}, arguments
    )


@register_model
def patchconvnet_b120(pretrained: bool = False, **arguments: Any) -> PatchConvNet:
    """PatchConvNet-B120: the B60 twice as deep; 188.6 million parameters (table 5.1)."""
    return _make(
        {"embed_dim": 768, "depth": 120, "drop_path_rate": 0.4, "layer_scale": 1e-6}, arguments
    )
