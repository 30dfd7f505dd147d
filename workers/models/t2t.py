"""T2T-ViT-14 (Yuan et al. 2021).

Tokens are re-tokenized twice by performer layers, then a plain ViT of 14 blocks.

The trunk, its feature interface and its classifier are timm's VisionTransformer; written here are
the tokenizer and the fixed positions.
"""

import math
import re
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from timm.models import generate_default_cfgs, register_model
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn
from torch.nn import functional as F

from .arguments import known
from .starts import start_linear

# Under fp16 the published 1e-8 is zero and the division gives NaN; it is kept because the division
# is in fp32.
PERFORMER_EPS = 1e-8


class PerformerLayer(nn.Module):
    """One transformer layer whose attention is linear in the number of tokens.

    [B, N, width] -> [B, N, out].

    Random features (Choromanski et al. 2021) are drawn once, orthogonal, and are saved but not
    trained. The residual starts from the values, not from the input, whose width differs.
    """

    def __init__(self, width: int, out: int, *, dropout: float = 0.1) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.kqv = nn.Linear(width, 3 * out)
        self.drop = nn.Dropout(dropout)
        self.proj = nn.Linear(out, out)
        self.norm2 = nn.LayerNorm(out)
        self.mlp = nn.Sequential(
            nn.Linear(out, out), nn.GELU(), nn.Linear(out, out), nn.Dropout(dropout)
        )
        features = out // 2
        self.features = nn.Parameter(torch.empty(features, out), requires_grad=False)
        if self.features.is_meta:
            return
        nn.init.orthogonal_(self.features, gain=math.sqrt(features))

    def forward(self, tokens: Tensor) -> Tensor:
        key, query, value = self.kqv(self.norm1(tokens)).chunk(3, dim=-1)
        # exp of a square and a quotient of sums: both leave fp16's range at ordinary activations.
        with _full_precision(tokens.device):
            key, query, wide = (
                self._project(key.float()),
                self._project(query.float()),
                value.float(),
            )
            scale = (query * key.sum(dim=1, keepdim=True)).sum(dim=-1, keepdim=True) + PERFORMER_EPS
            mixed = query @ (key.transpose(1, 2) @ wide) / scale
        tokens = value + self.drop(self.proj(mixed.to(value.dtype)))
        out: Tensor = tokens + self.mlp(self.norm2(tokens))
        return out

    def _project(self, x: Tensor) -> Tensor:
        weight = self.features.float()
        square = x.square().sum(dim=-1, keepdim=True) / 2
        return torch.exp(x @ weight.T - square) / math.sqrt(weight.shape[0])


def _full_precision(device: torch.device) -> AbstractContextManager[Any]:
    # On the meta device there is nothing to compute, and autocast does not know it.
    return nullcontext() if device.type == "meta" else torch.autocast(device.type, enabled=False)


class TokensToToken(nn.Module):
    """Soft splits 7/4/2, 3/2/1, 3/2/1 with performer layers between.

    [B, C, H, W] -> [B, H/16 · W/16, embed_dim].
    """

    def __init__(
        self,
        img_size: int = 224,
        in_chans: int = 3,
        embed_dim: int = 384,
        token_dim: int = 64,
        **_: Any,
    ) -> None:
        super().__init__()
        size = img_size if isinstance(img_size, int) else img_size[0]
        self.img_size = (size, size)
        self.grid_size = (size // 16, size // 16)
        self.num_patches = self.grid_size[0] * self.grid_size[1]
        self.attention1 = PerformerLayer(in_chans * 49, token_dim)
        self.attention2 = PerformerLayer(token_dim * 9, token_dim)
        self.project = nn.Linear(token_dim * 9, embed_dim)

    def feat_ratio(self) -> int:
        return 16

    def forward(self, images: Tensor) -> Tensor:
        tokens, side = _split(images, 7, 4, 2)
        tokens, side = _split(_as_image(self.attention1(tokens), side), 3, 2, 1)
        tokens, _ = _split(_as_image(self.attention2(tokens), side), 3, 2, 1)
        out: Tensor = self.project(tokens)
        return out


def _split(
    images: Tensor, kernel: int, stride: int, padding: int
) -> tuple[Tensor, tuple[int, int]]:
    height, width = ((size + 2 * padding - kernel) // stride + 1 for size in images.shape[2:])
    return F.unfold(images, kernel, stride=stride, padding=padding).transpose(1, 2), (height, width)


def _as_image(tokens: Tensor, side: tuple[int, int]) -> Tensor:
    return tokens.transpose(1, 2).unflatten(2, side)


class T2TViT(VisionTransformer):
    """T2T-ViT.

    Timm's VisionTransformer on re-tokenized patches, with fixed sinusoidal positions.
    """

    def __init__(self, **arguments: Any) -> None:
        super().__init__(embed_layer=TokensToToken, patch_size=16, **arguments)
        learnt = self.get_parameter("pos_embed")
        fixed = sinusoids(*learnt.shape[1:])[None].to(learnt.device)
        self.register_parameter("pos_embed", nn.Parameter(fixed, requires_grad=False))
        if not fixed.is_meta:
            self.apply(start_linear)
            nn.init.trunc_normal_(self.get_parameter("cls_token"), std=0.02)


def sinusoids(count: int, width: int) -> Tensor:
    """Return [count, width] fp32.

    Sin and cos of position / 10000^(2⌊i/2⌋/width) in turn (Vaswani et al. 2017).
    """
    position = torch.arange(count, dtype=torch.float64, device="cpu")[:, None]
    index = torch.arange(width, dtype=torch.float64, device="cpu")
    angle = position / 10000 ** (2 * (index // 2) / width)
    angle[:, 0::2], angle[:, 1::2] = angle[:, 0::2].sin(), angle[:, 1::2].cos()
    return angle.float()


# One size per model: the fixed positions are those of one grid.
default_cfgs = generate_default_cfgs(
    {
        "t2t_vit_14.untrained": {
            "num_classes": 1000,
            "input_size": (3, 224, 224),
            "fixed_input_size": True,
        }
    }
)


@register_model
def t2t_vit_14(pretrained: bool = False, **arguments: Any) -> T2TViT:
    """T2T-ViT-14: 21,545,550 parameters at 1000 classes, 21,465,806 of them trained."""
    usual = {
        "embed_dim": 384,
        "depth": 14,
        "num_heads": 6,
        "mlp_ratio": 3.0,
        "qkv_bias": False,
        "norm_layer": partial(nn.LayerNorm, eps=1e-5),
    }
    return T2TViT(**{**usual, **known(arguments)})


def checkpoint_filter_fn(state: dict[str, Tensor], model: nn.Module) -> dict[str, Tensor]:
    """Give the weights that the authors published our names; ours stay as they are."""
    return {
        re.sub(
            r"(attention[12])\.w$",
            r"\1.features",
            name.replace("tokens_to_token.", "patch_embed.", 1),
        ): value
        for name, value in state.items()
    }
