"""Score a model on a split: every example exactly once, over all ranks."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from .data import EvalSource
from .dist import Group


@torch.no_grad()
def evaluate(
    model: nn.Module,
    source: EvalSource,
    group: Group,
    numerics: Any,
    *,
    classes: int,
    keep_going: Callable[[], bool] = lambda: True,
) -> dict[str, float] | None:
    """Return top1 and top5 in percent, loss (mean cross-entropy) and n; None where the ranks agreed to stop.

    Evaluation draws no random numbers.
    """
    training = model.training
    model.eval()
    sums = torch.zeros(4, dtype=torch.float64)
    wanted = min(5, classes)
    complete = True
    for batch in source.batches(group.rank, group.world_size):
        if batch is not None:
            images, labels = batch
            with numerics.autocast():
                logits = model(images)
            logits = logits.float()
            ranked = logits.topk(wanted, dim=1).indices == labels[:, None]
            loss = F.cross_entropy(logits, labels, reduction="sum")
            counts = (ranked[:, 0].sum(), ranked.sum(), loss, torch.tensor(len(labels), device=loss.device))
            sums += torch.stack([value.double() for value in counts]).cpu()
        if not keep_going():
            complete = False
            break
    model.train(training)
    if not complete:
        return None
    top1, top5, loss_sum, count = group.sum(sums).tolist()
    scores = {"top1": 100 * top1 / count, "loss": loss_sum / count, "n": count}
    return scores | ({"top5": 100 * top5 / count} if classes > 5 else {})
