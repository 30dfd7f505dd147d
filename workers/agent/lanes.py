"""The places of an agent in which its runs train at a time."""

import os
from dataclasses import dataclass, field

from ...jobs.workspace.allocation import Allocation


@dataclass(slots=True, kw_only=True)
class Lane:
    """A place for one run at a time, with its GPUs."""

    index: int
    gpus: list[str] = field(default_factory=list)


def lanes_of(allocation: Allocation) -> list[Lane]:
    """Deal out the GPUs that this process sees among an allocation's lanes."""
    shape = allocation.shape
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if shape.gpus else []
    gpus = [part.strip() for part in visible if part.strip()]
    lanes = range(allocation.lanes)
    if shape.per_gpu > 1:
        # In turn: where fewer runs are left than lanes, they still spread over the GPUs.
        need = shape.gpus_of(allocation.lanes)
        return [Lane(index=lane, gpus=gpus[lane % need : lane % need + 1]) for lane in lanes]
    parts = [gpus[lane * shape.gpus : (lane + 1) * shape.gpus] for lane in lanes]
    return [Lane(index=lane, gpus=part) for lane, part in enumerate(parts)]
