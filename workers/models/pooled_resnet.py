"""ResNet-50 whose average pooling is replaced by PatchConvNet's class-attention.

Touvron et al. 2021, "Augmenting convolutional networks with attention-based aggregation"; the
thesis, section 5.3.4. Nothing was published of the layer's initial weights and sizes beside a
ResNet: they are PatchConvNet's.
"""

from functools import partial
from typing import Any

import torch
from timm.models import generate_default_cfgs, register_model
from timm.models.cait import LayerScaleBlockClassAttn
from timm.models.resnet import Bottleneck, ResNet
from torch import Tensor, nn
from torch.nn import functional as F

from .arguments import known
from .starts import start_linear

default_cfgs = generate_default_cfgs(
    {
        "resnet50_attention.untrained": {
            "num_classes": 1000,
            "input_size": (3, 224, 224),
            "first_conv": "conv1",
            "classifier": "fc",
        }
    }
)
_norm = partial(nn.LayerNorm, eps=1e-6)


class AttentionPooledResNet(ResNet):
    """A ResNet with one block of class-attention over the places of its last map.

    Args:
        layer_scale: initial factor of the block's branches, as PatchConvNet-S60's.
        num_heads: of its attention.
        arguments: of timm's ResNet.
    """

    def __init__(self, *, layer_scale: float = 1e-4, num_heads: int = 1, **arguments: Any) -> None:
        super().__init__(**arguments)
        width = self.num_features
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        self.pool = LayerScaleBlockClassAttn(
            width,
            num_heads,
            mlp_ratio=3.0,
            qkv_bias=True,
            init_values=layer_scale,
            norm_layer=_norm,
        )
        self.norm = _norm(width)
        if not self.cls_token.is_meta:
            nn.init.trunc_normal_(self.cls_token, std=0.02)
            self.pool.apply(start_linear)

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """Return logits [B, classes] of a map [B, D, h, w], or what the classifier would get."""
        places = x.flatten(2).transpose(1, 2)
        token = self.pool(places, self.cls_token.expand(len(places), -1, -1))
        pooled: Tensor = self.norm(token)[:, 0]
        if self.drop_rate:
            pooled = F.dropout(pooled, p=float(self.drop_rate), training=self.training)
        if pre_logits:
            return pooled
        logits: Tensor = self.fc(pooled)
        return logits

    def no_weight_decay(self) -> set[str]:
        """Return what does not decay beside norms and biases."""
        return {"cls_token"}


@register_model
def resnet50_attention(pretrained: bool = False, **arguments: Any) -> AttentionPooledResNet:
    """ResNet-50 with class-attention: 67,534,888 parameters and 4.55 GFLOPs at 224 pixels."""
    usual = {"block": Bottleneck, "layers": (3, 4, 6, 3)}
    return AttentionPooledResNet(**{**usual, **known(arguments)})
