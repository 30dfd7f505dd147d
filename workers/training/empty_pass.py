"""A backward pass whose gradients are zero, for a rank that has to take part in a reduction."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

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
    generator = torch.Generator().manual_seed(0)
    shown = blank(training.trainee, training.spec, 2, generator, training.group.device)
    with frozen_statistics(training.statistics, True):
        with training.numerics.autocast():
            logits, head_loss, metrics, _ = forward(shown)
        all_logits = logits if isinstance(logits, tuple) else (logits,)
        given = [part for part in (*all_logits, head_loss) if part is not None]
        torch.stack([part.float().sum() * 0.0 for part in given]).sum().backward()
    labelled = training.objective.names if training.trainee.labels else ()
    for name in ("loss", *labelled, "examples", *metrics):
        # Every rank must hold the same sums, or they cannot be added up.
        training.sums.add(name, torch.zeros(()))
