"""DeiT-S whose class token comes late: the ablation that led to CaiT.

Touvron et al. 2021, Going deeper with Image Transformers; the thesis, section 3.6 and table 3.13.
The token joins the patches before a later block, or in class-attention after the last one: there it
alone asks, and the patches stay as they are. No LayerScale.
"""

from functools import partial
from typing import Any

import torch
from timm.layers import Mlp
from timm.models import generate_default_cfgs, register_model
from timm.models._manipulate import named_apply
from timm.models.cait import ClassAttn
from timm.models.vision_transformer import VisionTransformer, init_weights_vit_timm
from torch import Tensor, nn

from ..errors import BackboneError
from .arguments import known

_NORM = partial(nn.LayerNorm, eps=1e-6)

default_cfgs = generate_default_cfgs(
    {
        "deit_small_late_class.untrained": {
            "num_classes": 1000,
            "input_size": (3, 224, 224),
            "fixed_input_size": True,
            "first_conv": "patch_embed.proj",
            "classifier": "head",
        }
    }
)


class ClassBlock(nn.Module):
    """Class-attention and an MLP, of the class token alone (eqs. 3.8 to 3.12)."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = _NORM(dim), _NORM(dim)
        self.attn = ClassAttn(dim, num_heads=heads, qkv_bias=True)
        self.mlp = Mlp(dim, hidden_features=4 * dim)

    def forward(self, patches: Tensor, token: Tensor) -> Tensor:
        """Return the token [B, 1, D] after it has looked at the patches [B, N, D]."""
        token = token + self.attn(self.norm1(torch.cat([token, patches], dim=1)))
        found: Tensor = token + self.mlp(self.norm2(token))
        return found


class LateClassViT(VisionTransformer):
    """A vision transformer whose class token joins the patches late.

    Args:
        class_at: the block before which it joins, counted from 0; None: after the last block.
        class_depth: blocks of class-attention after the last block of the patches.
        arguments: of timm's VisionTransformer.

    Raises:
        BackboneError: the token joins before the last block and has blocks of its own, or neither.
    """

    def __init__(self, *, class_at: int | None, class_depth: int, **arguments: Any) -> None:
        depth = arguments["depth"]
        joins_a_block = class_at is not None and 0 <= class_at < depth
        if joins_a_block == (class_depth > 0) or (class_at is not None and not joins_a_block):
            raise BackboneError(
                f"the class token joins before one of {depth} blocks (class_at: 0 to {depth - 1}),"
                " or has blocks of its own after them (class_depth: 1 or more)"
            )
        # Its embedding has no position.
        super().__init__(class_token=True, no_embed_class=True, **arguments)
        self.class_at = class_at
        heads = arguments["num_heads"]
        self.class_blocks = nn.ModuleList(
            ClassBlock(self.embed_dim, heads) for _ in range(class_depth)
        )
        named_apply(init_weights_vit_timm, self.class_blocks)

    def group_matcher(self, coarse: bool = False) -> Any:
        """Return which layer a parameter is of: class-attention comes after all blocks."""

        def layer(name: str) -> float:
            room, _, rest = name.partition(".")
            if room in ("cls_token", "pos_embed", "patch_embed"):
                return 0
            if room in ("blocks", "class_blocks"):
                before = 1 + (len(self.blocks) if room == "class_blocks" else 0)
                return before + int(rest.partition(".")[0])
            return float("inf")

        return layer

    def forward_features(self, images: Tensor, *_: Any, **__: Any) -> Tensor:
        """Return class token and patches, [B, 1 + N, D].

        What timm's versions pass on beside the images is for masked attention.
        """
        tokens = self.pos_drop(self.patch_embed(images) + self.pos_embed)
        token = self.cls_token.expand(len(tokens), -1, -1)
        for number, block in enumerate(self.blocks):
            if number == self.class_at:
                tokens = torch.cat([token, tokens], dim=1)
            tokens = block(tokens)
        for block in self.class_blocks:
            token = block(tokens, token)
        if self.class_at is None:
            tokens = torch.cat([token, tokens], dim=1)
        found: Tensor = self.norm(tokens)
        return found


@register_model
def deit_small_late_class(pretrained: bool = False, **arguments: Any) -> LateClassViT:
    """DeiT-S with twelve blocks and two of class-attention: 25,599,208 parameters at 1000 classes.

    Table 3.13, "12 + 2".
    """
    usual = {
        "patch_size": 16,
        "embed_dim": 384,
        "depth": 12,
        "num_heads": 6,
        "class_at": None,
        "class_depth": 2,
    }
    return LateClassViT(**{**usual, **known(arguments)})
