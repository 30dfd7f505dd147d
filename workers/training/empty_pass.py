"""A backward pass whose gradients are zero, for a rank that has to take part in a reduction."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .passes import Passed, Shown
from .trainee import blank, frozen_statistics

if TYPE_CHECKING:
    from .loop import Training


def backward_nothing(training: "Training", forward: Callable[[Shown], Passed]) -> None:
    """Take part in a reduction of DDP with gradients of zero, and in that of the epoch's sums.

    Args:
        training: of this rank.
        forward: passes images through its trainee in DDP.
    """
    with frozen_statistics(training.statistics, True):
        with training.numerics.autocast():
            passed = forward(blanks(training))
        loss_of_nothing(passed).backward()
    count_nothing(training, passed)


def blanks(training: "Training") -> Shown:
    """Return two empty images, and what else a forward pass gets."""
    generator = torch.Generator().manual_seed(0)
    return blank(training.trainee, training.spec, 2, generator, training.group.device)


def loss_of_nothing(passed: Passed) -> Tensor:
    """Return a zero that everything which a forward pass returned is part of."""
    all_logits = passed.logits if isinstance(passed.logits, tuple) else (passed.logits,)
    given = [part for part in (*all_logits, passed.loss) if part is not None]
    return torch.stack([part.float().sum() * 0.0 for part in given]).sum()


def count_nothing(training: "Training", passed: Passed) -> None:
    """Add zeros to the epoch's sums: every rank must hold the same, or they cannot be added up."""
    labelled = training.objective.names if training.trainee.labels else ()
    for name in ("loss", *labelled, "examples", *passed.metrics):
        training.sums.add(name, torch.zeros(()))
