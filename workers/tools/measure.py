"""What a backbone costs: parameters, FLOPs, images per second, memory.

The conditions of the papers' complexity tables.

`python -m vtjobs.workers.tools.measure NAME … --batch 32`. One line of JSON for each backbone and
image size.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import timm
import torch
from torch import nn
from torch.nn import functional as F

from ...jobs.documents import to_plain
from ...jobs.errors import BadInput, did_you_mean
from ...jobs.grid import catalogue
from ...jobs.run.cost import Cost
from ...jobs.run.settings import BackboneSettings, ModelShape
from ...jobs.values import changed
from .. import models  # noqa: F401  registers ours with timm
from ..environment import software
from ..errors import BackboneError
from ..models.backbones import build
from ..models.tokens import Tap, grid_shapes
from ..training.trainee import make_numerics
from .alive import memory_of
from .each import each

WARM_UP = 3
# No larger batch is tried for `largest`.
MOST = 1 << 16


def measure(
    name: str,
    *,
    batch: int | None,
    image_size: int,
    classes: int,
    precision: str,
    repeats: int,
    training: bool,
    device: torch.device,
    arguments: Mapping[str, Any] = MappingProxyType({}),
) -> Cost:
    """Return what a backbone costs on this device.

    Args:
        name: a short name, or timm's.
        batch: images at a time; None: the largest that fits the GPU.
        image_size: side of the input, pixels.
        classes: of the classifier.
        precision: fp32, fp16 or bf16.
        repeats: timed passes, after three that are not.
        training: forward, cross-entropy and backward, or the forward pass alone.
        device: where.
        arguments: of the model, beside those of its short name, such as a number of heads.

    Raises:
        BackboneError: it takes no such argument.
        BadInput: there is no such backbone, or the largest batch is asked for without a GPU.
    """
    model = _model(name, image_size, classes, arguments).to(device)
    if arguments:
        name += f"({', '.join(f'{key}={value}' for key, value in arguments.items())})"
    numerics = make_numerics(device, precision=precision)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    flops = multiply_adds(model, (3, image_size, image_size), device)
    tokens = _tokens(model, image_size)
    is_largest = batch is None
    if batch is None:
        batch = _largest(
            lambda count: _step(model, count, image_size, classes, numerics, training, device),
            device,
        )
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    step = _step(model, batch, image_size, classes, numerics, training, device)
    seconds = _timed(step, repeats, device)
    mean = sum(seconds) / len(seconds)
    return Cost(
        backbone=name,
        parameters=parameters,
        multiply_adds=flops,
        tokens=tokens,
        batch=batch,
        largest_batch=is_largest,
        image_size=image_size,
        precision=precision,
        pass_="training" if training else "inference",
        repeats=repeats,
        images_per_second=batch / mean,
        seconds=mean,
        seconds_std=(
            torch.tensor(seconds, dtype=torch.float64).std().item() if repeats > 1 else None
        ),
        peak_memory_bytes=(
            torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None
        ),
        tensor_memory_bytes=None if device.type == "cuda" else memory_of(model, step),
        device=(
            torch.cuda.get_device_name(device)
            if device.type == "cuda"
            else f"CPU, {torch.get_num_threads()} threads"
        ),
        software=software(),
    )


def _model(name: str, image_size: int, classes: int, arguments: Mapping[str, Any]) -> nn.Module:
    known = catalogue.backbones()
    if name in known:
        backbone = catalogue.backbone(name)
    elif timm.is_model(name):
        backbone = BackboneSettings(model=name, args={}, weights=None)
    else:
        near = did_you_mean(name, [*known, *timm.list_models()])
        raise BadInput(f"unknown backbone {name!r}. {near}".strip())
    shape = ModelShape(channels=3, classes=classes, image_size=image_size)
    backbone = changed(backbone, args={**backbone.args, **arguments})
    return build(backbone, shape)


def multiply_adds(model: nn.Module, shape: tuple[int, int, int], device: torch.device) -> int:
    """Return the multiply-add operations of one image, which the papers call FLOPs.

    Args:
        model: put into evaluation.
        shape: of the image, [C, S, S].
        device: that the model is on.
    """
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    model.eval()
    # The counter knows matrix products, and of the fused attention kernels only those that its
    # version has heard of: others would count as nothing. The plain kernel is made of products.
    # With gradients: the counter's hooks want them of whatever asks for one.
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model(torch.zeros(1, *shape, device=device))
    return int(counter.get_total_flops() // 2)


def _tokens(model: nn.Module, image_size: int) -> int | None:
    """Return how many patch tokens, or places of a map, an image has in the last layer."""
    try:
        (grid,) = grid_shapes(Tap(model, "after_norm"), 3, image_size)
    except BackboneError:
        return None
    return grid.height * grid.columns


def _step(
    model: nn.Module,
    batch: int,
    size: int,
    classes: int,
    numerics: Any,
    training: bool,
    device: torch.device,
) -> Callable[[], None]:
    model.train(training)
    images = torch.zeros(batch, 3, size, size, device=device)
    labels = torch.arange(batch, device=device) % classes

    def step() -> None:
        if not training:
            with torch.no_grad(), numerics.autocast():
                model(images)
            return
        with numerics.autocast():
            logits = model(images)
        numerics.scaler.scale(F.cross_entropy(logits.float(), labels)).backward()
        model.zero_grad(set_to_none=True)

    return step


def _timed(step: Callable[[], None], repeats: int, device: torch.device) -> list[float]:
    seconds = []
    for turn in range(WARM_UP + repeats):
        _wait(device)
        start = time.perf_counter()
        step()
        _wait(device)
        if turn >= WARM_UP:
            seconds.append(time.perf_counter() - start)
    return seconds


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _largest(step_of: Callable[[int], Callable[[], None]], device: torch.device) -> int:
    """Return the largest batch that fits: doubled until it does not, then halved in between."""
    if device.type != "cuda":
        raise BadInput("--batch largest: needs a GPU; give a number")

    def fits(batch: int) -> bool:
        try:
            step_of(batch)()
            return True
        except torch.cuda.OutOfMemoryError:
            torch.cuda.empty_cache()
            return False

    return largest(fits)


def largest(fits: Callable[[int], bool]) -> int:
    """Return the largest number from 1 to 65,536 that fits, where all smaller ones do.

    Raises:
        BadInput: not even 1 does.
    """
    if not fits(1):
        raise BadInput("not even one image fits the GPU")
    low = 1
    while low < MOST and fits(2 * low):
        low *= 2
    # It fits low and, below the limit, not 2 · low.
    high = 2 * low
    while high - low > 1 and low < MOST:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def main() -> int:
    """Measure each backbone at each size.

    One that cannot be measured does not keep the others from it.
    """
    parser = argparse.ArgumentParser(prog="vtjobs.workers.tools.measure")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--image-size", type=int, nargs="+", required=True)
    parser.add_argument("--classes", type=int, required=True)
    parser.add_argument("--precision", required=True)
    parser.add_argument("--repeats", type=int, required=True)
    parser.add_argument("--training", action="store_true")
    parser.add_argument("--arguments", type=json.loads, default={})
    parser.add_argument("names", nargs="+")
    options = vars(parser.parse_args())
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    names, sizes = options.pop("names"), options.pop("image_size")
    return each(
        [(name, size) for name in names for size in sizes],
        lambda asked: json.dumps(
            to_plain(measure(asked[0], image_size=asked[1], **options, device=device))
        ),
    )


if __name__ == "__main__":
    sys.exit(main())
