"""What is trained: a backbone and, beside it, a head; with all that an optimizer step needs."""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..jobs.errors import VtjobsError
from .backbones import batch_norms, build, token_grid
from .heads import build_head
from .randomness import Streams


class PrecisionError(VtjobsError):
    """The device cannot train at the recipe's precision."""

    exit_code = 2


class Trainee(nn.Module):
    """Backbone and head under one roof, so that DDP and the optimizer see both."""

    def __init__(self, backbone: nn.Module, head: nn.Module | None) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = head

    def forward(
        self, images: Tensor, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor | None, dict[str, Tensor]]:
        """Return logits [B, classes], the head's loss (or None) and the head's metrics."""
        features = self.backbone.forward_features(images)
        logits = self.backbone.forward_head(features)
        if self.head is None or generator is None:
            return logits, None, {}
        loss, metrics = self.head(token_grid(self.backbone, features), generator)
        return logits, loss, metrics


def make_trainee(spec: Any, streams: Streams) -> Trainee:
    """Make backbone and head; each draws its initial weights from its own key, so neither shifts the other's."""
    streams.seed_torch("init", "backbone")
    backbone = build(spec.backbone, spec.dataset, spec.recipe)
    width, grid = 0, (0, 0)
    if spec.head["name"] != "supervised":
        width, grid = grid_shape(backbone, spec.dataset["channels"], spec.recipe["image_size"])
    streams.seed_torch("init", "head")
    return Trainee(backbone, build_head(spec.head, width, grid))


def grid_shape(backbone: nn.Module, channels: int, size: int) -> tuple[int, tuple[int, int]]:
    """Return width and (h, w) of the final token grid, without disturbing the backbone."""
    training = backbone.training
    backbone.eval()
    device = next(backbone.parameters()).device
    with torch.no_grad():
        tokens = token_grid(backbone, backbone.forward_features(torch.zeros(1, channels, size, size, device=device)))
    backbone.train(training)
    return int(tokens.shape[3]), (int(tokens.shape[1]), int(tokens.shape[2]))


@contextlib.contextmanager
def frozen_statistics(layers: list[nn.Module], frozen: bool) -> Iterator[None]:
    """Normalise by the batch without moving running statistics: these follow virtual rank 0 alone."""
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
    # None: float32 throughout.
    scaler: Any

    def autocast(self) -> Any:
        if self.dtype is None:
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=self.dtype)


def make_numerics(recipe: dict[str, Any], device: torch.device) -> Numerics:
    """Set the global switches that the recipe asks for.

    Raises:
        PrecisionError: the device cannot do it; nothing is chosen in its place.
    """
    precision = recipe["precision"]
    torch.backends.cuda.matmul.allow_tf32 = bool(recipe["tf32"])
    torch.backends.cudnn.allow_tf32 = bool(recipe["tf32"])
    if device.type == "cuda":
        if precision == "bf16" and not torch.cuda.is_bf16_supported(including_emulation=False):
            raise PrecisionError(f"{torch.cuda.get_device_name(device)} has no bf16. Use precision: fp16")
        if recipe["deterministic"]:
            # Without it cuBLAS is refused under deterministic algorithms; read when its handle is made.
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.backends.cudnn.benchmark = not recipe["deterministic"]
        torch.use_deterministic_algorithms(bool(recipe["deterministic"]), warn_only=False)
    dtype = {"fp32": None, "fp16": torch.float16, "bf16": torch.bfloat16}[precision]
    scaler = torch.amp.GradScaler(device.type, enabled=precision == "fp16")
    return Numerics(device, dtype, scaler)


def make_optimizer(trainee: Trainee, recipe: dict[str, Any]) -> torch.optim.Optimizer:
    """Return timm's optimizer over backbone and head; no decay on one-dimensional parameters and biases."""
    from timm.optim import create_optimizer_v2

    skip: set[str] = getattr(trainee.backbone, "no_weight_decay", lambda: set())()
    trainee.no_weight_decay = lambda: {f"backbone.{name}" for name in skip}
    options: dict[str, Any] = {}
    if "sgd" in recipe["optimizer"] or "momentum" in recipe["optimizer"]:
        options["momentum"] = recipe["momentum"]
    optimizer: torch.optim.Optimizer = create_optimizer_v2(
        trainee, opt=recipe["optimizer"], lr=recipe["lr"], weight_decay=recipe["weight_decay"], **options
    )
    return optimizer


def make_schedule(optimizer: torch.optim.Optimizer, recipe: dict[str, Any], steps_per_epoch: int) -> Any:
    """Return timm's scheduler, stepped per update: a function of the step, so it has no state to save."""
    from timm.scheduler import CosineLRScheduler
    from timm.scheduler.scheduler import Scheduler

    warmup = round(recipe["warmup_epochs"] * steps_per_epoch)
    total = recipe["epochs"] * steps_per_epoch
    shared = {"warmup_t": warmup, "warmup_lr_init": recipe["warmup_lr"], "t_in_epochs": False}
    if recipe["schedule"] == "cosine":
        return CosineLRScheduler(optimizer, t_initial=total, lr_min=recipe["min_lr"], **shared)
    from timm.scheduler import StepLRScheduler

    made: Scheduler = StepLRScheduler(optimizer, decay_t=total + 1, decay_rate=1.0, **shared)
    return made


def layers_with_statistics(trainee: Trainee) -> list[nn.Module]:
    """Return the layers whose running statistics must follow virtual rank 0."""
    return batch_norms(trainee.backbone)


def make_ema(trainee: Trainee, recipe: dict[str, Any]) -> Any:
    """Return timm's moving average of the backbone's weights, or None where the recipe has none."""
    if recipe["ema_decay"] is None:
        return None
    from timm.utils import ModelEmaV3

    return ModelEmaV3(trainee.backbone, decay=recipe["ema_decay"], use_warmup=recipe["ema_warmup"])
