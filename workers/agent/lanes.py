"""The places of an agent in which its runs train at a time."""

import os

from ...jobs.workspace.allocation import Allocation
from .attempt import Lane


def lanes_of(allocation: Allocation) -> list[Lane]:
    """Deal out the GPUs that this process sees among an allocation's lanes."""
    shape = allocation.shape
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if shape.gpus else []
    gpus = [part.strip() for part in visible if part.strip()]
    parts = [gpus[lane * shape.gpus : (lane + 1) * shape.gpus] for lane in range(allocation.lanes)]
    return [Lane(index=lane, gpus=part) for lane, part in enumerate(parts)]
