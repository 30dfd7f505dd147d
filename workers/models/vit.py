"""ViT-B/16 as the DRLoc paper trained it.

Timm's VisionTransformer with what the published program has otherwise: no bias on queries, keys
and values, norms with ε 1e-5, dropout 0.1 after attention and in the MLP. Positions and class token
start from N(0, 1) and decay; every other weight starts as PyTorch has it.
"""

from functools import partial
from typing import Any

import torch
from timm.models import generate_default_cfgs, register_model
from timm.models.vision_transformer import VisionTransformer
from torch import nn

from .arguments import known

DROPOUT = 0.1

default_cfgs = generate_default_cfgs(
    {
        "vit_b16_drloc.untrained": {
            "num_classes": 1000,
            "input_size": (3, 224, 224),
            "fixed_input_size": True,
            "first_conv": "patch_embed.proj",
            "classifier": "head",
        }
    }
)


class DRLocViT(VisionTransformer):
    """The published program's ViT; its layers start as PyTorch makes them."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(weight_init="skip", **arguments)
        for name in ("pos_embed", "cls_token"):
            value = self.get_parameter(name)
            if not value.is_meta:
                with torch.no_grad():
                    value.normal_()

    def no_weight_decay(self) -> set[str]:
        """Return nothing: positions and class token decay as well."""
        return set()


@register_model
def vit_b16_drloc(pretrained: bool = False, **arguments: Any) -> DRLocViT:
    """ViT-B/16 without bias on queries, keys and values: 86,540,008 parameters at 1000 classes."""
    given = known(arguments)
    usual = {
        "qkv_bias": False,
        "norm_layer": partial(nn.LayerNorm, eps=1e-5),
        "proj_drop_rate": given.pop("drop_rate", DROPOUT),
    }
    return DRLocViT(**{**usual, **given})
