"""The loss of a part of a batch.

The classifier's, a teacher's and a head's, as sums over the images.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from ...jobs.run.settings import CellSettings, RecipeSettings
from ..own_functions import own_loss
from .detection import DetectionObjective
from .distill import Distillation
from .masks import MaskObjective
from .sums import OWN_LOSS


class Objective:
    """What an optimizer step lowers.

    What it sums up beside is shown by name, each a sum over the images.

    Args:
        recipe: of the run.
        mixed: whether the targets are those of Mixup or CutMix, [B, classes].
        distillation: what a teacher adds, or None.
    """

    def __init__(
        self, recipe: RecipeSettings, *, mixed: bool, distillation: Distillation | None
    ) -> None:
        # Of the parts that it reports.
        loss = OWN_LOSS if recipe.own_loss is not None else recipe.loss
        self.names = (loss, *(("distillation",) if distillation else ()))
        self._classify = _criterion(recipe, mixed)
        self._distillation = distillation

    def __call__(
        self,
        images: Tensor,
        logits: Tensor | tuple[Tensor, Tensor] | None,
        targets: Tensor,
        head_loss: Tensor | None,
        weight: float,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the total and its parts, scalars.

        Args:
            images: [B, C, S, S], as the student saw them.
            logits: [B, classes], or those of the classifier and of the distillation token; None
                without a classifier.
            targets: [B] int64 or [B, classes].
            head_loss: mean over the images; None where there is no head.
            weight: of the head's loss, or of the teacher's.
        """
        total = torch.zeros((), device=images.device)
        parts: dict[str, Tensor] = {}
        if logits is not None:
            own, to_teacher = logits if isinstance(logits, tuple) else (logits, logits)
            parts[self.names[0]] = total = self._classify(own.float(), targets)
            if self._distillation is not None:
                parts[self.names[1]] = taught = self._distillation(images, to_teacher.float())
                total = (1.0 - weight) * total + weight * taught
        if head_loss is not None:
            total = total + weight * head_loss.float() * len(targets)
        return total, {name: value.detach() for name, value in parts.items()}


def make_objective(
    spec: CellSettings, *, mixed: bool, distillation: Distillation | None
) -> Objective | MaskObjective | DetectionObjective:
    """Return what a run lowers.

    Args:
        spec: of the run.
        mixed: whether the targets are those of Mixup or CutMix.
        distillation: what a teacher adds, or None.
    """
    if spec.dataset.has_masks:
        return MaskObjective()
    if spec.dataset.has_objects:
        return DetectionObjective()
    return Objective(spec.recipe, mixed=mixed, distillation=distillation)


def _criterion(recipe: RecipeSettings, mixed: bool) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the classifier's loss, a sum over the images.

    Mixup has smoothed its targets already.
    """
    smoothing = 0.0 if mixed else recipe.label_smoothing
    if recipe.own_loss is not None:
        return own_loss(recipe.own_loss, smoothing)
    if recipe.loss == "cross_entropy":
        return lambda logits, targets: F.cross_entropy(
            logits, targets, reduction="sum", label_smoothing=smoothing
        )
    from timm.loss import BinaryCrossEntropy

    made = BinaryCrossEntropy(
        smoothing=smoothing, target_threshold=recipe.bce_threshold, reduction="none"
    )
    # A mean over the classes, as in the recipes that use it.
    return lambda logits, targets: made(logits, targets).mean(1).sum()
