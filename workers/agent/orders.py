"""How an agent makes the order of an attempt, and node 0 lets the other nodes know of it."""

import os
import secrets

from ...jobs.atomic_files import read_json, to_json, write_new
from ...jobs.config.shared_memory import Fitted, fitted, free_bytes
from ...jobs.documents import from_plain, to_plain
from ...jobs.run.loaders import share_bytes
from ...jobs.run.spec import RunSpec, digest
from ...jobs.values import changed
from ...jobs.workspace.allocation import Allocation, Shape, Task
from ...jobs.workspace.paths import RunFolder
from ..environment import Origin
from ..orders import Order, PublishedOrder
from .hang_watch import COMPILE_FACTOR
from .resume import Parent, Resume


def make_order(
    allocation: Allocation,
    task: Task,
    folder: RunFolder,
    *,
    spec: RunSpec,
    origin: Origin,
    resume: Resume | None,
    parent: Parent | None,
) -> Order:
    """Return what the ranks of all nodes have in common, but for where rank 0 listens."""
    shape = allocation.shape
    return Order(
        run_id=task.run_id,
        attempt=task.attempt,
        spec=str(folder.spec),
        folder=str(folder.checkpoints(task.attempt)),
        nodes=shape.nodes,
        world_size=shape.world_size,
        device="cpu" if origin.device == "cpu" else "cuda",
        threads=shape.threads,
        per_gpu=shape.per_gpu,
        data_root=allocation.data_root,
        paths=allocation.paths,
        resume=str(resume.folder) if resume else None,
        init=str(parent.weights) if parent else None,
        parent=str(parent.spec) if parent else None,
        checkpoint_every_s=shape.checkpoint_every_s,
        evaluate_every=shape.evaluate_every,
        record_depth=shape.record_depth,
        sets=shape.sets,
        metrics=shape.metrics,
        micro_split=task.micro_split,
        decoded=str(folder.workspace.decoded),
        decoded_bytes=int(allocation.decoded_gib * 2**30),
        pipeline=spec.recipe.pipeline,
        share_bytes=share_bytes(spec),
        # The hang watch is to decide first: it says which rank is silent, and where.
        collective_s=2 * COMPILE_FACTOR * allocation.hang_s,
        reuse=reuse_of(spec, shape, task.micro_split),
        origin=origin,
    )


def reuse_of(spec: RunSpec, shape: Shape, micro_split: int) -> str:
    """Name what a process keeps from one run to the next, or return nothing where it must end.

    A lab's own code, which a teacher of an earlier stage may be too, can change anything in its
    process. Ranks of a group are not reused: a communicator is not always let go of. Graphs are of
    one cell: what torch keeps of others would add up.
    """
    is_known = not (shape.metrics or spec.has_own_code or spec.learns_from_parent)
    if shape.world_size > 1 or not is_known:
        return ""
    recipe = spec.recipe
    kept = f"{recipe.precision}, tf32: {recipe.tf32}, deterministic: {recipe.deterministic}"
    if recipe.compile:
        cell = changed(spec, seeds={}, init_from=None).canonical()
        kept += f", graphs of {digest(cell)} in {micro_split} parts"
    return kept


def processes_of_rank(allocation: Allocation, order: Order) -> Fitted:
    """Return how many processes make images for each rank on this node, beside the rank."""
    ranks = allocation.lanes * allocation.shape.ranks
    return fitted(
        len(os.sched_getaffinity(0)) // ranks,
        pipeline=order.pipeline,
        share_bytes=order.share_bytes,
        free=free_bytes(),
        ranks=ranks,
    )


def publish_order(folder: RunFolder, attempt: int, order: Order, *, token: str, lane: int) -> None:
    """Let the other nodes start their ranks.

    Raises:
        FileExistsError: this attempt has an order already, so somebody has been here.
    """
    path = folder.order(attempt)
    published = from_plain({**to_plain(order), "token": token, "lane": lane}, PublishedOrder)
    if not write_new(path, to_json(to_plain(published))):
        raise FileExistsError(f"{path.name} is there already")


def write_key(folder: RunFolder, attempt: int) -> str:
    """Make the key that an attempt's ranks know each other by, and return it.

    For this user's eyes alone, also where a group shares the workspace.

    Raises:
        FileExistsError: this attempt has one already, so somebody has been here.
    """
    key = secrets.token_hex(32)
    handle = os.open(folder.key(attempt), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(key)
    return key


def read_order(folder: RunFolder, attempt: int, *, token: str) -> PublishedOrder | None:
    """Return what node 0 published for this allocation, or None.

    Raises:
        ValueError: it is no order.
    """
    data = read_json(folder.order(attempt))
    if not isinstance(data, dict) or data.get("token") != token:
        return None
    return from_plain(data, PublishedOrder)
