"""What is trained: a backbone and, beside it, a head; with all that an optimizer step needs."""

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ...jobs.errors import VtjobsError
from ...jobs.run.settings import CellSettings, HeadSettings, RecipeSettings
from ...jobs.run.spec import RunSpec
from ...jobs.workspace.events import LoadedWeights
from ..checkpoints.weights import load_weights, start_from
from ..data.batches import Labels
from ..data.objects import Objects, no_objects
from ..heads.base import build_head, build_on_features, is_on_features, trains_module
from ..heads.features import FeatureHead
from ..models.backbones import batch_norms, build, cell_side, input_side, not_decayed
from ..models.projector import embed
from ..models.pyramid import OnMaps
from ..models.synced_norm import SyncedNorm
from ..models.tokens import Tap, grid_shapes
from ..randomness import Streams
from .parts import layer_groups
from .passes import Passed, Shown
from .plan import TrainingPlan


class PrecisionError(VtjobsError):
    """The device cannot train at the recipe's precision."""

    exit_code = 2


class Trainee(nn.Module):
    """Backbone and head under one roof, so that DDP and the optimizer see both."""

    def __init__(
        self,
        backbone: nn.Module,
        head: nn.Module | None,
        tap: Tap | None,
        *,
        labels: bool = True,
        patch: int | None = None,
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = head
        # Whether the classifier is trained; without it there are no logits.
        self.labels = labels
        self.fixed = False
        """Whether the backbone's features are those of evaluation, also while it is trained."""
        # Side of the patches that the head works on, pixels.
        self.patch = patch
        self.tap = tap

    @property
    def is_on_features(self) -> bool:
        """Whether the head learns from the features of whole images, their labels and indices."""
        return isinstance(self.head, FeatureHead)

    @property
    def wants_labels(self) -> bool:
        """Whether a forward pass in training gets the labels of its images."""
        is_detector = isinstance(self.backbone, OnMaps) and self.backbone.has_own_losses
        return self.is_on_features or is_detector

    @property
    def views(self) -> int:
        """How many augmented views of each image the head wants."""
        return self.head.views if isinstance(self.head, FeatureHead) else 1

    def draw(self, batch: int, generator: torch.Generator) -> Any:
        """Return what the head's forward pass needs of a generator: its draws, or itself."""
        draw = getattr(self.head, "draw", None)
        return generator if draw is None else draw(batch, generator)

    def draw_parts(
        self, sizes: Sequence[int], generator: Callable[[int], torch.Generator]
    ) -> list[Any]:
        """Return what the head's forward pass needs for each part of a share.

        A head that can split its draws draws for the whole share: they do not depend on the cut.

        Args:
            sizes: images of each part.
            generator: of a part, by its number.
        """
        split = getattr(self.head, "split", None)
        if split is None:
            return [self.draw(size, generator(part)) for part, size in enumerate(sizes)]
        found: list[Any] = split(self.draw(sum(sizes), generator(0)), sizes)
        return found

    def train(self, mode: bool = True) -> "Trainee":
        """Set what is trained to training; `fixed` features are those of evaluation."""
        super().train(mode)
        if self.fixed:
            self.backbone.eval()
        return self

    def forward(
        self,
        images: Tensor,
        draws: Any = None,
        places: Tensor | None = None,
        labels: Labels | None = None,
        indices: Tensor | None = None,
    ) -> Passed:
        """Pass images through backbone and head; the arguments are those of `Shown`."""
        if isinstance(labels, Objects):
            return Passed(self.backbone.losses(images, labels), None, {}, None)
        if isinstance(self.head, FeatureHead) and labels is not None:
            return self._learn_features(self.head, images, labels, indices)
        if self.head is None or self.tap is None or draws is None:
            logits = self.backbone.forward_head(self.backbone.forward_features(images))
            return Passed(logits, None, {}, None)
        features, grids = self.tap.features(images)
        logits = self.backbone.forward_head(features) if self.labels else None
        loss, metrics = self.head(grids, draws, places)
        return Passed(logits, loss, metrics, None)

    def _learn_features(
        self, head: FeatureHead, images: Tensor, labels: Tensor, indices: Tensor | None
    ) -> Passed:
        tokens = self.backbone.forward_features(images)
        learnt = head.learn(
            embed(self.backbone, tokens, classifies=self.labels), images, labels, indices
        )
        # The classifier learns from one view, as it does without the head.
        views = len(images) // len(labels)
        logits = self.backbone.forward_head(tokens[::views]) if self.labels else None
        return Passed(logits, learnt.loss, learnt.metrics, learnt.kept)


def blank(
    trainee: Trainee,
    spec: CellSettings,
    count: int,
    generator: torch.Generator,
    device: torch.device,
) -> Shown:
    """Return what a forward pass over empty images gets.

    Args:
        trainee: on the device.
        spec: that it was made by.
        count: of images.
        generator: that its head draws from.
        device: where.
    """
    size = input_side(spec.head, trainee.backbone, spec.recipe.image_size)
    shape = (count * trainee.views, spec.dataset.channels, size, size)
    shown = Shown(torch.zeros(shape, device=device), trainee.draw(count, generator))
    if not trainee.wants_labels:
        return shown
    if not trainee.is_on_features:
        return shown._replace(labels=no_objects(count, (size, size), device))
    which = torch.arange(count, device=device)
    return shown._replace(labels=torch.zeros_like(which), indices=which)


def make_trainee(spec: CellSettings, streams: Streams) -> Trainee:
    """Make backbone and head.

    Each draws its initial weights from its own key, so neither shifts the other's.
    """
    streams.seed_torch("init", "backbone")
    backbone = build(spec.backbone, spec.shape, spec.head)
    if not trains_module(spec.head):
        return Trainee(backbone, None, None)
    if is_on_features(spec.head):
        streams.seed_torch("init", "head")
        head = build_on_features(spec.head, backbone)
        return Trainee(backbone, head, None, labels=spec.head.shared.labels)
    tap = tap_of(backbone, spec.head)
    side = input_side(spec.head, backbone, spec.recipe.image_size)
    grids = grid_shapes(tap, spec.dataset.channels, side)
    patch = cell_side(spec.head, spec.backbone.model, grids[-1], side)
    streams.seed_torch("init", "head")
    head, labels = build_head(spec.head, grids), spec.head.shared.labels
    if not labels:
        _leave_out_what_no_token_needs(tap, spec)
    return Trainee(backbone, head, tap, labels=labels, patch=patch)


def load_start(spec: RunSpec, plan: TrainingPlan, backbone: nn.Module) -> LoadedWeights | None:
    """Load what the run starts from; None where its weights are drawn or a checkpoint's.

    What decodes masks or finds objects is drawn in any case: it stands in nobody's weights of a
    backbone.
    """
    weights = spec.backbone.weights
    if plan.resume is not None:
        return None
    part = backbone.encoder if isinstance(backbone, OnMaps) else backbone
    if plan.init is not None and not spec.learns_from_parent:
        left = load_weights(part, plan.init, only=spec.recipe.init_only)
        taken = len(part.state_dict()) - len(left)
        return LoadedWeights(loaded=taken, drawn=left, unused=[])
    if weights is None:
        return None
    return start_from(part, weights, Path(plan.paths[weights.fingerprint]))


def tap_of(backbone: nn.Module, head: HeadSettings) -> Tap:
    """Return what takes a head's grids."""
    shared = head.shared
    if shared.blocks == "stages":
        return Tap(backbone, "stages")
    return Tap(backbone, "blocks" if shared.blocks == "all" else shared.tokens)


def _leave_out_what_no_token_needs(tap: Tap, spec: CellSettings) -> None:
    """Freeze what has no part in the patch tokens, such as a norm after pooling.

    DDP waits for every gradient.
    """
    backbone, channels = tap.backbone, spec.dataset.channels
    side = input_side(spec.head, backbone, spec.recipe.image_size)
    device = next(backbone.parameters()).device
    training = backbone.training
    backbone.eval()
    _, grids = tap.features(torch.zeros(1, channels, side, side, device=device))
    torch.stack([tokens.sum() for tokens in grids]).sum().backward()
    for parameter in backbone.parameters():
        parameter.requires_grad_(parameter.requires_grad and parameter.grad is not None)
        parameter.grad = None
    backbone.train(training)


@contextlib.contextmanager
def frozen_statistics(layers: list[nn.Module], frozen: bool) -> Iterator[None]:
    """Normalise by the batch without moving running statistics.

    These follow virtual rank 0 alone.
    """
    if frozen:
        for layer in layers:
            layer.track_running_stats = False
    try:
        yield
    finally:
        for layer in layers:
            layer.track_running_stats = True


@dataclass(slots=True)
class Numerics:
    """Precision as the recipe names it: autocast and gradient scaling."""

    device: torch.device
    dtype: torch.dtype | None
    """None: float32 throughout."""
    scaler: Any

    def autocast(self, *, cache: bool = True) -> Any:
        """Return the context of a forward pass.

        Args:
            cache: whether a weight is cast once for all of it.
        """
        if self.dtype is None:
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=self.dtype, cache_enabled=cache)


def make_numerics(
    device: torch.device, *, precision: str, tf32: bool = False, deterministic: bool = False
) -> Numerics:
    """Set the global switches that a recipe asks for.

    Raises:
        PrecisionError: the device cannot do it; nothing is chosen in its place.
    """
    torch.backends.cuda.matmul.allow_tf32 = tf32
    torch.backends.cudnn.allow_tf32 = tf32
    if device.type == "cuda":
        if precision == "bf16" and not torch.cuda.is_bf16_supported(including_emulation=False):
            raise PrecisionError(
                f"{torch.cuda.get_device_name(device)} does not support bf16. Use precision: fp16"
            )
        if deterministic:
            # Without it cuBLAS is refused under deterministic algorithms; read when its handle is
            # made.
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.backends.cudnn.benchmark = not deterministic
        torch.use_deterministic_algorithms(deterministic, warn_only=False)
    dtype = {"fp32": None, "fp16": torch.float16, "bf16": torch.bfloat16}[precision]
    scaler = torch.amp.GradScaler(device.type, enabled=precision == "fp16")
    return Numerics(device, dtype, scaler)


def make_optimizer(trainee: Trainee, recipe: RecipeSettings) -> torch.optim.Optimizer:
    """Return timm's optimizer over backbone and head; what the recipe leaves out does not decay."""
    from timm.optim import create_optimizer_v2

    skip = set() if recipe.decay_all else not_decayed(trainee.backbone)
    trainee.no_weight_decay = lambda: {f"backbone.{name}" for name in skip}
    options = fused(recipe.optimizer, next(trainee.parameters()).device)
    if "sgd" in recipe.optimizer or "momentum" in recipe.optimizer:
        options["momentum"] = recipe.momentum
    if recipe.optimizer.startswith("lamb"):
        # timm's clips at 1 by itself; the recipe's `clip_grad` says what is clipped.
        options["max_grad_norm"] = None
    optimizer: torch.optim.Optimizer = create_optimizer_v2(
        trainee if recipe.layer_decay is None else layer_groups(trainee, recipe, skip),
        opt=recipe.optimizer,
        lr=recipe.lr,
        weight_decay=recipe.weight_decay,
        filter_bias_and_bn=not recipe.decay_all,
        **options,
    )
    return optimizer


def fused(optimizer: str, device: torch.device) -> dict[str, Any]:
    """Return the option that makes an optimizer of torch update all weights in one GPU kernel.

    With gradient scaling it also leaves out the wait for whether a gradient has overflowed.
    """
    is_torchs = optimizer in ("adam", "adamw", "momentum", "sgd")
    return {"fused": True} if is_torchs and device.type == "cuda" else {}


def layers_with_statistics(trainee: Trainee) -> list[nn.Module]:
    """Return the layers whose running statistics must follow virtual rank 0, or the whole batch.

    Those of a lab's own head follow every share, but where they normalise by the whole batch.
    """
    found = batch_norms(trainee.backbone)
    if isinstance(trainee.head, FeatureHead):
        found += trainee.head.layers_with_statistics()
    elif trainee.head is not None:
        found += [one for one in batch_norms(trainee.head) if isinstance(one, SyncedNorm)]
    return found


def make_ema(trainee: Trainee, recipe: RecipeSettings) -> Any:
    """Return timm's moving average of the backbone's weights, or None where the recipe has none."""
    if recipe.ema_decay is None:
        return None
    from timm.utils import ModelEmaV3

    return ModelEmaV3(trainee.backbone, decay=recipe.ema_decay, use_warmup=recipe.ema_warmup)
