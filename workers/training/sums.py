"""What is summed up over the steps of an epoch."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from ..own_parts import OwnPartError
from .evaluate import Diverged
from .group import Group

# What a lab's own loss is called beside the total.
OWN_LOSS = "own_loss"
# What training itself sums up over an epoch.
OWN_SUMS = frozenset(
    ("loss", "cross_entropy", "bce", OWN_LOSS, "distillation", "examples", "grad_norm")
)


class EpochSums:
    """The sums of one rank: scalars in float64 on its device."""

    def __init__(self, group: Group, *, clips: bool) -> None:
        self.group = group
        self.clips = clips
        self.values: dict[str, Tensor] = {}

    def add(self, name: str, value: Tensor) -> None:
        """Add a scalar of any type and device."""
        value = value.double().to(self.group.device)
        self.values[name] = self.values[name] + value if name in self.values else value

    def add_of_head(self, head: str, metrics: Mapping[str, Tensor], count: int) -> None:
        """Add a head's means over so many images.

        Raises:
            OwnPartError: a name is one of training's own.
        """
        for name, value in metrics.items():
            if name in OWN_SUMS:
                raise OwnPartError(f"head {head}: {name!r} is a reserved metric name")
            self.add(name, torch.as_tensor(value, device=self.group.device).detach() * count)

    def check_finite(self, epoch: int, step: int) -> None:
        """Look at the loss, which waits for the device; epoch and step count from 0.

        Raises:
            Diverged: it is not finite.
        """
        loss = self.values.get("loss")
        if loss is not None and not torch.isfinite(loss):
            raise Diverged(f"the loss is {float(loss)} at epoch {epoch + 1}, step {step + 1}")

    def clear(self) -> None:
        """Begin a new epoch."""
        self.values = {}

    def of_ranks(self) -> dict[str, Tensor]:
        """Return name -> [world size]; every rank must ask."""
        # The norm of clipped gradients is the primary's alone.
        names = sorted(set(self.values) | ({"grad_norm"} if self.clips else set()))
        table = torch.zeros(len(names), self.group.world_size, dtype=torch.float64)
        table[:, self.group.rank] = torch.stack(
            [self.values.get(name, torch.zeros(())).double().cpu() for name in names]
        )
        return dict(zip(names, self.group.sum(table), strict=True))

    def restore(self, stored: Mapping[str, Tensor]) -> None:
        """Take up the sums of a checkpoint; where the world size differs, the primary has all."""
        for name, values in stored.items():
            same = len(values) == self.group.world_size
            own = values[self.group.rank] if same else values.sum() * self.group.is_primary
            self.values[name] = own.to(self.group.device)


def means_of(sums: Mapping[str, Tensor], *, steps: int) -> dict[str, float]:
    """Return the metrics of an epoch: means over its images, and the mean norm of a gradient.

    Args:
        sums: name -> [world size].
        steps: of the epoch.
    """
    added = {name: float(values.sum()) for name, values in sums.items()}
    examples = added.pop("examples")
    norm = added.pop("grad_norm", None)
    metrics = {f"train_{name}": value / examples for name, value in added.items()}
    if norm is not None and math.isfinite(norm):
        metrics["grad_norm"] = norm / steps
    return metrics
