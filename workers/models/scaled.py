"""DeiT-S whose residual branches are multiplied by learned factors: the ablations behind CaiT.

Touvron et al. 2021, Going deeper with Image Transformers; the thesis, section 3.5 and tables 3.11,
3.12 and 3.20. A factor for each channel is LayerScale; one for each branch that begins at zero is
ReZero (Bachlechner et al. 2020), which keeps its LayerNorm here, as the thesis adapts it.
"""

from functools import partial
from typing import Any

import torch
from timm.layers import DropPath, Mlp
from timm.models import generate_default_cfgs, register_model
from timm.models.cait import TalkingHeadAttn
from timm.models.vision_transformer import Attention, VisionTransformer
from torch import Tensor, nn

from .arguments import known, one_of

SCALES = ("none", "branch", "channel")
STARTS = ("constant", "uniform")

default_cfgs = generate_default_cfgs(
    {
        "deit_small_scaled.untrained": {
            "num_classes": 1000,
            "input_size": (3, 224, 224),
            "fixed_input_size": True,
            "first_conv": "patch_embed.proj",
            "classifier": "head",
        }
    }
)


class Scale(nn.Module):
    """Factors of a residual branch.

    Args:
        count: how many: one for each channel, or one for all of them.
        init: where they start; with `uniform` the mean of where.
        start: constant, or uniform: drawn from U[0, 2·init] (table 3.12).
    """

    def __init__(self, count: int, init: float, start: str) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.full((count,), init))
        if start == "uniform":
            nn.init.uniform_(self.gamma, 0.0, 2 * init)

    def forward(self, branch: Tensor) -> Tensor:
        """Return a branch's output [B, N, D], multiplied."""
        return branch * self.gamma


class ScaledBlock(nn.Module):
    """Self-attention and an MLP, each in a branch with factors (eq. 3.5 of the thesis)."""

    def __init__(
        self,
        dim: int,
        num_heads: int,
        *,
        norm_layer: Any,
        drop_path_rate: float,
        scale: str,
        scale_init: float,
        scale_start: str,
        talking_heads: bool,
        proj_drop: float = 0.0,
        attn_drop: float = 0.0,
        **_: Any,
    ) -> None:
        super().__init__()

        def factors() -> nn.Module:
            count = dim if scale == "channel" else 1
            return nn.Identity() if scale == "none" else Scale(count, scale_init, scale_start)

        attention = TalkingHeadAttn if talking_heads else Attention
        self.norm1, self.norm2 = norm_layer(dim), norm_layer(dim)
        drops = {"attn_drop": attn_drop, "proj_drop": proj_drop}
        self.attn = attention(dim, num_heads=num_heads, qkv_bias=True, **drops)
        self.mlp = Mlp(dim, hidden_features=4 * dim, drop=proj_drop)
        self.ls1, self.ls2 = factors(), factors()
        self.drop_path1, self.drop_path2 = DropPath(drop_path_rate), DropPath(drop_path_rate)

    def forward(self, tokens: Tensor, *_: Any, **__: Any) -> Tensor:
        """Return tokens [B, N, D].

        What timm's versions pass on beside the tokens is for masked attention.
        """
        tokens = tokens + self.drop_path1(self.ls1(self.attn(self.norm1(tokens))))
        found: Tensor = tokens + self.drop_path2(self.ls2(self.mlp(self.norm2(tokens))))
        return found


class ScaledViT(VisionTransformer):
    """A vision transformer with factors on its branches, and one drop path rate for all blocks.

    Args:
        scale: none, branch (one factor for each branch) or channel (LayerScale).
        scale_init: where the factors start; 0 with one factor for each branch is ReZero.
        scale_start: constant, or uniform between 0 and twice `scale_init`.
        drop_path_rate: of every block: it does not grow with depth (section 3.5.2).
        talking_heads: whether the heads of attention are mixed before and after the softmax.
        arguments: of timm's VisionTransformer.

    Raises:
        TypeError: an argument has a value that is none of these.
    """

    def __init__(
        self,
        *,
        scale: str,
        scale_init: float,
        scale_start: str,
        drop_path_rate: float,
        talking_heads: bool,
        **arguments: Any,
    ) -> None:
        block = partial(
            ScaledBlock,
            drop_path_rate=drop_path_rate,
            scale=one_of("scale", scale, SCALES),
            scale_init=scale_init,
            scale_start=one_of("scale_start", scale_start, STARTS),
            talking_heads=talking_heads,
        )
        super().__init__(block_fn=block, **arguments)


@register_model
def deit_small_scaled(pretrained: bool = False, **arguments: Any) -> ScaledViT:
    """DeiT-S with LayerScale: 22,059,880 parameters at 1000 classes."""
    usual = {
        "patch_size": 16,
        "embed_dim": 384,
        "depth": 12,
        "num_heads": 6,
        "scale": "channel",
        "scale_init": 0.1,
        "scale_start": "constant",
        "drop_path_rate": 0.0,
        "talking_heads": False,
    }
    return ScaledViT(**{**usual, **known(arguments)})
