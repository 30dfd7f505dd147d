"""Relations between patches (Camporese et al. 2022).

Direction, distance, angle and place, from the tokens alone.
"""

import math
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...jobs.documents import Document, from_plain
from ..models.tokens import Grid
from .relations import Relation, patch_at

DIRECTIONS = 9
# A grid of this side is not pooled.
POOLED = 7
# What each task predicts of two patches.
NAMES = {"sprel": "direction", "dist": "distance", "ang": "angle"}
# Added to the product of norms in eq. 7, as in the published code; the paper names no value.
ANGLE_FLOOR = 1e-4


def build(grids: list[Grid], params: dict[str, Any]) -> nn.Module:
    """Make the head, which works on the final tokens alone; see `base.build_head`."""
    return RelViT(grids[-1], from_plain(params, Parameters))


class Parameters(Document, frozen=True, kw_only=True):
    """What the head reads of its parameters, which `jobs/grid/heads.RelViT` explains."""

    tasks: list[Literal["sprel", "dist", "ang", "abspos"]]
    rank: Literal["full", "low"]
    pooling: Literal["none", "overlapping"]


class RelViT(nn.Module):
    """The tasks of Camporese et al. 2022, summed with equal weight.

    SpRel is eq. 5 and 10, Dist eq. 6 and 12, Ang eq. 7 and 13, AbsPos eq. 9 and 11.

    A score of the ordered pair (i, j) is z_i W z_jᵀ / √D with one D×D matrix per score (eq. 8, rank
    `full`), or q_i·k_j / √d with queries and keys of width d (rank `low`): D/9 for each direction,
    D for Dist and Ang. All scores of a head come from one projection a side.
    """

    def __init__(self, grid: Grid, params: Parameters) -> None:
        super().__init__()
        self.width, tasks = grid.width, params.tasks
        self.is_pooled = params.pooling == "overlapping" and grid.height > POOLED
        if self.is_pooled:
            height, columns = ((side - 1) // 2 + 1 for side in (grid.height, grid.columns))
            grid = Grid(width=grid.width, height=height, columns=columns)
        count = grid.height * grid.columns
        self.tasks = [task for task in ("sprel", "dist", "ang") if task in tasks]
        targets = {"sprel": directions, "dist": distances, "ang": angles}
        for task in self.tasks:
            self.register_buffer(
                f"{task}_target", targets[task](grid.height, grid.columns), persistent=False
            )
        self.scores = _scores(self.tasks, grid.width, params.rank) if self.tasks else None
        self.position = nn.Linear(grid.width, count) if "abspos" in tasks else None
        self.register_buffer("place", torch.arange(count), persistent=False)

    def forward(
        self, grids: list[Tensor], generator: torch.Generator, places: Tensor | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        z = self._pooled(grids[-1]).flatten(1, 2)
        batch, count, _ = z.shape
        loss = torch.zeros((), device=z.device)
        metrics: dict[str, Tensor] = {}
        if self.scores is not None:
            scores = self.scores(z).float()
            for task in self.tasks:
                width = DIRECTIONS if task == "sprel" else 1
                own, scores = scores[:, :width], scores[:, width:]
                target = self._moved(getattr(self, f"{task}_target"), places, batch)
                part, metric = (
                    _direction_loss(own, target) if task == "sprel" else _squared(own[:, 0], target)
                )
                loss = loss + part
                metrics[f"{task}_top1" if task == "sprel" else f"{task}_mse"] = metric
        if self.position is not None:
            logits = self.position(z).float()
            target = self.get_buffer("place").expand(batch, count) if places is None else places
            chosen = logits.gather(-1, target[..., None])[..., 0]
            loss = loss + F.cross_entropy(logits.flatten(0, 1), target.flatten())
            metrics["abspos_top1"] = _share_right(logits, chosen, -1)
        return loss, {"relvit_loss": loss.detach(), **metrics}

    def relations(
        self, grids: list[Tensor], row: float, column: float
    ) -> tuple[tuple[int, int], list[Relation]]:
        """Return what is predicted of each patch and one, see `relations.ShowsRelations`.

        Directions are the likeliest of the nine; of AbsPos, each patch's own row and column.
        """
        tokens = self._pooled(grids[-1])
        height, columns = tokens.shape[1:3]
        shape = (height, columns)
        at = patch_at(row, column, height, columns)
        one = at[0] * columns + at[1]
        z = tokens.flatten(1, 2)
        found = []
        if self.scores is not None:
            # The scores of each patch i with that one, j: [B, scores, N].
            scores = self.scores(z).float()[..., one]
            for task in self.tasks:
                width = DIRECTIONS if task == "sprel" else 1
                own, scores = scores[:, :width], scores[:, width:]
                predicted = own.argmax(1).float() if task == "sprel" else own[:, 0]
                true = self.get_buffer(f"{task}_target")[:, one].float()
                found.append(
                    Relation(NAMES[task], predicted.unflatten(1, shape), true.unflatten(0, shape))
                )
        if self.position is not None:
            place, own = self.position(z).argmax(-1), self.get_buffer("place")
            for name, predicted, true in (
                ("row", place // columns, own // columns),
                ("column", place % columns, own % columns),
            ):
                found.append(
                    Relation(
                        name,
                        predicted.float().unflatten(1, shape),
                        true.float().unflatten(0, shape),
                    )
                )
        return at, found

    def _pooled(self, tokens: Tensor) -> Tensor:
        if not self.is_pooled:
            return tokens
        image = tokens.permute(0, 3, 1, 2)
        return F.avg_pool2d(image, 3, stride=2, padding=1, count_include_pad=False).permute(
            0, 2, 3, 1
        )

    @staticmethod
    def _moved(target: Tensor, places: Tensor | None, batch: int) -> Tensor:
        """Return [B, N, N] of targets between the tokens as they stand.

        Rows and columns follow the shuffling.
        """
        if places is None:
            return target.expand(batch, -1, -1)
        return target[places[:, :, None], places[:, None, :]]


def _direction_loss(scores: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Return cross-entropy and accuracy in percent: scores [B, 9, N, N], target [B, N, N]."""
    # Gathered by hand: torch's own cross-entropy has no deterministic kernel for this shape on a
    # GPU.
    logs = scores.log_softmax(1)
    chosen = logs.gather(1, target[:, None])[:, 0]
    return -chosen.mean(), _share_right(logs, chosen, 1)


def _share_right(logs: Tensor, chosen: Tensor, dim: int) -> Tensor:
    """Return how many percent of the chosen scores are the highest.

    Far faster than to ask which one is.
    """
    return 100.0 * (chosen.detach() >= logs.detach().amax(dim)).float().mean()


def _squared(scores: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    loss = (scores - target).square().mean()
    return loss, loss.detach()


class FullRank(nn.Module):
    """Scores with a D×D matrix each: tokens [B, N, D] -> [B, scores, N, N]."""

    def __init__(self, scores: int, width: int) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.empty(scores, width, width))
        nn.init.trunc_normal_(self.matrix, std=0.02)

    def forward(self, z: Tensor) -> Tensor:
        count, width = len(self.matrix), z.shape[-1]
        # One product for all scores: [B, N, C, D] against [B, N, D].
        left = (z @ self.matrix.permute(1, 0, 2).flatten(1)).unflatten(-1, (count, width))
        return torch.einsum("bicd,bjd->bcij", left, z) / math.sqrt(width)


class LowRank(nn.Module):
    """Scores as products of queries and keys, each of its own width.

    Tokens [B, N, D] -> [B, scores, N, N].
    """

    def __init__(self, widths: list[int], width: int) -> None:
        super().__init__()
        self.widths = widths
        starts = [
            place for place, own in enumerate(widths) if place == 0 or own != widths[place - 1]
        ]
        self._alike = [
            (start, end - start)
            for start, end in zip(starts, [*starts[1:], len(widths)], strict=True)
        ]
        # Runs of scores of one width: (first, how many).
        self.queries = nn.Linear(width, sum(widths), bias=False)
        self.keys = nn.Linear(width, sum(widths), bias=False)
        for layer in (self.queries, self.keys):
            nn.init.trunc_normal_(layer.weight, std=0.02)

    def forward(self, z: Tensor) -> Tensor:
        queries, keys = (layer(z).split(self.widths, dim=-1) for layer in (self.queries, self.keys))
        found = []
        for start, count in self._alike:
            # Those of one width in one product: [B, count, N, width] each.
            q, k = (torch.stack(part[start : start + count], dim=1) for part in (queries, keys))
            found.append(q @ k.transpose(2, 3) / math.sqrt(q.shape[-1]))
        return torch.cat(found, dim=1) if len(found) > 1 else found[0]


def _scores(tasks: Sequence[str], width: int, rank: str) -> nn.Module:
    counts = [DIRECTIONS if task == "sprel" else 1 for task in tasks]
    if rank == "full":
        return FullRank(sum(counts), width)
    widths = [max(1, width // DIRECTIONS) if task == "sprel" else width for task in tasks]
    return LowRank(
        [own for own, count in zip(widths, counts, strict=True) for _ in range(count)], width
    )


def _cells(height: int, columns: int) -> tuple[Tensor, Tensor]:
    return torch.arange(height).repeat_interleave(columns), torch.arange(columns).repeat(height)


def directions(height: int, columns: int) -> Tensor:
    """Return [N, N] int64: 3·(sign(row_i - row_j) + 1) + (sign(column_i - column_j) + 1)."""
    rows, cols = _cells(height, columns)
    vertical = torch.sign(rows[:, None] - rows[None, :]) + 1
    horizontal = torch.sign(cols[:, None] - cols[None, :]) + 1
    return 3 * vertical + horizontal


def distances(height: int, columns: int) -> Tensor:
    """Return [N, N] fp32.

    Euclidean distances of the patches' cells, -1 for none to 1 for the longest (eq. 6).
    """
    places = torch.stack(_cells(height, columns), 1).double()
    found = (places[:, None] - places[None]).square().sum(-1).sqrt()
    return (2 * found / found.max() - 1).float()


def angles(height: int, columns: int) -> Tensor:
    """Return [N, N] fp32.

    Angles between the patches' places as vectors, from -1 to 1 for the widest (eq. 7).

    The vectors start at a point half a side outside the first cell; shift and floor are the
    published code's. In double precision, as the arc cosine near 1 loses half of the digits.
    """
    rows, cols = _cells(height, columns)
    places = torch.stack([cols + columns / 2, rows + height / 2], 1).double()
    norms = places.square().sum(-1).sqrt()
    found = ((places @ places.T) / (norms[:, None] * norms[None] + ANGLE_FLOOR)).clamp(-1, 1).acos()
    found.fill_diagonal_(0)
    return (2 * found / found.max() - 1).float()
