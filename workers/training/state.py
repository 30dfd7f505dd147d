"""What a checkpoint has of training beside weights, and how training goes on from it."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from ..checkpoints import checkpoint

if TYPE_CHECKING:
    from .loop import Training


def publish(training: "Training", sums: dict[str, Tensor]) -> int:
    """Write a checkpoint of where training stands, and return its size in bytes.

    Args:
        training: stands between two steps.
        sums: the epoch's sums so far, of every rank.
    """
    _, size = checkpoint.save(
        training.plan.folder,
        run_id=training.plan.run_id,
        epoch=training.epoch,
        step=training.global_step,
        model=training.trainee.backbone.state_dict(),
        ema=training.ema.module.state_dict() if training.ema is not None else None,
        state=state_of(training, sums),
        origin=training.plan.origin,
        correct=training.examiner.correct,
        chosen=training.examiner.chosen,
    )
    return size


def state_of(training: "Training", sums: dict[str, Tensor]) -> dict[str, Any]:
    """Return what the next step depends on.

    Args:
        training: stands between two steps.
        sums: the epoch's sums so far, of every rank.
    """
    head = training.trainee.head
    return {
        "epoch": training.epoch,
        "step": training.step,
        "head": None if head is None else head.state_dict(),
        "optimizer": training.optimizer.state_dict(),
        "scaler": training.numerics.scaler.state_dict(),
        "sums": sums,
    }


def restore(training: "Training", path: Path) -> None:
    """Have training go on from a verified checkpoint."""
    model, ema, state = checkpoint.load(path)
    training.trainee.backbone.load_state_dict(model)
    if training.trainee.head is not None:
        training.trainee.head.load_state_dict(state["head"])
    training.optimizer.load_state_dict(state["optimizer"])
    training.numerics.scaler.load_state_dict(state["scaler"])
    if training.ema is not None:
        training.ema.module.load_state_dict(ema)
    training.epoch, training.step = int(state["epoch"]), int(state["step"])
    training.sums.restore(state["sums"])
