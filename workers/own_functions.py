"""A lab's own loss, transform and metrics."""

import math
from collections.abc import Callable, Iterable
from typing import Any

from torch import Tensor
from torch.nn import functional as F

from ..jobs.run.settings import OwnFunction
from .own_parts import OwnPartError, load


def own_loss(given: OwnFunction, smoothing: float) -> Callable[[Tensor, Tensor], Tensor]:
    """Return a lab's own loss as training takes it: a sum over the images.

    Its function gets logits, [B, classes] float32, and targets, [B, classes] float32 that sum to 1:
    smoothed, and mixed where the recipe mixes images. It returns a loss for each image, [B].

    Args:
        given: the function.
        smoothing: of targets that are still numbers of classes, [B] int64.
    """
    function = load("loss", given.name, given.source)

    def summed(logits: Tensor, targets: Tensor) -> Tensor:
        if targets.ndim == 1:
            classes = logits.shape[1]
            targets = F.one_hot(targets, classes) * (1.0 - smoothing) + smoothing / classes
        losses = function(logits, targets.to(logits.dtype), **given.args)
        if not isinstance(losses, Tensor) or losses.shape != logits.shape[:1]:
            shape = tuple(losses.shape) if isinstance(losses, Tensor) else type(losses).__name__
            raise OwnPartError(
                f"loss {given.name}: must return a loss for each image, [{len(logits)}]; got"
                f" {shape}"
            )
        found: Tensor = losses.sum()
        return found

    return summed


def own_transform(given: OwnFunction | None) -> Callable[[Any], Any] | None:
    """Return a lab's own transform, made with its arguments: Pillow image -> Pillow image.

    Raises:
        OwnPartError: it is not callable.
    """
    if given is None:
        return None
    made: Callable[[Any], Any] = load("transform", given.name, given.source)(**given.args)
    if not callable(made):
        raise OwnPartError(f"transform {given.name}: must make something that is called")
    return made


def own_metrics(given: Iterable[OwnFunction]) -> dict[str, Callable[[Tensor, Tensor], float]]:
    """Return a lab's own metrics by name.

    Each function gets the logits, [N, classes] float32, and labels, [N] int64, of a whole set and
    returns a number, the higher the better.
    """
    return {one.name: _metric(one) for one in given}


def _metric(given: OwnFunction) -> Callable[[Tensor, Tensor], float]:
    function = load("metric", given.name, given.source)

    def scored(logits: Tensor, labels: Tensor) -> float:
        found = function(logits, labels, **given.args)
        try:
            value = float(found)
        except (TypeError, ValueError):
            value = math.nan
        if not math.isfinite(value):
            raise OwnPartError(f"metric {given.name}: must return a finite number; got {found!r}")
        return value

    return scored
