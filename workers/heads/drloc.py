"""Dense relative localization (Liu et al. 2021).

Where two tokens lie to each other, from their embeddings alone.
"""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...jobs.documents import Document, from_plain
from ..models.tokens import Grid
from ..transfer import send
from .relations import Relation, patch_at

# What it predicts of two patches.
NAMES = ("rows apart", "columns apart")
# The published code adds it to the variance; a saturated softmax has none.
VARIANCE_FLOOR = 1e-8
# Of its classification variants, for every backbone but Swin: twice 14 less 1, on a 7×7 grid too.
FIXED_CLASSES = 27


def build(grids: list[Grid], params: dict[str, Any]) -> nn.Module:
    """Make the head; see `base.build_head`."""
    return DRLoc(grids, from_plain(params, Parameters))


class Parameters(Document, frozen=True, kw_only=True):
    """What the head reads of its parameters, which `jobs/grid/heads.DRLoc` explains."""

    loss: Literal["l1", "signed", "ce", "reg"]
    blocks: Literal["last", "all", "stages"]
    pairs: int
    width: int
    grid: int
    pooling: Literal["window", "overlapping", "none"]
    offsets: Literal["relative", "cells", "shifted"]
    classes: Literal["wide", "tight", "fixed"]
    extra_layer: bool
    alpha: float
    init: Literal["truncated_normal", "torch"]


class DRLoc(nn.Module):
    """For m random token pairs per image an MLP tells their offset from the two concatenated
    embeddings.

    `l1` is eq. 2 (absolute offsets, eq. 1), `signed` eq. 3, `ce` eq. 5, `reg` eq. 6, each averaged
    over images and pairs; `l1` and `signed` over the two coordinates as well (pseudo-code, fig. 2),
    `ce` and `reg` summed over them. With several grids the losses are summed, each with an MLP of
    its own (eq. 7).
    """

    def __init__(self, grids: list[Grid], params: Parameters) -> None:
        super().__init__()
        ends_merged = params.blocks == "stages"
        self.locate = nn.ModuleList(
            Localization(grid, params, is_merged=ends_merged and grid is not grids[-1])
            for grid in grids
        )
        self.name = f"drloc_{params.loss}"

    def draw(self, batch: int, generator: torch.Generator) -> list[Tensor]:
        """Return the pairs of each grid, [2, batch, m] int64: places of tokens, row by row."""
        return [locate.draw(batch, generator) for locate in self.locate]

    def split(self, draws: list[Tensor], sizes: Sequence[int]) -> list[list[Tensor]]:
        """Return what `draw` returned for a share, cut into its parts.

        Args:
            draws: of each grid, [2, batch, m] int64.
            sizes: images of each part; their sum is the batch.
        """
        parts = [pairs.split(list(sizes), dim=1) for pairs in draws]
        # As a compiled step has them without a cut.
        return [[pairs.contiguous() for pairs in part] for part in zip(*parts, strict=True)]

    def forward(
        self,
        grids: list[Tensor],
        draws: torch.Generator | list[Tensor],
        places: Tensor | None = None,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        if isinstance(draws, torch.Generator):
            draws = self.draw(len(grids[0]), draws)
        losses = [
            locate(tokens, pairs)
            for locate, tokens, pairs in zip(self.locate, grids, draws, strict=True)
        ]
        loss = torch.stack(losses).sum()
        return loss, {self.name: loss.detach()}

    def relations(
        self, grids: list[Tensor], row: float, column: float
    ) -> tuple[tuple[int, int], list[Relation]]:
        """Return the offsets that the last grid's MLP predicts, see `relations.ShowsRelations`."""
        last: Any = self.locate[-1]
        found: tuple[tuple[int, int], list[Relation]] = last.relations(grids[-1], row, column)
        return found


class Localization(nn.Module):
    """The localization MLP on one grid (table 15): 2D -> hidden, ReLU, hidden, ReLU, outputs.

    Args:
        grid: its shape.
        params: of the head.
        is_merged: whether it is a Swin's stage after merging. The published program counts the
            classes of such a stage by its grid before: 4k - 1.
    """

    def __init__(self, grid: Grid, params: Parameters, *, is_merged: bool = False) -> None:
        super().__init__()
        self.counts_before_merging = is_merged and params.classes == "tight"
        self.kind, self.pairs = params.loss, params.pairs
        self.offsets, self.classes = params.offsets, params.classes
        self.alpha = params.alpha
        self.pooling, self.side = params.pooling, params.grid
        if params.blocks != "last":
            # Eq. 7 takes each block's own grid.
            self.pooling = "none"
        hidden = params.width
        self.first = nn.Linear(2 * grid.width, hidden)
        self.second = nn.Linear(hidden, hidden)
        self.extra = (
            nn.Linear(hidden, hidden) if params.extra_layer and self.kind in ("ce", "reg") else None
        )
        height, columns = self._pooled(
            torch.empty(1, grid.height, grid.columns, 1, device="meta")
        ).shape[1:3]
        self.cells = height * columns
        outputs = [2]
        if self.kind in ("ce", "reg"):
            outputs = [self._count(height), self._count(columns)]
        self.out = nn.ModuleList(nn.Linear(hidden, count) for count in outputs)
        if params.init == "truncated_normal":
            self.apply(_truncated_normal)

    def draw(self, batch: int, generator: torch.Generator) -> Tensor:
        """Return pairs of places of the pooled grid, [2, batch, m] int64.

        Two independent uniform draws with replacement; a pair may be one token twice.
        """
        pairs = torch.randint(self.cells, (2, batch, self.pairs), generator=generator)
        return send(pairs, self.second.weight.device)

    def forward(self, tokens: Tensor, places: Tensor) -> Tensor:
        """Return the loss of this grid, a scalar.

        Args:
            tokens: [B, h, w, D].
            places: what `draw` returned.
        """
        tokens = self._pooled(tokens)
        height, columns = tokens.shape[1:3]
        rows, cols = places // columns, places % columns
        down, right = rows[0] - rows[1], cols[0] - cols[1]
        predicted = [layer(self._embedded(tokens, places)).float() for layer in self.out]
        if self.kind in ("l1", "signed"):
            offset = torch.stack(self._targets(down, right, height, columns), dim=-1)
            return F.l1_loss(predicted[0], offset)
        loss = self._cross_entropy if self.kind == "ce" else self._regression
        return loss(predicted[0], down, height) + loss(predicted[1], right, columns)

    def _targets(
        self, down: Tensor, right: Tensor, height: int, columns: int
    ) -> tuple[Tensor, Tensor]:
        """Return what `l1` and `signed` are to predict of offsets in cells."""
        sides = (height, columns) if self.offsets == "relative" else (1, 1)
        if self.offsets == "shifted":
            down, right = down + height - 1, right + columns - 1
        down, right = down / sides[0], right / sides[1]
        return (down, right) if self.kind == "signed" else (down.abs(), right.abs())

    def relations(
        self, tokens: Tensor, row: float, column: float
    ) -> tuple[tuple[int, int], list[Relation]]:
        """Return the offsets of each patch to one, as they are predicted and as they are.

        Of `ce` the likeliest class, of `reg` the mean of eq. 6, in cells.

        Args:
            tokens: [B, h, w, D].
            row: see `relations.ShowsRelations`.
            column: likewise.
        """
        tokens = self._pooled(tokens)
        batch, height, columns = tokens.shape[:3]
        at = patch_at(row, column, height, columns)
        every = torch.arange(height * columns, device=tokens.device)
        one = torch.full_like(every, at[0] * columns + at[1])
        places = torch.stack([every, one])[:, None].expand(-1, batch, -1)
        embedded = self._embedded(tokens, places)
        outputs = [layer(embedded).float() for layer in self.out]
        down, right = every // columns - at[0], every % columns - at[1]
        if self.kind in ("l1", "signed"):
            predicted, true = outputs[0].unbind(-1), self._targets(down, right, height, columns)
        else:
            sides = (height, columns)
            predicted, true = tuple(map(self._offset, outputs, sides)), (down, right)
        shape = (height, columns)
        return at, [
            Relation(name, value.float().unflatten(1, shape), target.float().unflatten(0, shape))
            for name, value, target in zip(NAMES, predicted, true, strict=True)
        ]

    def _offset(self, logits: Tensor, side: int) -> Tensor:
        """Return the offset in cells that logits [B, m, classes] stand for."""
        if self.kind == "ce":
            return logits.argmax(-1) - self._no_offset(side)
        values = torch.arange(self._count(side), device=logits.device) - self._no_offset(side)
        return (logits.softmax(-1) * values).sum(-1)

    def _embedded(self, tokens: Tensor, places: Tensor) -> Tensor:
        """Return [B, m, hidden] of pairs of tokens at `places`, [2, B, m]."""
        batch, cells = len(tokens), tokens.shape[1] * tokens.shape[2]
        flat = tokens.flatten(0, 2)
        base = torch.arange(batch, device=tokens.device)[:, None] * cells
        ends = [(base + place).flatten() for place in places]
        if cells < places.shape[-1]:
            # Fewer tokens than pairs: the first layer is applied to each token once, by halves,
            # then gathered.
            halves = self.first.weight.chunk(2, dim=1)
            one, other = (
                F.linear(flat, half).index_select(0, end)
                for half, end in zip(halves, ends, strict=True)
            )
            hidden = one + other + self.first.bias
        else:
            hidden = self.first(torch.cat([flat.index_select(0, end) for end in ends], dim=-1))
        hidden = F.relu(self.second(F.relu(hidden)))
        if self.extra is not None:
            hidden = self.extra(hidden)
        return hidden.unflatten(0, (batch, -1))

    def _count(self, side: int) -> int:
        """Return the number of classes of a coordinate; k is the side of the grid."""
        if self.counts_before_merging:
            return 4 * side - 1
        if self.classes == "fixed":
            return max(FIXED_CLASSES, 2 * side - 1)
        return 2 * side + 1 if self.classes == "wide" else 2 * side - 1

    def _no_offset(self, side: int) -> int:
        """Return the class of two tokens in one place.

        Of `fixed`, and of a stage that was merged, the last ones are never met.
        """
        is_from_below = self.classes == "fixed" or self.counts_before_merging
        return side - 1 if is_from_below else self._count(side) // 2

    def _cross_entropy(self, logits: Tensor, offset: Tensor, side: int) -> Tensor:
        """Eq. 5 for one coordinate: logits [B, m, classes], offset [B, m]."""
        target = offset + self._no_offset(side)
        return F.cross_entropy(logits.flatten(0, 1), target.flatten())

    def _regression(self, logits: Tensor, offset: Tensor, side: int) -> Tensor:
        """Eq. 6 for one coordinate."""
        values = torch.arange(self._count(side), device=logits.device, dtype=logits.dtype)
        values = values - self._no_offset(side)
        posterior = logits.softmax(-1)
        mean = (posterior * values).sum(-1)
        variance = (posterior * (values - mean[..., None]).square()).sum(-1) + VARIANCE_FLOOR
        return ((offset - mean).square() / variance + self.alpha * 0.5 * variance.log()).mean()

    def _pooled(self, tokens: Tensor) -> Tensor:
        height, columns = tokens.shape[1:3]
        if self.pooling == "none" or height <= self.side:
            return tokens
        image = tokens.permute(0, 3, 1, 2)
        if self.pooling == "overlapping":
            return F.avg_pool2d(image, 3, stride=2, padding=1, count_include_pad=False).permute(
                0, 2, 3, 1
            )
        if height % self.side or columns % self.side:
            return tokens
        return F.avg_pool2d(image, (height // self.side, columns // self.side)).permute(0, 2, 3, 1)


def _truncated_normal(layer: nn.Module) -> None:
    if isinstance(layer, nn.Linear):
        nn.init.trunc_normal_(layer.weight, std=0.02)
        nn.init.zeros_(layer.bias)
