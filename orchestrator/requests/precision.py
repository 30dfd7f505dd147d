"""Whether the GPUs that a grid asks for can do its precisions, and which would be faster."""

import re

from ...jobs.config.host import gpu_capability
from ...jobs.errors import Problem
from ...jobs.grid.catalogue import FAST, is_recipe, published_recipe
from ...jobs.workspace.allocation import Shape

# From these compute capabilities on there are tensor cores for the precision.
FP16_CAPABILITY = 7.0
BF16_CAPABILITY = 8.0

# NVIDIA's compute capabilities, by what sites call these GPUs.
_CAPABILITY = {
    "k80": 3.7, "p100": 6.0, "p40": 6.1, "1080": 6.1, "v100": 7.0, "t4": 7.5, "2080": 7.5,
    "a100": 8.0, "a30": 8.0, "a10": 8.6, "a40": 8.6, "a6000": 8.6, "3090": 8.6, "l4": 8.9,
    "l40": 8.9, "4090": 8.9, "h100": 9.0, "h200": 9.0, "gh200": 9.0, "b200": 10.0, "gb200": 10.0,
}  # fmt: skip
# `tesla_v100-sxm2`, `v100l`, `rtx3090` and `1g.10gb_a100` name the same as the word alone.
_KIND = re.compile(
    r"(?:\b|_|rtx|gtx)(" + "|".join(sorted(_CAPABILITY, key=len, reverse=True)) + r")(?!\d)"
)


def capability_of(kind: str) -> float | None:
    """Return the compute capability of a GPU type such as `v100`, or None where it is not known."""
    found = _KIND.search(kind.lower())
    return None if found is None else _CAPABILITY[found[1]]


def capability_for(shape: Shape) -> float | None:
    """Return the compute capability of the GPUs that runs get, as far as it is known.

    This machine's GPUs can be asked. What a cluster's nodes have is not seen from a login node, but
    the grid may name it.
    """
    if not shape.gpus:
        return None
    if shape.backend == "local":
        return gpu_capability()
    return capability_of(shape.gpu) if shape.gpu else None


def check_precision(precision: str, capability: float | None) -> Problem | None:
    """Return what is wrong with a precision on GPUs of this capability."""
    if capability is None or precision != "bf16" or capability >= BF16_CAPABILITY:
        return None
    message = f"these GPUs (compute capability {capability}) do not support bf16"
    return Problem(key="train.precision", message=message, fix="Use precision: fp16")


def faster(precision: str, capability: float | None, recipe: str) -> str:
    """Return a hint at what trains faster on these GPUs; empty where nothing does.

    Args:
        precision: of the runs.
        capability: of the GPUs.
        recipe: the name of the runs' recipe, or empty.
    """
    if capability is None or precision != "fp32" or capability < FP16_CAPABILITY:
        return ""
    choices = [f"recipe: {recipe}{FAST}"] if is_recipe(recipe) and not _is_fast(recipe) else []
    choices.append(f"train.precision: {'bf16' if capability >= BF16_CAPABILITY else 'fp16'}")
    return (
        f"fp32 leaves the tensor cores of these GPUs idle. {' or '.join(choices)} trains faster,"
        " and means other runs"
    )


def slow_on_cpu(precision: str, gpus: int) -> str:
    """Return a warning where half precision would be emulated; empty where it is not."""
    if gpus or precision == "fp32":
        return ""
    return (
        f"{precision} is many times slower than fp32 on a CPU. For a trial without a GPU set"
        " train.precision: fp32"
    )


def augments_on_cpu(pipeline: str, auto_augment: str | None, gpus: int) -> str:
    """Return a warning where what is made for a GPU would be done by a rank's one thread."""
    by_the_device = pipeline == "hybrid" or (pipeline == "tensor" and auto_augment is not None)
    if gpus or not by_the_device:
        return ""
    return (
        f"pipeline: {pipeline} leaves the policy to a GPU, and these runs have none. Without one"
        ", pipeline: pil takes about half the time, or less"
    )


def _is_fast(recipe: str) -> bool:
    return published_recipe(recipe) != recipe
