"""Students of a teacher, models with a distillation token (DeiT, Touvron et al. 2021, sec. 4)."""

import math
from typing import Any

import torch
from timm.models.deit import VisionTransformerDistilled
from torch import Tensor, nn

from ...jobs.run.settings import DistillParameters, Token
from ..errors import BackboneError


class LateFusion(VisionTransformerDistilled):
    """A model with a distillation token that adds up the two softmax outputs, as the paper does at
    test time.

    timm, like the published code, takes the mean of the two logits.
    """

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Any:
        """Return both logits in training.

        Elsewhere the log of the mean of both softmax outputs, [B, classes].
        """
        if pre_logits or self.training:
            return super().forward_head(x, pre_logits)
        both = torch.stack([self.head(x[:, 0]), self.head_dist(x[:, 1])]).float()
        return both.log_softmax(2).logsumexp(0) - math.log(2)


class ByOneToken(VisionTransformerDistilled):
    """A model with a distillation token that answers by one of its two classifiers alone."""

    token: Token

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Any:
        """Return the logits of one token, [B, classes]."""
        if pre_logits:
            return super().forward_head(x, pre_logits)
        return self.head(x[:, 0]) if self.token == "class" else self.head_dist(x[:, 1])


def answer_by(model: nn.Module, token: Token) -> None:
    """Let a model with a distillation token answer by one of its two classifiers alone.

    Raises:
        BackboneError: it has no such token.
    """
    if not isinstance(model, VisionTransformerDistilled):
        raise BackboneError(f"backbone {type(model).__name__} has no distillation token")
    model.__class__ = ByOneToken
    model.token = token


def prepare_student(model: nn.Module, params: DistillParameters) -> None:
    """Let a model with a distillation token give both logits in training, and join them elsewhere
    as the head's parameters say.
    """
    if not isinstance(model, VisionTransformerDistilled) or params.weight == 0:
        return
    model.set_distilled_training(True)
    if params.fusion == "softmax":
        model.__class__ = LateFusion
