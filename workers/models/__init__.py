"""Backbones of the papers that no kept library has; importing this registers them with timm."""

from . import (
    cvt,
    late_class,
    parallel,
    patchconvnet,
    pooled_resnet,
    resmlp,
    resnet,
    scaled,
    t2t,
    vit,
)

__all__ = [
    "cvt",
    "late_class",
    "parallel",
    "patchconvnet",
    "pooled_resnet",
    "resmlp",
    "resnet",
    "scaled",
    "t2t",
    "vit",
]
