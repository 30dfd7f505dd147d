"""The places of an agent in which its runs train at a time."""

import os
from dataclasses import dataclass, field

from ...jobs.workspace.allocation import Allocation
from .affinity import Cores, cores_by_gpu


@dataclass(slots=True, kw_only=True)
class Lane:
    """A place for one run at a time, with its GPUs."""

    index: int
    gpus: list[str] = field(default_factory=list)
    cores: dict[str, Cores] = field(default_factory=dict)
    """Of each GPU, those that its rank runs on; of one that is missing, any."""

    def cores_of(self, local_rank: int) -> tuple[int, ...]:
        """Return the cores of a rank of this node; empty: any."""
        gpu = self.gpus[local_rank] if local_rank < len(self.gpus) else ""
        return tuple(sorted(self.cores.get(gpu, ())))


def lanes_of(allocation: Allocation) -> list[Lane]:
    """Deal out the GPUs that this process sees among an allocation's lanes."""
    shape = allocation.shape
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if shape.gpus else []
    gpus = [part.strip() for part in visible if part.strip()]
    lanes = range(allocation.lanes)
    cores = cores_by_gpu(gpus) if gpus else {}
    if shape.per_gpu > 1:
        # In turn: where fewer runs are left than lanes, they still spread over the GPUs.
        need = shape.gpus_of(allocation.lanes)
        shared = ((lane, gpus[lane % need : lane % need + 1]) for lane in lanes)
        return [Lane(index=lane, gpus=part, cores=cores) for lane, part in shared]
    parts = [gpus[lane * shape.gpus : (lane + 1) * shape.gpus] for lane in lanes]
    return [Lane(index=lane, gpus=part, cores=cores) for lane, part in enumerate(parts)]
