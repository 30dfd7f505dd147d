"""A backbone of your own: four convolutions.

Use it with `backbones: ["tiny_net.py:tiny_net"]`.
"""

from itertools import pairwise

from torch import Tensor, nn


class TinyNet(nn.Module):
    """Features [B, width, h, w], an eighth of the image's side, and a linear classifier."""

    def __init__(self, num_classes: int, in_chans: int, width: int, drop_rate: float):
        super().__init__()
        # As in timm: the length of a token's vector.
        self.num_features = width
        widths = [in_chans, width // 4, width // 2, width]
        self.body = nn.Sequential()
        for before, after in pairwise(widths):
            self.body.append(nn.Conv2d(before, after, 3, stride=2, padding=1))
            self.body.append(nn.GroupNorm(1, after))
            self.body.append(nn.GELU())
        self.dropout = nn.Dropout(drop_rate)
        self.classifier = nn.Linear(width, num_classes)

    def forward_features(self, images: Tensor) -> Tensor:
        return self.body(images)

    def forward_head(self, features: Tensor) -> Tensor:
        return self.classifier(self.dropout(features.mean((2, 3))))

    def forward(self, images: Tensor) -> Tensor:
        return self.forward_head(self.forward_features(images))

    def get_classifier(self) -> nn.Module:
        return self.classifier

    def reset_classifier(self, num_classes: int) -> None:
        width = self.num_features
        self.classifier = nn.Linear(width, num_classes) if num_classes else nn.Identity()


def tiny_net(num_classes: int, in_chans: int = 3, width: int = 64, drop_rate: float = 0.0):
    return TinyNet(num_classes, in_chans, width, drop_rate)
