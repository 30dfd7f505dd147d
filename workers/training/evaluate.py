"""Score a model on a split: every example exactly once, over all ranks."""

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...jobs.errors import VtjobsError
from ..data.batches import EVAL_BATCH, EvalSource
from ..data.mask_pipeline import MaskSource
from ..data.object_pipeline import ObjectSource
from ..data.patches import PatchWork
from ..models.depth import NoBlocks, depth
from ..randomness import Streams
from .compiled import compiled
from .detection import evaluate_objects
from .group import Group
from .masks import evaluate_masks

Metric = Callable[[Tensor, Tensor], float]
"""Of the logits, [N, classes] float32, and labels, [N] int64, of a whole set."""


class Diverged(VtjobsError):
    """The loss is no longer a finite number."""


class Answers:
    """What a classifier says of each image of a set; this rank's images until they are shared."""

    def __init__(self, source: EvalSource) -> None:
        # Zeros where another rank has the image: the sum over the ranks is all of them.
        self._right = torch.zeros(source.size, dtype=torch.float64)
        self._chosen = torch.zeros(source.size, dtype=torch.float64)
        self._batch_size = source.batch_size

    def add(self, chosen: Tensor, right: Tensor, number: int) -> None:
        """Take in a batch.

        Args:
            chosen: [B] int64, the most probable class of each image.
            right: [B] bool, whether it is right.
            number: of the batch, among those of all ranks.
        """
        place = slice(number * self._batch_size, number * self._batch_size + len(right))
        self._right[place] = right.double().cpu()
        self._chosen[place] = chosen.double().cpu()

    def shared(self, group: Group) -> tuple[Tensor, Tensor]:
        """Return of the whole set, the same on every rank: [N] bool whether the chosen class is
        right, and [N] int64 which it is.
        """
        return group.sum(self._right) > 0, group.sum(self._chosen).long()


def evaluate(
    model: nn.Module,
    source: EvalSource,
    group: Group,
    numerics: Any,
    *,
    keep_going: Callable[[], bool] = lambda: True,
    answers: Answers | None = None,
    forward: Callable[[Tensor], Tensor] | None = None,
    metrics: Mapping[str, Metric] = MappingProxyType({}),
) -> dict[str, float] | None:
    """Return top1 and top5 in percent, loss (mean cross-entropy), n, and a lab's own metrics.

    None where the ranks agreed to stop.

    Evaluation draws no random numbers. `answers` is given what the model says of each image of this
    rank. `forward` calls the model where it is compiled.
    """
    # A lab's own metric asks for one label an image.
    kept = _Kept(source) if metrics and not source.has_answers else None
    wanted = min(5, source.classes)
    forward = forward or model

    def score(images: Tensor, labels: Tensor, number: int) -> dict[str, Tensor]:
        with numerics.autocast():
            logits = forward(images)
        logits = logits.float()
        if source.only is not None:
            logits = logits.masked_fill(~source.only, -torch.inf)
        if kept is not None:
            kept.add(logits, labels, number)
        chosen = logits.topk(wanted, dim=1).indices
        ranked = _are_right(chosen, labels)
        if answers is not None:
            answers.add(chosen[:, 0], ranked[:, 0], number)
        return {
            "top1": 100 * ranked[:, 0].sum(),
            "loss": _loss(logits, labels),
            "top5": 100 * ranked.any(1).sum(),
        }

    found = means(score, model, source, group, keep_going=keep_going)
    if found is None:
        return None
    if source.classes <= 5:
        del found["top5"]
    if kept is not None:
        found |= kept.scores(metrics, group)
    return found


def _are_right(chosen: Tensor, labels: Tensor) -> Tensor:
    """Return whether each chosen class is right, [B, k] bool.

    Args:
        chosen: [B, k] int64.
        labels: [B] int64, or [B, classes] bool where several classes may be right.
    """
    return chosen == labels[:, None] if labels.dim() == 1 else labels.gather(1, chosen)


def _loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the cross-entropy, summed over the images.

    Where several classes are right, that of the sum of their probabilities.
    """
    if labels.dim() == 1:
        return F.cross_entropy(logits, labels, reduction="sum")
    right = logits.masked_fill(~labels, -torch.inf)
    return (logits.logsumexp(1) - right.logsumexp(1)).sum()


class _Kept:
    """The logits of a whole set, which a lab's own metrics are computed from."""

    def __init__(self, source: EvalSource) -> None:
        # Zeros where another rank has the image: the sum over the ranks is all of them.
        self._logits = torch.zeros(source.size, source.classes, dtype=torch.float64)
        self._labels = torch.zeros(source.size, dtype=torch.float64)
        self._batch_size = source.batch_size

    def add(self, logits: Tensor, labels: Tensor, number: int) -> None:
        """Take in a batch, by its number among those of all ranks."""
        place = slice(number * self._batch_size, number * self._batch_size + len(labels))
        self._logits[place] = logits.double().cpu()
        self._labels[place] = labels.double().cpu()

    def scores(self, metrics: Mapping[str, Metric], group: Group) -> dict[str, float]:
        """Return each metric of the whole set, the same on every rank."""
        logits, labels = group.sum(self._logits).float(), group.sum(self._labels).long()
        # Copies: a metric may work in place.
        return {name: metric(logits.clone(), labels.clone()) for name, metric in metrics.items()}


@torch.no_grad()
def means(
    score: Callable[[Tensor, Tensor, int], dict[str, Tensor]],
    model: nn.Module,
    source: EvalSource,
    group: Group,
    *,
    keep_going: Callable[[], bool] = lambda: True,
) -> dict[str, float] | None:
    """Return the means over a split of what `score` sums up over a batch, and n.

    None where the ranks agreed to stop.

    Args:
        score: given images, labels and the batch's number among those of all ranks: scalars, sums
            over the images.
        model: put into evaluation mode meanwhile.
        source: the split.
        group: the ranks.
        keep_going: whether to go on, asked as often on every rank.
    """
    training = model.training
    model.eval()
    names: list[str] = []
    sums = torch.zeros(0, dtype=torch.float64)
    seen, complete = 0, True
    for turn, batch in enumerate(source.batches()):
        if batch is not None:
            found = score(*batch, turn * group.world_size + group.rank)
            names = list(found)
            # One wait for the device a batch.
            values = torch.stack([value.double() for value in found.values()]).cpu()
            sums = values if not seen else sums + values
            seen += len(batch[1])
        if not keep_going():
            complete = False
            break
    model.train(training)
    if not complete:
        return None
    # A rank without a batch knows no names: it learns them from the first one, which always has
    # one.
    names = group.share(names)
    whole = torch.zeros(len(names) + 1, dtype=torch.float64)
    whole[: len(sums)], whole[-1] = sums, seen
    *totals, count = group.sum(whole).tolist()
    return {**{name: total / count for name, total in zip(names, totals, strict=True)}, "n": count}


class Examiner:
    """Scores what is trained.

    The classifier, segmenter or detector (and its moving average), or the head where there is none
    of them.
    """

    def __init__(
        self,
        trainee: Any,
        ema: Any,
        sources: Mapping[str, EvalSource | MaskSource | ObjectSource],
        group: Group,
        numerics: Any,
        patches: PatchWork | None,
        streams: Streams,
        *,
        metrics: Mapping[str, Metric] = MappingProxyType({}),
        compiles: bool = False,
        records_depth: bool = False,
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        self.beat = beat
        self.trainee, self.ema, self.sources = trainee, ema, sources
        self.metrics = metrics
        self.group, self.numerics = group, numerics
        self.patches, self.streams = patches, streams
        self.modules: dict[str, nn.Module] = {"": trainee.backbone}
        if ema is not None:
            self.modules["ema_"] = ema.module
        self.forwards: dict[str, Callable[[Tensor], Tensor]] = {}
        if compiles:
            sizes = {EVAL_BATCH}
            self.forwards = {name: compiled(one, sizes) for name, one in self.modules.items()}
        # Set -> [N] bool whether an image is classified rightly, and [N] int64 the class chosen,
        # where the last look was the final one.
        self.correct: dict[str, Tensor] = {}
        self.chosen: dict[str, Tensor] = {}
        self._records_depth = records_depth
        # Metric -> what a block added to its input, at the last look.
        self.depths: dict[str, float] = {}

    def scores(
        self, keep_going: Callable[[], bool], *, final: bool
    ) -> dict[str, dict[str, float]] | None:
        """Return set -> scores, or None where the ranks agreed to stop.

        After the final look `correct` and `chosen` are there.

        Raises:
            Diverged: the loss is no number.
        """
        self.depths = self._depths() if self._records_depth and self.group.is_primary else {}
        found = {}
        for name, source in self.sources.items():
            # Of masks and objects no image is right or wrong as a whole.
            is_kept = final and self.trainee.labels
            answers = Answers(source) if is_kept and isinstance(source, EvalSource) else None
            scores = self._of_set(name, source, keep_going, answers)
            if scores is None:
                return None
            found[name] = scores
            if answers is not None:
                self.correct[name], self.chosen[name] = answers.shared(self.group)
        return found

    def _depths(self) -> dict[str, float]:
        """Return what each block adds to its input on the first batch of the test set, by metric.

        Nothing of a backbone without such blocks.
        """
        source, model = self.sources["test"], self.trainee.backbone
        batch = next(iter(source.batches()), None) if isinstance(source, EvalSource) else None
        if batch is None:
            return {}
        images = batch[0]
        if self.patches is not None:
            images = self.patches.evaluate(
                images, self.streams.generator("augment", "evaluation", 0)
            )
        training = model.training
        model.eval()
        try:
            with self.numerics.autocast():
                found = depth(model, images)
        except NoBlocks:
            found = []
        model.train(training)
        return {
            f"depth_{part}_{one.block:02d}": value
            for one in found
            for part, value in (("mixing", one.mixing), ("mlp", one.mlp))
            if value is not None
        }

    def _of_set(
        self,
        name: str,
        source: EvalSource | MaskSource | ObjectSource,
        keep_going: Callable[[], bool],
        answers: Answers | None,
    ) -> dict[str, float] | None:
        found: dict[str, float] = {}
        labels = self.trainee.labels
        for prefix, module in self.modules.items() if labels else [("", self.trainee)]:
            self.group.broadcast(list(module.buffers()))
            if isinstance(source, MaskSource):
                scores = evaluate_masks(
                    module, source, self.group, self.numerics, keep_going=keep_going
                )
            elif isinstance(source, ObjectSource):
                scores = evaluate_objects(
                    module,
                    source,
                    self.group,
                    self.numerics,
                    keep_going=keep_going,
                    beat=self.beat,
                )
            elif labels:
                scores = evaluate(
                    module,
                    source,
                    self.group,
                    self.numerics,
                    keep_going=keep_going,
                    answers=None if prefix else answers,
                    forward=self.forwards.get(prefix),
                    metrics=self.metrics,
                )
            else:
                scores = means(self._head, module, source, self.group, keep_going=keep_going)
            if scores is None:
                return None
            # A detector has no loss where it is not trained.
            if not math.isfinite(scores.get("loss", 0.0)):
                raise Diverged(f"the {name} loss is {scores['loss']}")
            found |= {f"{prefix}{metric}": value for metric, value in scores.items()}
        return found

    def _head(self, images: Tensor, labels: Tensor, number: int) -> dict[str, Tensor]:
        """Sum up what the head says of a batch; its draws follow from the batch's number alone."""
        if self.patches is not None:
            images = self.patches.evaluate(
                images, self.streams.generator("augment", "evaluation", number)
            )
        with self.numerics.autocast():
            draws = self.trainee.draw(
                len(images), self.streams.generator("pair", "evaluation", number)
            )
            found = self.trainee(images, draws, labels=labels)
        told = {"loss": found.loss, **found.metrics}
        return {name: value * len(images) for name, value in told.items()}
