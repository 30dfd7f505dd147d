"""CvT-13 (Wu et al. 2021) in two variants.

The official one, and the one that the DRLoc paper trained.

They differ in more than their size: see `Variant`. Both have three stages of 1, 2 and 10 blocks,
64, 192 and 384 wide, with 1, 3 and 6 heads; queries, keys and values come from depthwise
convolutions, keys and values at half resolution.
"""

from dataclasses import dataclass
from typing import Any

import torch
from timm.layers import DropPath
from timm.models import register_model
from torch import Tensor, nn
from torch.nn import functional as F

from .arguments import LAST, known
from .starts import start_linear

WIDTHS, DEPTHS, HEADS = (64, 192, 384), (1, 2, 10), (1, 3, 6)


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """What sets the two apart."""

    official: bool

    @property
    def stem_padding(self) -> int:
        return 2 if self.official else 3


class ChannelNorm(nn.Module):
    """LayerNorm over the channels of [B, C, H, W] as the DRLoc variant has it.

    (x - mean) / (std + eps).
    """

    def __init__(self, width: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.g = nn.Parameter(torch.ones(1, width, 1, 1))
        self.b = nn.Parameter(torch.zeros(1, width, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(dim=1, keepdim=True)
        std = x.var(dim=1, unbiased=False, keepdim=True).sqrt()
        return (x - mean) / (std + self.eps) * self.g + self.b


class QuickGELU(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(1.702 * x)


def _depthwise(width: int, stride: int) -> nn.Sequential:
    conv = nn.Conv2d(width, width, 3, stride=stride, padding=1, groups=width, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(width))


def _heads(x: Tensor, heads: int) -> Tensor:
    """[B, N, D] -> [B, heads, N, D/heads]."""
    return x.unflatten(2, (heads, -1)).transpose(1, 2)


class OfficialAttention(nn.Module):
    """Separate depthwise convolutions for q, k and v, then linear maps.

    The scale is the whole width's.

    The class token, where there is one, passes the convolutions by.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.scale = heads, width**-0.5
        self.conv_q, self.conv_k, self.conv_v = (_depthwise(width, stride) for stride in (1, 2, 2))
        self.proj_q, self.proj_k, self.proj_v = (nn.Linear(width, width) for _ in range(3))
        self.proj = nn.Linear(width, width)

    def forward(self, tokens: Tensor, grid: tuple[int, int]) -> Tensor:
        count = grid[0] * grid[1]
        extra, patches = tokens[:, :-count], tokens[:, -count:]
        image = patches.transpose(1, 2).unflatten(2, grid)
        query, key, value = (
            _heads(
                proj(torch.cat([extra, conv(image).flatten(2).transpose(1, 2)], dim=1)), self.heads
            )
            for conv, proj in (
                (self.conv_q, self.proj_q),
                (self.conv_k, self.proj_k),
                (self.conv_v, self.proj_v),
            )
        )
        mixed = F.scaled_dot_product_attention(query, key, value, scale=self.scale)
        out: Tensor = self.proj(mixed.transpose(1, 2).flatten(2))
        return out


class SharedAttention(nn.Module):
    """The DRLoc variant: keys and values share one depthwise convolution.

    1×1 convolutions without bias follow.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.to_q = nn.Sequential(*_depthwise(width, 1), nn.Conv2d(width, width, 1, bias=False))
        self.to_kv = nn.Sequential(
            *_depthwise(width, 2), nn.Conv2d(width, 2 * width, 1, bias=False)
        )
        self.to_out = nn.Conv2d(width, width, 1)

    def forward(self, image: Tensor) -> Tensor:
        query, key, value = (
            _heads(part.flatten(2).transpose(1, 2), self.heads)
            for part in (self.to_q(image), *self.to_kv(image).chunk(2, dim=1))
        )
        mixed = F.scaled_dot_product_attention(query, key, value)
        out: Tensor = self.to_out(
            mixed.transpose(1, 2).flatten(2).transpose(1, 2).unflatten(2, image.shape[2:])
        )
        return out


class OfficialBlock(nn.Module):
    def __init__(self, width: int, heads: int, drop_path: float, drop: float) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = OfficialAttention(width, heads)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width),
            QuickGELU(),
            nn.Dropout(drop),
            nn.Linear(4 * width, width),
            nn.Dropout(drop),
        )
        self.drop_path = DropPath(drop_path)

    def forward(self, tokens: Tensor, grid: tuple[int, int]) -> Tensor:
        tokens = tokens + self.drop_path(self.attn(self.norm1(tokens), grid))
        out: Tensor = tokens + self.drop_path(self.mlp(self.norm2(tokens)))
        return out


class SharedBlock(nn.Module):
    def __init__(self, width: int, heads: int, drop_path: float, drop: float) -> None:
        super().__init__()
        self.norm1, self.norm2 = ChannelNorm(width), ChannelNorm(width)
        self.attn = SharedAttention(width, heads)
        self.mlp = nn.Sequential(
            nn.Conv2d(width, 4 * width, 1),
            nn.GELU(),
            nn.Dropout(drop),
            nn.Conv2d(4 * width, width, 1),
        )
        self.drop_path = DropPath(drop_path)

    def forward(self, image: Tensor) -> Tensor:
        image = image + self.drop_path(self.attn(self.norm1(image)))
        out: Tensor = image + self.drop_path(self.mlp(self.norm2(image)))
        return out


class CvT(nn.Module):
    """Convolutional vision transformer.

    `forward_features` gives [B, 1 + h·w, 384] with a class token (official, after the final norm)
    or [B, 384, h, w] (DRLoc's variant, which has neither class token nor final norm); h = H/16.
    """

    def __init__(
        self,
        variant: Variant,
        *,
        num_classes: int = 1000,
        in_chans: int = 3,
        drop_rate: float = 0.0,
        drop_path_rate: float | None = None,
        depths: tuple[int, ...] = DEPTHS,
    ) -> None:
        super().__init__()
        self.variant, self.num_classes, self.num_features = variant, num_classes, WIDTHS[-1]
        self.num_prefix_tokens = int(variant.official)
        if drop_path_rate is None:
            drop_path_rate = 0.1 if variant.official else 0.0
        self.embeds, self.embed_norms, self.stages = (
            nn.ModuleList(),
            nn.ModuleList(),
            nn.ModuleList(),
        )
        channels = in_chans
        for stage, (width, depth, heads) in enumerate(zip(WIDTHS, depths, HEADS, strict=True)):
            kernel, stride, padding = (3, 2, 1) if stage else (7, 4, variant.stem_padding)
            self.embeds.append(nn.Conv2d(channels, width, kernel, stride=stride, padding=padding))
            self.embed_norms.append(nn.LayerNorm(width) if variant.official else ChannelNorm(width))
            # Stochastic depth in the last stage alone, as the official settings have it.
            rates = [
                drop_path_rate * block / max(1, depth - 1) if stage == 2 else 0.0
                for block in range(depth)
            ]
            block = OfficialBlock if variant.official else SharedBlock
            self.stages.append(
                nn.ModuleList(block(width, heads, rate, drop_rate) for rate in rates)
            )
            channels = width
        self.cls_token = nn.Parameter(torch.zeros(1, 1, channels)) if variant.official else None
        self.norm = nn.LayerNorm(channels) if variant.official else nn.Identity()
        self.head = nn.Linear(channels, num_classes) if num_classes else nn.Identity()
        if self.cls_token is not None and not self.cls_token.is_meta:
            nn.init.trunc_normal_(self.cls_token, std=0.02)
            self.apply(start_linear)

    def forward_features(self, images: Tensor) -> Tensor:
        return self._official(images) if self.variant.official else self._shared(images)

    def _official(self, image: Tensor) -> Tensor:
        tokens = image
        for stage, (embed, norm, blocks) in enumerate(
            zip(self.embeds, self.embed_norms, self.stages, strict=True)
        ):
            image = embed(image)
            grid = (image.shape[2], image.shape[3])
            tokens = norm(image.flatten(2).transpose(1, 2))
            if stage == 2 and self.cls_token is not None:
                tokens = torch.cat([self.cls_token.expand(len(tokens), -1, -1), tokens], dim=1)
            for block in blocks:
                tokens = block(tokens, grid)
            image = tokens[:, -grid[0] * grid[1] :].transpose(1, 2).unflatten(2, grid)
        out: Tensor = self.norm(tokens)
        return out

    def _shared(self, image: Tensor) -> Tensor:
        for embed, norm, blocks in zip(self.embeds, self.embed_norms, self.stages, strict=True):
            image = norm(embed(image))
            for block in blocks:
                image = block(image)
        return image

    def no_weight_decay(self) -> set[str]:
        """Return what does not decay beside norms and biases, as in the published program."""
        return {"cls_token"} if self.variant.official else set()

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        """Return the layers in timm's form; an embedding belongs to the first block after it."""
        stages = r"^stages\.(\d+)" if coarse else r"^stages\.(\d+)\.(\d+)"
        blocks = [(r"^embed(?:s|_norms)\.(\d+)", None if coarse else (0,)), (stages, None)]
        token = (r"^cls_token", (2,) if coarse else (2, 0))
        return {"stem": r"^embed(?:s|_norms)\.0\.", "blocks": [*blocks, token, (r"^norm\.", LAST)]}

    def get_classifier(self) -> nn.Module:
        """Return what is left out of weights for other classes."""
        return self.head

    def reset_classifier(self, num_classes: int) -> None:
        """Replace the classifier; with no classes there is none."""
        self.num_classes = num_classes
        self.head = nn.Linear(self.num_features, num_classes) if num_classes else nn.Identity()

    def forward_head(self, features: Tensor, pre_logits: bool = False) -> Tensor:
        pooled = features[:, 0] if self.variant.official else features.mean(dim=(2, 3))
        return pooled if pre_logits else self.head(pooled)

    def forward(self, images: Tensor) -> Tensor:
        return self.forward_head(self.forward_features(images))


@register_model
def cvt_13(pretrained: bool = False, **arguments: Any) -> CvT:
    """CvT-13 as its authors published it: 19,997,480 parameters at 1000 classes."""
    return CvT(Variant(official=True), **known(arguments))


@register_model
def cvt_13_drloc(pretrained: bool = False, **arguments: Any) -> CvT:
    """CvT-13 as the DRLoc paper trained it: 19,936,296 parameters at 1000 classes."""
    return CvT(Variant(official=False), **known(arguments))
