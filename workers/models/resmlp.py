"""ResMLP, made of timm's blocks, at the patch sizes and LayerScale of its tables.

Touvron et al. 2021; the thesis, chapter 4.

timm's own entries fix the patch size and start LayerScale at 1e-4 for twelve blocks.
"""

from functools import partial
from typing import Any

from timm.models import generate_default_cfgs, register_model
from timm.models.mlp_mixer import Affine, MlpMixer, ResBlock

from .arguments import known

_fixed = {
    "num_classes": 1000,
    "input_size": (3, 224, 224),
    "fixed_input_size": True,
    "classifier": "head",
}
default_cfgs = generate_default_cfgs(
    {f"{name}.untrained": dict(_fixed) for name in ("resmlp_s12", "resmlp_s24", "resmlp_b24")}
)


def _make(width: int, depth: int, layer_scale: float, arguments: dict[str, Any]) -> MlpMixer:
    given = known(arguments)
    block = partial(ResBlock, init_values=given.pop("layer_scale", layer_scale))
    usual = {"embed_dim": width, "num_blocks": depth, "patch_size": 16}
    return MlpMixer(mlp_ratio=4, block_layer=block, norm_layer=Affine, **{**usual, **given})


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
