"""The learning-rate schedule that timm lacks."""

import math
from typing import Any

import torch
from timm.scheduler.scheduler import Scheduler


class QuarterCosine(Scheduler):
    """Linear warm-up, then lr_min + (lr - lr_min)·cos(π/2 · t/T): high for long, falling late.

    The schedule of RelViT's published code; t counts from the first step, warm-up included.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        *,
        total: int,
        lr_min: float,
        warmup_t: int,
        warmup_lr_init: float,
        t_in_epochs: bool,
    ) -> None:
        super().__init__(optimizer, param_group_field="lr", t_in_epochs=t_in_epochs)
        self.total, self.lr_min = total, lr_min
        self.warmup, self.first = warmup_t, warmup_lr_init
        if warmup_t:
            self.update_groups(self._get_lr(0))

    def _get_lr(self, t: int) -> list[Any]:
        if t < self.warmup:
            return [self.first + t * (peak - self.first) / self.warmup for peak in self.base_values]
        share = math.cos(math.pi / 2 * min(1.0, t / self.total))
        return [self.lr_min + (peak - self.lr_min) * share for peak in self.base_values]
