"""Distillation from a teacher that is not trained.

Touvron et al. 2021 (DeiT), section 4; the thesis, section 3.3.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...jobs.run.settings import DistillParameters, ModelShape
from ...jobs.run.spec import RunSpec
from ..checkpoints.weights import load_weights
from ..errors import BackboneError
from ..models.backbones import build
from .plan import TrainingPlan


class Distillation:
    """The loss of a student against its teacher on the same images, mixed ones too.

    `hard` takes the teacher's decision for the label; `soft` is τ²·KL(teacher at τ ‖ student at τ),
    a mean over images or, as in the published code, over images and classes.
    """

    def __init__(self, params: DistillParameters, teacher: nn.Module, numerics: Any) -> None:
        self.params, self.numerics = params, numerics
        self.teacher = teacher.eval().requires_grad_(False)

    def __call__(self, images: Tensor, logits: Tensor) -> Tensor:
        """Return the loss, a sum over the images.

        Args:
            images: [B, C, S, S], normalised.
            logits: [B, classes] float32 of the student, those of its distillation token where it
                has one.
        """
        with torch.no_grad(), self.numerics.autocast():
            taught = self.teacher(images).float()
        if self.params.kind == "hard":
            return F.cross_entropy(logits, taught.argmax(1), reduction="sum")
        tau = self.params.temperature
        divergence = F.kl_div(
            (logits / tau).log_softmax(1),
            (taught / tau).log_softmax(1),
            reduction="sum",
            log_target=True,
        )
        share = logits.shape[1] if self.params.mean_over == "elements" else 1
        return divergence * tau**2 / share


def make_distillation(
    spec: RunSpec, plan: TrainingPlan, device: torch.device, numerics: Any
) -> Distillation | None:
    """Return what a teacher adds to a run's loss, or None where it has no teacher.

    The teacher is timm's model with weights from a file, or the run of an earlier stage; it works
    at the student's image size and precision.
    """
    params = spec.head.distillation
    if params is None or params.weight == 0:
        return None
    shape = spec.shape
    if isinstance(params.teacher, str):
        assert plan.parent is not None and plan.init is not None
        backbone, head, weights = plan.parent.backbone, plan.parent.head, plan.init
        classifier = plan.parent.recipe.classifier
    else:
        assert params.teacher.weights is not None, "a teacher has weights"
        path = plan.paths[params.teacher.weights.fingerprint]
        backbone, head, weights = params.teacher, None, Path(path)
        classifier = "linear"
    # In evaluation there is no dropout; another image size gets its positions from those it was
    # trained with.
    plain = ModelShape(
        channels=shape.channels,
        classes=shape.classes,
        image_size=shape.image_size,
        classifier=classifier,
    )
    model = build(backbone, plain, head)
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    left = sorted(trained & set(load_weights(model, weights)))
    if left:
        raise BackboneError(f"teacher {backbone.model}: the weights lack {', '.join(left[:3])}")
    return Distillation(params, model.to(device), numerics)
