"""DeiT III whose layers stand side by side in pairs.

Touvron et al. 2022, "Three things everyone should know about Vision Transformers"; the thesis,
table 6.6 (ViT-H-26×2).
"""

from typing import Any

from timm.models import generate_default_cfgs, register_model
from timm.models.vision_transformer import ParallelThingsBlock, VisionTransformer

from .arguments import known

default_cfgs = generate_default_cfgs(
    {
        "deit3_huge_26x2.untrained": {
            "num_classes": 1000,
            "input_size": (3, 224, 224),
            "fixed_input_size": True,
            "first_conv": "patch_embed.proj",
            "classifier": "head",
        }
    }
)


@register_model
def deit3_huge_26x2(pretrained: bool = False, **arguments: Any) -> VisionTransformer:
    """ViT-H of 26 blocks with two attentions and two MLPs each: as many parameters as 52 blocks."""
    usual = {
        "patch_size": 14,
        "embed_dim": 1280,
        "depth": 26,
        "num_heads": 16,
        "no_embed_class": True,
        "init_values": 1e-6,
    }
    return VisionTransformer(block_fn=ParallelThingsBlock, **{**usual, **known(arguments)})
