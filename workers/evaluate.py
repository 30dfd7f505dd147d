"""Score a model on a split: every example exactly once, over all ranks."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..jobs.errors import VtjobsError
from .data import EvalSource
from .dist import Group
from .patches import PatchWork
from .randomness import Streams


class Diverged(VtjobsError):
    """The loss is no longer a finite number."""


@torch.no_grad()
def evaluate(
    model: nn.Module,
    source: EvalSource,
    group: Group,
    numerics: Any,
    *,
    keep_going: Callable[[], bool] = lambda: True,
) -> dict[str, float] | None:
    """Return top1 and top5 in percent, loss (mean cross-entropy) and n; None where the ranks agreed to stop.

    Evaluation draws no random numbers.
    """
    training = model.training
    model.eval()
    sums = torch.zeros(4, dtype=torch.float64)
    classes = source.classes
    wanted = min(5, classes)
    complete = True
    for batch in source.batches():
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


@torch.no_grad()
def evaluate_head(
    score: Callable[[Tensor, int], dict[str, Tensor]],
    model: nn.Module,
    source: EvalSource,
    group: Group,
    numerics: Any,
    *,
    keep_going: Callable[[], bool] = lambda: True,
) -> dict[str, float] | None:
    """Return the means over a split of what `score` says of a batch, and n; None where the ranks agreed to stop.

    Args:
        score: given images and the index of the first one, means over them; its draws follow from the index alone.
        model: put into evaluation mode meanwhile.
        source: the split.
        group: the ranks.
        numerics: autocast.
        keep_going: whether to go on, asked as often on every rank.
    """
    training = model.training
    model.eval()
    sums: dict[str, float] = {}
    seen, complete = 0, True
    for start, batch in enumerate(source.batches()):
        if batch is not None:
            images, _ = batch
            with numerics.autocast():
                found = score(images, start * group.world_size + group.rank)
            seen += len(images)
            for name, value in found.items():
                sums[name] = sums.get(name, 0.0) + float(value) * len(images)
        if not keep_going():
            complete = False
            break
    model.train(training)
    if not complete:
        return None
    return _over_ranks(sums, seen, group)


def _over_ranks(sums: dict[str, float], seen: int, group: Group) -> dict[str, float]:
    # A rank without a batch knows no names: it learns them from the first one, which always has one.
    names = group.share(sorted(sums))
    total = group.sum(torch.tensor([float(seen), *(sums.get(name, 0.0) for name in names)], dtype=torch.float64))
    count, *values = total.tolist()
    return {**{name: value / count for name, value in zip(names, values, strict=True)}, "n": count}


class Examiner:
    """Scores what is trained: the classifier (and its moving average), or the head where there is no classifier."""

    def __init__(
        self, trainee: Any, ema: Any, source: EvalSource, group: Group, numerics: Any, patches: PatchWork | None,
        streams: Streams,
    ) -> None:  # fmt: skip
        self.trainee, self.ema, self.source = trainee, ema, source
        self.group, self.numerics = group, numerics
        self.patches, self.streams = patches, streams

    def scores(self, keep_going: Callable[[], bool]) -> dict[str, float] | None:
        """Return the scores on the split, or None where the ranks agreed to stop.

        Raises:
            Diverged: the loss is no number.
        """
        found: dict[str, float] = {}
        modules = {"": self.trainee.backbone, **({"ema_": self.ema.module} if self.ema is not None else {})}
        for prefix, module in modules.items() if self.trainee.labels else [("", self.trainee)]:
            self.group.broadcast(list(module.buffers()))
            if self.trainee.labels:
                scores = evaluate(module, self.source, self.group, self.numerics, keep_going=keep_going)
            else:
                scores = evaluate_head(
                    self._head, module, self.source, self.group, self.numerics, keep_going=keep_going
                )
            if scores is None:
                return None
            if not math.isfinite(scores["loss"]):
                raise Diverged(f"the test loss is {scores['loss']}")
            found |= {f"{prefix}{name}": value for name, value in scores.items()}
        return found

    def _head(self, images: Tensor, start: int) -> dict[str, Tensor]:
        if self.patches is not None:
            images = self.patches.evaluate(images, self.streams.generator("augment", "evaluation", start))
        _, loss, metrics = self.trainee(images, self.streams.generator("pair", "evaluation", start))
        return {"loss": loss, **metrics}
