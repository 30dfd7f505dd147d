"""ResMLP, made of timm's blocks, at the patch sizes and LayerScale of its tables.

Touvron et al. 2021; the thesis, chapter 4. Its ablations (table 4.3) are arguments:

- `norm`: `affine`, or `layernorm` in its place
- `mixing`, how patches exchange information: `linear`, `none`, `mlp`, or a 3×3 convolution: `conv`,
  `depthwise`, or `separable` (depthwise, then 1×1)
- `pooling`: `average`, or `class_mlp`

timm's own entries fix the patch size and start LayerScale at 1e-4 for twelve blocks.
"""

from functools import partial
from typing import Any

import torch
from timm.layers import Mlp
from timm.models import generate_default_cfgs, register_model
from timm.models.mlp_mixer import Affine, MlpMixer, ResBlock
from torch import Tensor, nn

from .arguments import LAST, known, one_of

NORMS = {"affine": Affine, "layernorm": partial(nn.LayerNorm, eps=1e-6)}
MIXINGS = ("linear", "none", "mlp", "conv", "depthwise", "separable")
POOLINGS = ("average", "class_mlp")
# Of class-MLP, as of CaiT's class-attention (section 4.2).
CLASS_LAYERS = 2

_fixed = {
    "num_classes": 1000,
    "input_size": (3, 224, 224),
    "fixed_input_size": True,
    "classifier": "head",
}
default_cfgs = generate_default_cfgs(
    {f"{name}.untrained": dict(_fixed) for name in ("resmlp_s12", "resmlp_s24", "resmlp_b24")}
)


class Convolution(nn.Sequential):
    """A convolution over the grid of patches, in place of the linear layer: [B, D, N] -> the same.

    Args:
        layers: keep the shape of a map.
        side: patches in a row.
    """

    def __init__(self, *layers: nn.Module, side: int) -> None:
        super().__init__(*layers)
        self.side = side

    def forward(self, patches: Tensor) -> Tensor:
        return super().forward(patches.unflatten(2, (self.side, self.side))).flatten(2)


class Block(ResBlock):
    """timm's block with another way to mix patches (table 4.3, "patch communication")."""

    def __init__(self, dim: int, seq_len: int, *others: Any, mixing: str, **more: Any) -> None:
        super().__init__(dim, seq_len, *others, **more)
        self.mixes = mixing != "none"
        if self.mixes:
            self.linear_tokens = _mixing(mixing, dim, seq_len)
        else:
            # What has no part in the forward pass has no weights either.
            del self.norm1, self.linear_tokens, self.ls1

    def forward(self, x: Tensor) -> Tensor:
        if self.mixes:
            return super().forward(x)
        out: Tensor = x + self.drop_path(self.ls2 * self.mlp_channels(self.norm2(x)))
        return out


def _mixing(kind: str, dim: int, count: int) -> nn.Module:
    if kind == "mlp":
        return Mlp(count, 4 * count)
    side = round(count**0.5)
    if kind == "conv":
        return Convolution(nn.Conv2d(dim, dim, 3, padding=1), side=side)
    layers: list[nn.Module] = [nn.Conv2d(dim, dim, 3, padding=1, groups=dim)]
    if kind == "separable":
        layers.append(nn.Conv2d(dim, dim, 1))
    return Convolution(*layers, side=side)


class ClassLayer(nn.Module):
    """A layer of class-MLP: the class token takes in all tokens by one linear layer, then an MLP.

    The patches stay as they are.
    """

    def __init__(self, dim: int, count: int, norm: Any, scale: float) -> None:
        super().__init__()
        self.norm1 = norm(dim)
        self.linear_tokens = nn.Linear(count + 1, 1)
        self.norm2 = norm(dim)
        self.mlp_channels = Mlp(dim, 4 * dim)
        self.ls1 = nn.Parameter(scale * torch.ones(dim))
        self.ls2 = nn.Parameter(scale * torch.ones(dim))

    def forward(self, token: Tensor, patches: Tensor) -> Tensor:
        """Return the class token, [B, 1, D]; patches are [B, N, D]."""
        tokens = self.norm1(torch.cat([token, patches], dim=1))
        token = token + self.ls1 * self.linear_tokens(tokens.transpose(1, 2)).transpose(1, 2)
        out: Tensor = token + self.ls2 * self.mlp_channels(self.norm2(token))
        return out


class ClassMLP(MlpMixer):
    """ResMLP whose patches are pooled by a class token (section 4.2).

    The text leaves open how the token starts and what is normed; it is as in CaiT.
    `forward_features` gives [B, 1 + h·w, D]: the class token, then the patches, normed.
    """

    num_prefix_tokens = 1

    def __init__(self, *, scale: float, **arguments: Any) -> None:
        super().__init__(**arguments)
        dim, count = self.embed_dim, self.stem.num_patches
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.class_layers = nn.ModuleList(
            ClassLayer(dim, count, arguments["norm_layer"], scale) for _ in range(CLASS_LAYERS)
        )
        if not self.cls_token.is_meta:
            # timm's, which has not seen the layers above.
            self.init_weights()
            nn.init.trunc_normal_(self.cls_token, std=0.02)

    def forward_features(self, x: Tensor) -> Tensor:
        patches = self.blocks(self.stem(x))
        token = self.cls_token.expand(len(patches), -1, -1)
        for layer in self.class_layers:
            token = layer(token, patches)
        out: Tensor = self.norm(torch.cat([token, patches], dim=1))
        return out

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        pooled = self.head_drop(x[:, 0])
        return pooled if pre_logits else self.head(pooled)

    def no_weight_decay(self) -> set[str]:
        """Return what does not decay beside norms and biases, as of CaiT."""
        return {"cls_token"}

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        """Return the layers in timm's form: stem, blocks, and what pools them."""
        blocks = [(r"^blocks\.(\d+)", None), (r"^(?:class_layers|cls_token|norm)", LAST)]
        return {"stem": r"^stem", "blocks": blocks}


def _make(width: int, depth: int, layer_scale: float, arguments: dict[str, Any]) -> MlpMixer:
    given = known(arguments)
    scale = given.pop("layer_scale", layer_scale)
    norm = NORMS[one_of("norm", given.pop("norm", "affine"), tuple(NORMS))]
    mixing = one_of("mixing", given.pop("mixing", "linear"), MIXINGS)
    pooling = one_of("pooling", given.pop("pooling", "average"), POOLINGS)
    block = partial(ResBlock, init_values=scale)
    if mixing != "linear":
        block = partial(Block, init_values=scale, mixing=mixing)
    usual = {"embed_dim": width, "num_blocks": depth, "patch_size": 16}
    options = {"mlp_ratio": 4, "block_layer": block, "norm_layer": norm, **usual, **given}
    if pooling == "class_mlp":
        return ClassMLP(scale=scale, **options)
    return MlpMixer(**options)


@register_model
def resmlp_s12(pretrained: bool = False, **arguments: Any) -> MlpMixer:
    """ResMLP-S12: 15,350,872 parameters at 1000 classes and patches of 16."""
    return _make(384, 12, 0.1, arguments)


@register_model
def resmlp_s24(pretrained: bool = False, **arguments: Any) -> MlpMixer:
    """ResMLP-S24: 30,020,680 parameters at 1000 classes and patches of 16."""
    return _make(384, 24, 1e-5, arguments)


@register_model
def resmlp_b24(pretrained: bool = False, **arguments: Any) -> MlpMixer:
    """ResMLP-B24: twice as wide."""
    return _make(768, 24, 1e-5, arguments)
