"""The auxiliary heads: given the final token grid, a loss and metrics. The classifier never sees them."""

from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Head(Protocol):
    """What training asks of a head."""

    weight: float
    # Factor of the head's loss in the total.

    def __call__(self, tokens: Tensor, generator: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss (mean over the images) and metrics (each a mean over the images), all scalars.

        Args:
            tokens: [B, h, w, D], the backbone's final patch tokens.
            generator: a CPU generator of the `pair` stream; the only source of draws.
        """
        ...


class DRLoc(nn.Module):
    """Dense relative localization (Liu et al. 2021, section 4).

    For m random token pairs per image, an MLP predicts (|Δrow|/h, |Δcolumn|/w) from the concatenated embeddings; the
    loss is L1, averaged over images, pairs and coordinates (eq. 1 with the reduction of the pseudo-code, fig. 2).
    """

    def __init__(self, width: int, params: dict[str, Any]) -> None:
        super().__init__()
        self.weight = float(params["weight"])
        self.pairs = int(params["pairs"])
        self.grid = int(params["grid"])
        hidden = int(params["width"])
        # Table 15: 2D -> hidden, ReLU, hidden, ReLU, 2.
        self.mlp = nn.Sequential(
            nn.Linear(2 * width, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 2)
        )

    def forward(self, tokens: Tensor, generator: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
        tokens = self._pooled(tokens)
        batch, height, width, _ = tokens.shape
        # Two independent uniform draws with replacement; a pair may be one token twice.
        places = torch.randint(height * width, (2, batch, self.pairs), generator=generator).to(tokens.device)
        rows, columns = places // width, places % width
        target = torch.stack([(rows[0] - rows[1]).abs() / height, (columns[0] - columns[1]).abs() / width], dim=-1)
        flat = tokens.flatten(0, 2)
        base = torch.arange(batch, device=tokens.device)[:, None] * (height * width)
        first, second = (flat.index_select(0, (base + place).flatten()) for place in places)
        predicted = self.mlp(torch.cat([first, second], dim=-1)).float().view(batch, self.pairs, 2)
        loss = F.l1_loss(predicted, target)
        return loss, {"drloc_l1": loss.detach()}

    def _pooled(self, tokens: Tensor) -> Tensor:
        height, width = tokens.shape[1:3]
        if height <= self.grid or height % self.grid or width % self.grid:
            return tokens
        window = (height // self.grid, width // self.grid)
        return F.avg_pool2d(tokens.permute(0, 3, 1, 2), window).permute(0, 2, 3, 1)


class RelViT(nn.Module):
    """Patch relations (Camporese et al. 2022, section 3): SpRel (eq. 5, 8, 10) and AbsPos (eq. 9, 11).

    SpRel classifies for every ordered pair of patches (i, j) where i lies as seen from j: nine classes, scored by
    z_i W_c z_jᵀ / √D with a full D×D matrix per class. AbsPos classifies every patch's own position.
    """

    def __init__(self, width: int, grid: tuple[int, int], params: dict[str, Any]) -> None:
        super().__init__()
        self.weight = float(params["weight"])
        self.width = width
        count = grid[0] * grid[1]
        if "sprel" in params["tasks"]:
            self.relation = nn.Parameter(torch.empty(9, width, width))
            nn.init.trunc_normal_(self.relation, std=0.02)
            self.register_buffer("relation_target", relation_labels(*grid), persistent=False)
        else:
            self.relation = None
        self.position = nn.Linear(width, count) if "abspos" in params["tasks"] else None
        self.register_buffer("position_target", torch.arange(count), persistent=False)

    def forward(self, tokens: Tensor, generator: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
        z = tokens.flatten(1, 2)
        batch, count, _ = z.shape
        loss = torch.zeros((), device=z.device)
        metrics: dict[str, Tensor] = {}
        if self.relation is not None:
            # One product for all classes: [B, N, 9, D] against [B, N, D] -> [B, N, 9, N].
            left = (z @ self.relation.permute(1, 0, 2).flatten(1)).unflatten(-1, (9, self.width))
            scores = torch.einsum("bikd,bjd->bkij", left, z).float() / self.width**0.5
            target = self.relation_target.expand(batch, count, count)
            # Cross-entropy by its definition: torch's own has no deterministic kernel for this shape on a GPU.
            chosen = scores.gather(1, target[:, None])[:, 0]
            loss = loss + (scores.logsumexp(1) - chosen).mean()
            metrics["sprel_top1"] = 100.0 * (scores.detach().argmax(1) == target).float().mean()
        if self.position is not None:
            logits = self.position(z).float()
            places = self.position_target.expand(batch, count)
            loss = loss + F.cross_entropy(logits.flatten(0, 1), places.flatten())
            metrics["abspos_top1"] = 100.0 * (logits.detach().argmax(-1) == places).float().mean()
        return loss, {"relvit_loss": loss.detach(), **metrics}


def relation_labels(height: int, width: int) -> Tensor:
    """Return [N, N] int64: 3·(sign(row_i - row_j) + 1) + (sign(column_i - column_j) + 1)."""
    rows = torch.arange(height).repeat_interleave(width)
    columns = torch.arange(width).repeat(height)
    vertical = torch.sign(rows[:, None] - rows[None, :]) + 1
    horizontal = torch.sign(columns[:, None] - columns[None, :]) + 1
    return 3 * vertical + horizontal


def build_head(head: dict[str, Any], width: int, grid: tuple[int, int]) -> DRLoc | RelViT | None:
    """Make the head of a run; None where nothing is trained beside the classifier (or with weight 0)."""
    params = head["params"]
    if head["name"] == "supervised" or params["weight"] == 0:
        return None
    if head["name"] == "drloc":
        return DRLoc(width, params)
    return RelViT(width, grid, params)
