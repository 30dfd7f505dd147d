"""Learning-rate schedules: timm's, and the one that it lacks."""

import math
from typing import Any

import torch
from timm.scheduler import (
    CosineLRScheduler,
    MultiStepLRScheduler,
    PolyLRScheduler,
    StepLRScheduler,
)
from timm.scheduler.scheduler import Scheduler

from ...jobs.run.settings import RecipeSettings


def make_schedule(
    optimizer: torch.optim.Optimizer, recipe: RecipeSettings, steps_per_epoch: int
) -> Scheduler:
    """Return timm's scheduler, to be set to `schedule_position` before each step.

    A function of the position, so it has no state to save.
    """
    units = steps_per_epoch if recipe.schedule_unit == "step" else 1
    total = schedule_epochs(recipe) * units
    shared: dict[str, Any] = {
        "warmup_t": round(recipe.warmup_epochs * units),
        "warmup_lr_init": recipe.warmup_lr,
        "t_in_epochs": False,
    }
    if recipe.schedule == "cosine":
        return CosineLRScheduler(optimizer, t_initial=total, lr_min=recipe.min_lr, **shared)
    if recipe.schedule == "quarter_cosine":
        return QuarterCosine(optimizer, total=total, lr_min=recipe.min_lr, **shared)
    # Counted from the start of training, as those of the cosine schedules are.
    shared["warmup_prefix"] = False
    if recipe.schedule == "linear":
        return PolyLRScheduler(
            optimizer, t_initial=total, power=1.0, lr_min=recipe.min_lr, **shared
        )
    if recipe.schedule == "constant":
        return StepLRScheduler(optimizer, decay_t=total + 1, decay_rate=1.0, **shared)
    return _in_steps(optimizer, recipe, units, shared)


def _in_steps(
    optimizer: torch.optim.Optimizer, recipe: RecipeSettings, units: int, shared: dict[str, Any]
) -> Scheduler:
    """Return the schedule whose rate falls after some epochs.

    Args:
        optimizer: of the run.
        recipe: of the run.
        units: of the schedule, in an epoch.
        shared: arguments of all timm's schedulers.
    """
    rate = 0.1 if recipe.decay_rate is None else recipe.decay_rate
    falls = recipe.decay_epochs
    if isinstance(falls, tuple):
        # One later: timm lets the rate fall one before these.
        milestones = [epoch * units + 1 for epoch in falls]
        return MultiStepLRScheduler(optimizer, decay_t=milestones, decay_rate=rate, **shared)
    return StepLRScheduler(optimizer, decay_t=falls * units, decay_rate=rate, **shared)


def schedule_position(recipe: RecipeSettings, *, epoch: int, step: int, steps: int) -> int:
    """Return where in the schedule a step stands, in the schedule's units.

    Args:
        recipe: of the run.
        epoch: counted from 0.
        step: in the epoch, counted from 0.
        steps: of an epoch.
    """
    position = epoch if recipe.schedule_unit == "epoch" else epoch * steps + step
    return max(0, position - recipe.schedule_lag)


def schedule_epochs(recipe: RecipeSettings) -> int:
    """Return the epochs that the schedules are made for; training may end before."""
    return recipe.schedule_epochs or recipe.epochs


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
