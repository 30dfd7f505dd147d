"""ResNets for images of 32 pixels: a 3×3 stem that keeps the resolution, and no pooling after it.

He et al. 2016, section 4.2, keep the resolution of CIFAR's images in the stem; with the usual stem
one place would be left of them at the end. The thesis trains ResNet-18 and ResNet-50 on CIFAR-100
(Touvron 2022, chapter 2) and names no stem.
"""

from typing import Any

from timm.models import generate_default_cfgs, register_model
from timm.models.resnet import BasicBlock, Bottleneck, ResNet
from torch import nn

from .arguments import known

default_cfgs = generate_default_cfgs(
    {
        f"{name}.untrained": {
            "num_classes": 100,
            "input_size": (3, 32, 32),
            "first_conv": "conv1",
            "classifier": "fc",
        }
        for name in ("resnet18_cifar", "resnet50_cifar")
    }
)


# Arguments of timm's ResNet that describe the stem it would have; this one replaces it.
_OF_THE_STEM = ("stem_type", "stem_width", "replace_stem_pool")


def _make(block: Any, layers: tuple[int, ...], arguments: dict[str, Any]) -> ResNet:
    without_effect = [name for name in _OF_THE_STEM if name in arguments]
    if without_effect:
        raise TypeError(f"its stem is fixed; leave out {', '.join(without_effect)}")
    model = ResNet(block=block, **{"layers": layers, **known(arguments)})
    width = model.conv1.out_channels
    channels = model.conv1.in_channels
    model.conv1 = nn.Conv2d(channels, width, 3, stride=1, padding=1, bias=False)
    nn.init.kaiming_normal_(model.conv1.weight, mode="fan_out", nonlinearity="relu")
    model.maxpool = nn.Identity()
    # The reductions that timm states of the stem and of each stage.
    for part in model.feature_info:
        part["reduction"] //= 4 if part["module"] != "act1" else 2
    return model


@register_model
def resnet18_cifar(pretrained: bool = False, **arguments: Any) -> ResNet:
    """ResNet-18 for 32 pixels: 11,220,132 parameters at 100 classes."""
    return _make(BasicBlock, (2, 2, 2, 2), arguments)


@register_model
def resnet50_cifar(pretrained: bool = False, **arguments: Any) -> ResNet:
    """ResNet-50 for 32 pixels: 23,705,252 parameters at 100 classes."""
    return _make(Bottleneck, (3, 4, 6, 3), arguments)
