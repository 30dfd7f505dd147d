"""A head of your own: neighbouring patch tokens should be alike.

Use it with `heads: ["smooth_tokens.py:SmoothTokens"]`.
"""

import torch
from torch import Tensor, nn


class SmoothTokens(nn.Module):
    """Mean squared difference of projected tokens to the one right of them and the one below."""

    def __init__(self, grids, width: int = 64):
        super().__init__()
        # A shape for each grid: width, height, columns. One grid, the last, unless the grid file
        # says `blocks: all`.
        self.project = nn.Linear(grids[-1].width, width)

    def forward(
        self, grids: list[Tensor], generator: torch.Generator, places: Tensor | None = None
    ):
        tokens = self.project(grids[-1])  # [B, h, w, D]
        right = (tokens[:, :, 1:] - tokens[:, :, :-1]).square().mean()
        below = (tokens[:, 1:] - tokens[:, :-1]).square().mean()
        loss = right + below
        return loss, {"smoothness": loss.detach()}
