"""What an agent orders of its ranks, and how node 0 lets the other nodes of an attempt know."""

import os
from pathlib import Path
from typing import Any

from ...jobs.atomic_files import read_json, to_json, write_new
from ...jobs.run.spec import RunSpec
from ...jobs.workspace.allocation import Allocation, Task
from ...jobs.workspace.paths import RunFolder
from .resume import Resume


def make_order(
    allocation: Allocation,
    task: Task,
    folder: RunFolder,
    *,
    spec: RunSpec,
    origin: dict[str, Any],
    resume: Resume | None,
    init: Path | None,
    parent: Path | None,
) -> dict[str, Any]:
    """Return what the ranks of all nodes have in common, but for where rank 0 listens."""
    shape = allocation.shape
    return {
        "run_id": task.run_id,
        "attempt": task.attempt,
        "spec": str(folder.spec),
        "folder": str(folder.checkpoints(task.attempt)),
        "nodes": shape.nodes,
        "world_size": shape.world_size,
        "device": "cpu" if origin["device"] == "cpu" else "cuda",
        "threads": shape.threads,
        "data_root": allocation.data_root,
        "paths": allocation.paths,
        "resume": str(resume.folder) if resume else None,
        "init": str(init) if init else None,
        "parent": str(parent) if parent else None,
        "checkpoint_every_s": shape.checkpoint_every_s,
        "evaluate_every": shape.evaluate_every,
        "sets": list(shape.sets),
        "micro_split": task.micro_split,
        "pipeline": spec.recipe["pipeline"],
        "origin": origin,
    }


def loader_workers(allocation: Allocation, pipeline: str) -> int:
    """Return how many loader workers each rank on this node gets."""
    if pipeline == "tensor":
        return 0
    share = len(os.sched_getaffinity(0)) // (allocation.lanes * allocation.shape.ranks)
    return max(1, min(16, share))


def publish_order(
    folder: RunFolder, attempt: int, order: dict[str, Any], *, token: str, lane: int
) -> None:
    """Let the other nodes start their ranks.

    Raises:
        FileExistsError: this attempt has an order already, so somebody has been here.
    """
    path = folder.order(attempt)
    if not write_new(path, to_json({**order, "token": token, "lane": lane})):
        raise FileExistsError(f"{path.name} is there already")


def read_order(folder: RunFolder, attempt: int, *, token: str) -> dict[str, Any] | None:
    """Return what node 0 published for this allocation, or None."""
    order = read_json(folder.order(attempt))
    return order if isinstance(order, dict) and order.get("token") == token else None
