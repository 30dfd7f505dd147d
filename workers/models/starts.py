"""How linear layers start in the programs of several architectures."""

from torch import nn


def start_linear(layer: nn.Module) -> None:
    """Draw a linear layer's weights from a truncated normal of deviation 0.02; its bias is zero.

    Other layers stay as PyTorch has them.
    """
    if isinstance(layer, nn.Linear):
        nn.init.trunc_normal_(layer.weight, std=0.02)
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)
