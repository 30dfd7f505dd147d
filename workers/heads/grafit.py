"""Grafit (Touvron et al. 2021; Touvron 2022, thesis, section 2.3): finer features than labels."""

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...jobs.documents import from_plain
from ...jobs.run.settings import GrafitParameters
from ..errors import BackboneError
from ..models.backbones import batch_norms
from ..models.projector import embed, embedding_width, shows_features, two_layers
from .features import FeatureHead, Learnt


def build(backbone: nn.Module, params: dict[str, Any]) -> nn.Module:
    """Make the head; see `base.build_on_features`."""
    return Grafit(backbone, from_plain(params, GrafitParameters))


class Grafit(FeatureHead):
    """The kNN loss over a memory of embeddings, and the instance loss against a target network.

    The memory starts from random directions, as that of Wu et al. (2018), whose loss it is.

    Args:
        backbone: with the projector in its classifier's place.
        params: of the head.

    Raises:
        BackboneError: the classifier shall be trained, and the backbone does not show the features
            that it gets.
    """

    def __init__(self, backbone: nn.Module, params: GrafitParameters) -> None:
        super().__init__()
        if params.labels and not shows_features(backbone):
            raise BackboneError(
                f"grafit: forward_head of {type(backbone).__name__} must take pre_logits=True"
                " and return the features, as timm's models do"
            )
        self.params, self.views = params, params.views
        self.width = embedding_width(backbone, params)
        self.uses_memory = "knn" in params.losses
        self.kept_width = self.width if self.uses_memory else None
        self.predictor: nn.Module | None = None
        self.target: nn.Module | None = None
        if "instance" in params.losses:
            self.predictor = two_layers(self.width, self.width)

    def begin(self, backbone: nn.Module, labels: Tensor) -> None:
        if self.uses_memory:
            self.register_buffer("memory", F.normalize(torch.randn(len(labels), self.width), dim=1))
            self.register_buffer("labels", labels.clone(), persistent=False)
        if self.predictor is not None:
            self.target = copy.deepcopy(backbone).requires_grad_(False)
            for layer in batch_norms(self.target):
                # In training it normalises by the batch and leaves its running statistics, which
                # follow those of the backbone.
                layer.track_running_stats = False
            self.train(self.training)

    def train(self, mode: bool = True) -> "Grafit":
        """Set the mode; of the target network only the normalisation follows: it drops nothing."""
        super().train(mode)
        if self.target is not None:
            self.target.eval()
            for layer in batch_norms(self.target):
                layer.train(mode)
        return self

    def layers_with_statistics(self) -> list[nn.Module]:
        return [] if self.predictor is None else batch_norms(self.predictor)

    def learn(
        self, embeddings: Tensor, images: Tensor, labels: Tensor, indices: Tensor | None
    ) -> Learnt:
        loss = torch.zeros((), device=embeddings.device)
        metrics: dict[str, Tensor] = {}
        kept: Tensor | None = None
        views = len(embeddings) // len(labels)
        if self.uses_memory:
            # The supervised loss takes one view (section 2.5.1).
            kept = F.normalize(embeddings[::views].float(), dim=1)
            logs = self._neighbours(kept, indices)
            same = self._share_a_class(labels)
            metrics["knn_loss"] = knn = knn_loss(logs, same)
            metrics["nearest_top1"] = (
                100 * same.gather(1, logs.argmax(1, keepdim=True)).float().mean()
            )
            loss = loss + knn
            kept = kept.detach()
        if self.predictor is not None:
            metrics["instance_loss"] = instance = self._instance(embeddings, images, views)
            loss = loss + self.params.instance_weight * instance
        return Learnt(loss, {name: value.detach() for name, value in metrics.items()}, kept)

    def after_step(self, backbone: nn.Module, indices: Tensor, kept: Tensor | None) -> None:
        if kept is not None:
            self.memory[indices] = (self.memory[indices] + kept) / 2
        if self.target is not None:
            self._follow(self.target, backbone)

    @torch.no_grad()
    def _follow(self, target: nn.Module, backbone: nn.Module) -> None:
        """Move the target network, ξ ← τξ + (1 - τ)θ."""
        named = dict(backbone.named_buffers())
        pairs = [
            *zip(target.parameters(), backbone.parameters(), strict=True),
            *((value, named[name]) for name, value in target.named_buffers()),
        ]
        moving = [(old, new) for old, new in pairs if old.is_floating_point()]
        torch._foreach_lerp_(
            [old for old, _ in moving],
            [new.detach() for _, new in moving],
            1 - self.params.target_decay,
        )

    def _neighbours(self, embeddings: Tensor, indices: Tensor | None) -> Tensor:
        """Return log p (eq. 2.2) of each image of the memory, [B, N] float32; -inf of itself.

        Args:
            embeddings: [B, D] float32, of length 1.
            indices: [B] int64, or None: images that the memory does not hold.
        """
        # In float32: a similarity is divided by a small temperature.
        with torch.autocast(embeddings.device.type, enabled=False):
            scores = embeddings @ F.normalize(self.memory, dim=1).T / self.params.temperature
            if indices is not None:
                scores = scores.scatter(1, indices[:, None], -torch.inf)
            return scores.log_softmax(1)

    def _share_a_class(self, labels: Tensor) -> Tensor:
        """Return which images of the memory are of the class of each given one, [B, N] bool.

        Args:
            labels: [B] int64, or [B, classes] bool where several classes may be right.
        """
        return self.labels == labels[:, None] if labels.dim() == 1 else labels[:, self.labels]

    def _instance(self, embeddings: Tensor, images: Tensor, views: int) -> Tensor:
        """Return the instance loss, a mean over the images."""
        assert self.predictor is not None and self.target is not None
        with torch.no_grad():
            tokens: Any = self.target.forward_features(images)
            targets = embed(self.target, tokens, classifies=self.params.labels)
        return instance_loss(
            self.predictor(embeddings).unflatten(0, (-1, views)),
            targets.unflatten(0, (-1, views)),
        )


def knn_loss(logs: Tensor, same: Tensor) -> Tensor:
    """Return the loss of eq. 2.3, a mean over the images.

    An image that is alone in its class has no neighbour to come near to, and counts as 0.

    Args:
        logs: [B, N], log-probabilities of the neighbours; -inf of the image itself.
        same: [B, N] bool, whether they are of the image's class.
    """
    has_neighbour = (same & (logs > -torch.inf)).any(1)
    # Where there is none all are summed: the gradient of an empty sum would be no number.
    summed = same | ~has_neighbour[:, None]
    mass = logs.masked_fill(~summed, -torch.inf).logsumexp(1)
    return -mass.where(has_neighbour, torch.zeros_like(mass)).mean()


def instance_loss(predictions: Tensor, targets: Tensor) -> Tensor:
    """Return the loss of eq. 2.1, a mean over the images, between -1 and 1.

    Each view is to predict the target network's embedding of every other view; of a single view,
    its own.

    Args:
        predictions: [B, T, D] of the views.
        targets: [B, T, D] of the same views.
    """
    views = predictions.shape[1]
    with torch.autocast(predictions.device.type, enabled=False):
        cosines = F.normalize(predictions.float(), dim=2) @ F.normalize(targets.float(), dim=2).mT
    if views == 1:
        return -cosines.mean()
    own = cosines.diagonal(dim1=1, dim2=2).sum(1)
    return -((cosines.sum((1, 2)) - own) / (views * (views - 1))).mean()
