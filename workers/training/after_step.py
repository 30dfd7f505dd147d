"""What a head on features is told after each optimizer step."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ..heads.features import FeatureHead
from .group import Group


class AfterStep:
    """Collects what a head keeps of the images of a step, and gives it that of all ranks.

    So the head's memory is the same on every rank, and at any number of them.

    Args:
        head: of the run; any other than one on features is told nothing.
        backbone: that is trained.
        group: the ranks.
    """

    def __init__(self, head: nn.Module | None, backbone: nn.Module, group: Group) -> None:
        self._head = head if isinstance(head, FeatureHead) else None
        self._backbone = backbone
        self._group = group
        self._kept: list[Tensor] = []

    def add(self, kept: Tensor | None) -> None:
        """Take what was kept of the next images of this rank, [B, D] float32, or nothing."""
        if kept is not None:
            self._kept.append(kept)

    def tell(self, shares: Sequence[Tensor]) -> None:
        """Tell the head that the step is done; every rank must call.

        Args:
            shares: the indices of the images, of each virtual rank.
        """
        if self._head is None:
            return
        kept = None
        if (width := self._head.kept_width) is not None:
            mine = [torch.zeros(0, width, device=self._group.device), *self._kept]
            kept = self._group.gather(torch.cat(mine), self._sizes(shares))
        self._kept.clear()
        self._head.after_step(self._backbone, torch.cat(list(shares)).to(self._group.device), kept)

    def _sizes(self, shares: Sequence[Tensor]) -> list[int]:
        """Return how many images each rank has of the step."""
        each = len(shares) // self._group.world_size
        starts = range(0, len(shares), each)
        return [sum(len(share) for share in shares[start : start + each]) for start in starts]
