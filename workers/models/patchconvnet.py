"""PatchConvNet.

Touvron et al. 2021, "Augmenting convolutional networks with attention-based aggregation".

A column of residual convolution blocks at one resolution (H/16), aggregated by one class-attention
block. The changes of its ablation (the thesis, table 5.7) are arguments:

- `pooling`: `class_attention`, or `average` of the patches
- `stem`: `conv`, or `linear`, a projection of each patch
- `norm`: `layernorm`, or `batchnorm` in the blocks of the column
- `num_heads` of the class-attention: 1; CaiT has one for each 48 channels
- `class_tokens`: `one`, or `per_class`
"""

from functools import partial
from itertools import pairwise
from typing import Any

import torch
from timm.layers import DropPath, SqueezeExcite
from timm.models import register_model
from timm.models.cait import LayerScaleBlockClassAttn
from torch import Tensor, nn
from torch.nn import functional as F

from .arguments import LAST, known, one_of
from .starts import start_linear

NORMS = ("layernorm", "batchnorm")
POOLINGS = ("class_attention", "average")
STEMS = ("conv", "linear")
TOKENS = ("one", "per_class")
_norm = partial(nn.LayerNorm, eps=1e-6)


class Block(nn.Module):
    """Norm, 1×1, GELU, depthwise 3×3, GELU, squeeze-and-excite, 1×1.

    Scaled and dropped as a whole: [B, D, h, w].
    """

    def __init__(self, width: int, drop_path: float, scale: float, *, norm: str) -> None:
        super().__init__()
        self.norm: nn.Module = _norm(width) if norm == "layernorm" else nn.BatchNorm2d(width)
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
        if isinstance(self.norm, nn.BatchNorm2d):
            normed = self.norm(x)
        else:
            normed = self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        out: Tensor = x + self.drop_path(self.gamma[:, None, None] * self.branch(normed))
        return out


class PerClassAttention(nn.Module):
    """Attention of one token for each class to the patches alone, as the published program has it.

    Args:
        width: D.
        heads: of the attention.
        classes: how many of the tokens are class tokens.
    """

    def __init__(self, width: int, heads: int, classes: int) -> None:
        super().__init__()
        self.heads, self.classes = heads, classes
        self.q, self.k, self.v, self.proj = (nn.Linear(width, width) for _ in range(4))

    def forward(self, tokens: Tensor) -> Tensor:
        """Return [B, classes, D] of class tokens and patches, [B, classes + N, D]."""
        asking, patches = tokens[:, : self.classes], tokens[:, self.classes :]
        query, key, value = (
            layer(part).unflatten(2, (self.heads, -1)).transpose(1, 2)
            for layer, part in ((self.q, asking), (self.k, patches), (self.v, patches))
        )
        mixed = F.scaled_dot_product_attention(query, key, value)
        out: Tensor = self.proj(mixed.transpose(1, 2).flatten(2))
        return out


class ClassTokens(nn.Module):
    """A token for each class, which weights of other classes leave out with the classifier.

    Args:
        width: D.
        classes: one token each.
    """

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.tokens = nn.Parameter(torch.zeros(1, classes, width))
        if not self.tokens.is_meta:
            nn.init.trunc_normal_(self.tokens, std=0.02)


class PerClassHead(ClassTokens):
    """Tokens of classes, and a linear map of each to the logit of its class.

    [B, classes, D] -> [B, classes].

    Args:
        width: D.
        classes: one token each.
    """

    def __init__(self, width: int, classes: int) -> None:
        super().__init__(width, classes)
        self.weight = nn.Parameter(torch.empty(classes, width))
        self.bias = nn.Parameter(torch.zeros(classes))
        if not self.weight.is_meta:
            nn.init.trunc_normal_(self.weight, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        return torch.linalg.vecdot(tokens, self.weight) + self.bias


class PatchConvNet(nn.Module):
    """The whole network; `forward_features` gives [B, 1 + h·w, D].

    The aggregate, then the patches, normed. With `average` there is no aggregate, and with
    `per_class` there is one for each class.
    """

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
        pooling: str = "class_attention",
        stem: str = "conv",
        norm: str = "layernorm",
        num_heads: int = 1,
        class_tokens: str = "one",
    ) -> None:
        super().__init__()
        self.num_classes, self.num_features = num_classes, embed_dim
        self.num_prefix_tokens = 0
        self.averages = one_of("pooling", pooling, POOLINGS) == "average"
        self.is_per_class = one_of("class_tokens", class_tokens, TOKENS) == "per_class"
        if self.is_per_class and (self.averages or not num_classes):
            raise TypeError("class_tokens: per_class needs class_attention and a classifier")
        one_of("norm", norm, NORMS)
        widths = [in_chans, *(embed_dim // part for part in (8, 4, 2, 1))]
        layers: list[nn.Module] = []
        if one_of("stem", stem, STEMS) == "linear":
            layers = [nn.Conv2d(in_chans, embed_dim, 16, stride=16), nn.Identity()]
        else:
            for before, after in pairwise(widths):
                layers += [nn.Conv2d(before, after, 3, stride=2, padding=1, bias=False), nn.GELU()]
        self.stem = nn.Sequential(*layers[:-1])
        # One rate for all blocks (table 5.8 of Touvron's thesis), not one that grows with depth.
        self.blocks = nn.Sequential(
            *(Block(embed_dim, drop_path_rate, layer_scale, norm=norm) for _ in range(depth))
        )
        if num_heads not in range(1, embed_dim + 1) or embed_dim % num_heads:
            raise TypeError(
                f"num_heads: {embed_dim} channels cannot be divided into {num_heads} heads"
            )
        if not self.averages:
            self.num_prefix_tokens = num_classes if self.is_per_class else 1
            if not self.is_per_class:
                self.cls_token = nn.Parameter(torch.zeros(1, 1, embed_dim))
            self.pool = LayerScaleBlockClassAttn(
                embed_dim,
                num_heads,
                mlp_ratio=3.0,
                qkv_bias=True,
                init_values=layer_scale,
                norm_layer=_norm,
                proj_drop=drop_rate,
            )
        self.norm = _norm(embed_dim)
        if self.is_per_class:
            self.pool.attn = PerClassAttention(embed_dim, num_heads, num_classes)
            self.head: nn.Module = PerClassHead(embed_dim, num_classes)
        else:
            self.head = nn.Linear(embed_dim, num_classes) if num_classes else nn.Identity()
        if not self.norm.weight.is_meta:
            if not (self.averages or self.is_per_class):
                nn.init.trunc_normal_(self.cls_token, std=0.02)
            self.apply(start_linear)

    def forward_features(self, images: Tensor) -> Tensor:
        patches = self.blocks(self.stem(images)).flatten(2).transpose(1, 2)
        if self.averages:
            normed: Tensor = self.norm(patches)
            return normed
        tokens = self.head.tokens if isinstance(self.head, ClassTokens) else self.cls_token
        token = self.pool(patches, tokens.expand(len(patches), -1, -1))
        out: Tensor = self.norm(torch.cat([token, patches], dim=1))
        return out

    def no_weight_decay(self) -> set[str]:
        """Return what does not decay beside norms and biases, as in the published program."""
        if self.averages:
            return set()
        return {"head.tokens" if self.is_per_class else "cls_token"}

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        """Return the layers in timm's form: stem, blocks, and what pools them."""
        blocks = [(r"^blocks\.(\d+)", None), (r"^(?:pool|cls_token|norm)", LAST)]
        return {"stem": r"^stem", "blocks": blocks}

    def get_classifier(self) -> nn.Module:
        """Return what is left out of weights for other classes."""
        return self.head

    def reset_classifier(self, num_classes: int) -> None:
        """Replace the classifier; with no classes there is none.

        Tokens of classes are replaced with it; with no classes there are as many as before.
        """
        self.num_classes = num_classes
        if self.is_per_class:
            kind = PerClassHead if num_classes else ClassTokens
            self.num_prefix_tokens = num_classes or self.num_prefix_tokens
            self.pool.attn.classes = self.num_prefix_tokens
            self.head = kind(self.num_features, self.num_prefix_tokens)
            return
        self.head = nn.Linear(self.num_features, num_classes) if num_classes else nn.Identity()

    def forward_head(self, features: Tensor, pre_logits: bool = False) -> Tensor:
        if self.averages:
            pooled = features.mean(1)
        elif self.is_per_class:
            tokens = features[:, : self.num_prefix_tokens]
            return self.head(tokens) if self.num_classes and not pre_logits else tokens.mean(1)
        else:
            pooled = features[:, 0]
        return pooled if pre_logits else self.head(pooled)

    def forward(self, images: Tensor) -> Tensor:
        return self.forward_head(self.forward_features(images))


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
