"""What training asks of a head, and the making of one."""

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

# Epochs over which DRLoc's published program raises λ.
CODE_WARMUP = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The shape of a token grid."""

    width: int
    height: int
    columns: int


class Head(Protocol):
    """What training asks of a head; a torch module."""

    weight: float
    # Factor of the head's loss in the total.

    def __call__(
        self, grids: list[Tensor], generator: torch.Generator, places: Tensor | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss (mean over the images) and metrics (each a mean over the images), all scalars.

        Args:
            grids: [B, h, w, D] each: the backbone's final patch tokens, or those of every block.
            generator: a CPU generator of the `pair` stream; the only source of draws.
            places: [B, h·w] int64, where each token's patch lay in the image; None where nothing was shuffled.
        """
        ...


def build_head(head: dict[str, Any], grids: list[Grid]) -> nn.Module | None:
    """Make the head of a run; None where nothing is trained beside the classifier (or with weight 0 throughout).

    Args:
        head: name and resolved parameters.
        grids: the token grids that it will get.
    """
    from .drloc import DRLoc
    from .relvit import RelViT

    params = head["params"]
    if head["name"] == "supervised" or params["weight"] == 0:
        return None
    return DRLoc(grids, params) if head["name"] == "drloc" else RelViT(grids[-1], params)


def weight_at(head: dict[str, Any], epoch: int, epochs: int) -> float:
    """Return the factor of a head's loss in an epoch, counted from 0, of a schedule over `epochs`.

    `code` is the schedule of DRLoc's published program, which its paper does not mention: 20 epochs up from 0, then
    down in a straight line to 0 at the end.
    """
    weight = float(head["params"]["weight"])
    if head["params"].get("weight_schedule") != "code":
        return weight
    if epoch <= CODE_WARMUP:
        return weight * epoch / CODE_WARMUP
    return weight * max(0.0, 1.0 - (epoch - CODE_WARMUP) / max(1, epochs - CODE_WARMUP))
