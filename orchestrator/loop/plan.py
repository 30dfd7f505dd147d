"""Runs + resources -> allocations. Values in, values out."""

import secrets
from collections.abc import Sequence
from typing import Any

from ...jobs.errors import Problem
from ...jobs.values import changed
from ...jobs.workspace.allocation import DECODED_GIB, HANG_S, Allocation, Shape, Task
from ...jobs.workspace.grid_settings import GridSettings
from ..backends.base import Backend, Room

# How long before the walltime a run is told to save and stop, where the site says nothing.
LEAD_S = 60


def shape_of(settings: GridSettings, backend: Backend) -> Shape:
    """Return the shape that a grid's settings ask for."""
    resources = settings.resources
    gpus = resources.gpus_per_node
    if gpus is None:
        gpus = backend.default_gpus(settings)
        if resources.per_gpu > 1:
            gpus = min(1, gpus)
    # What is not asked for is counted with all the same: the scheduler ends the job after it.
    walltime_s = resources.walltime or backend.default_walltime(settings)
    return Shape(
        backend=settings.backend,
        nodes=resources.nodes,
        ranks=gpus or resources.cpu_ranks,
        gpus=gpus,
        gpu=resources.gpu if gpus else None,
        per_gpu=resources.per_gpu if gpus else 1,
        threads=resources.threads,
        walltime_s=walltime_s,
        lead_s=_lead(settings.site.get("lead"), walltime_s),
        checkpoint_every_s=settings.checkpoint_every_s,
        evaluate_every=settings.evaluate_every,
        record_depth=settings.record_depth,
        sets=tuple(settings.sets),
        metrics=tuple(settings.metrics),
    )


def check_world_size(shape: Shape, virtual_ranks: int) -> Problem | None:
    """Return what is wrong with training this many virtual ranks on this shape."""
    if virtual_ranks % shape.world_size == 0:
        return None
    allowed = ", ".join(map(str, allowed_world_sizes(virtual_ranks)))
    ranks = f"{shape.world_size} ranks"
    message = f"the recipe's {virtual_ranks} virtual ranks cannot be divided evenly among {ranks}"
    return Problem(key="resources", message=message, fix=f"Possible numbers of ranks: {allowed}")


def _lead(asked: int | None, walltime_s: int | None) -> int:
    """Return how long before the walltime to stop; of a short one, at most a quarter."""
    lead = asked or LEAD_S
    return lead if walltime_s is None else max(1, min(lead, walltime_s // 4))


def spread(rows: list[Any], room: Room) -> tuple[list[Any], Room]:
    """Deal runs out so that every place that can work at this time gets as many, of every part of
    the grid.

    Args:
        rows: the runs that are due, in the grid's order.
        room: what the backend has.

    Returns:
        The runs in the order in which `pack` puts them into places, and the room with as many runs
        to a place as that takes; both as they were where the backend does not ask for it.
    """
    if not room.spread or len(rows) <= room.spread * room.lanes:
        return rows, changed(room, tasks=room.lanes) if room.spread else room
    tasks = min(room.tasks, max(room.lanes, -(-len(rows) // room.spread)))
    places = -(-len(rows) // tasks)
    dealt = [rows[start::places] for start in range(places)]
    # Dealt one by one: neighbours in the grid, which take alike, come to different places.
    return [row for part in dealt for row in part], changed(room, tasks=tasks)


def pack(
    tasks: Sequence[Task],
    shape: Shape,
    room: Room,
    *,
    at: float,
    data_root: str,
    paths: dict[str, str],
    hang_s: float = HANG_S,
    decoded_gib: float = DECODED_GIB,
    after: tuple[str, ...] = (),
    exclude: tuple[str, ...] = (),
) -> list[Allocation]:
    """Put runs of one shape into allocations, in order.

    A place hosts as many runs as the backend has room for, several at a time where the machine
    allows it; an allocation has as many places as the site's arrays may have elements.
    """
    places = [
        tuple(tasks[start : start + room.tasks]) for start in range(0, len(tasks), room.tasks)
    ]
    return [
        Allocation(
            token=f"vtj-{secrets.token_hex(8)}",
            created_at=at,
            shape=shape,
            lanes=max(1, min(room.lanes, max(map(len, part)))),
            tasks=tuple(part),
            data_root=data_root,
            paths=paths,
            hang_s=hang_s,
            decoded_gib=decoded_gib,
            after=after,
            exclude=exclude,
            site=room.site,
        )
        for start in range(0, len(places), room.places)
        if (part := places[start : start + room.places])
    ]


def allowed_world_sizes(virtual_ranks: int) -> list[int]:
    """Return the numbers of real ranks that can carry these virtual ranks."""
    return [size for size in range(1, virtual_ranks + 1) if virtual_ranks % size == 0]
