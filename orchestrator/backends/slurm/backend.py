"""SLURM behind the one protocol of all schedulers."""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from ....jobs.config.config import Config
from ....jobs.errors import BadInput, Problem, suggest
from ....jobs.units import format_duration
from ....jobs.workspace.allocation import Allocation, Shape
from ....jobs.workspace.grid_settings import GridSettings
from ....jobs.workspace.paths import Workspace
from ..base import CANCELLING, REQUEUED, SUSPENDED, JobView, Key, Place, Room, Submission, Waiting
from . import cluster, limits
from .observe import look
from .pending import explain
from .query import squeue
from .shell import ask
from .states import view_of
from .walltime import check_walltime, default_walltime


class SlurmBackend:
    """The cluster that this login node belongs to."""

    name = "slurm"
    chains = True
    hands_on = True
    shown_words = MappingProxyType(
        {
            "CANCELLED": CANCELLING,
            "SUSPENDED": SUSPENDED,
            "STOPPED": SUSPENDED,
            "PENDING": REQUEUED,
            "REQUEUE": REQUEUED,
            "SPECIAL_EXIT": REQUEUED,
        }
    )
    explains_by_word = True
    goes_on = (
        "The runs go on without this terminal: jobs that end retry and hand on. A job that dies"
        " without a word needs a pass: vtjobs supervise, or from cron: vtjobs supervise --install"
    )
    queue_settings = ("account", "qos", "partition")
    when_full = "slurm's limit on submitted jobs is reached; the run is submitted as other jobs end"
    nodes_change = False

    def __init__(
        self,
        workspace: Workspace,
        *,
        poll_s: float = 30.0,
        deadline_s: float = 15.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.workspace = workspace
        self.clock = clock
        self.poll_s = poll_s
        self.look_s = 2.0
        self.deadline_s = deadline_s
        self._partitions: dict[str, cluster.Partition] = {}
        self._asked_at = -math.inf

    # Placing --------------------------------------------------------------------------------------

    def room(self, shape: Shape, settings: GridSettings) -> Room:
        site = settings.site
        part = self._partition(site)
        _check(shape, part)
        check_walltime(shape)
        node_gpus = site.get("node_gpus") or part.gpus
        lanes = _lanes(shape, settings.resources.pack, node_gpus, whole=part.is_exclusive)
        resolved = {
            **{name: value for name, value in site.items() if value not in (None, [], {})},
            "cpus": _cpus(shape, site, part, node_gpus, lanes),
            "exclusive": lanes > 1 or part.is_exclusive,
        }
        free = limits.free(site, part.name, mine=self._mine(), deadline_s=self.deadline_s)
        return Room(
            lanes=lanes,
            tasks=lanes,
            places=limits.rules(deadline_s=self.deadline_s).array_size,
            free=free,
            at_once=site.get("array_parallelism"),
            site=resolved,
        )

    def _partition(self, site: Mapping[str, Any]) -> cluster.Partition:
        if time.monotonic() - self._asked_at >= cluster.FRESH_S:
            self._partitions = cluster.partitions(deadline_s=self.deadline_s)
            self._asked_at = time.monotonic()
        wanted = (site.get("partition") or "").split(",")[0]
        if wanted:
            if wanted not in self._partitions:
                message = f"unknown partition {wanted!r}"
                raise BadInput(
                    Problem(key="partition", message=message, fix=suggest(wanted, self._partitions))
                )
            return self._partitions[wanted]
        default = next((part for part in self._partitions.values() if part.is_default), None)
        if default is None:
            fix = f"Allowed: {', '.join(sorted(self._partitions))}"
            raise BadInput(
                Problem(key="partition", message="this cluster has no default partition", fix=fix)
            )
        return default

    def _mine(self) -> int:
        """Return how many places of this user the controller holds at this moment."""
        return sum(view_of(row).state.is_live for row in squeue(deadline_s=self.deadline_s))

    def rehearse(self, shape: Shape, room: Room) -> None:
        from .submission import rehearse

        trial = Allocation(
            token="vtj-rehearsal",
            created_at=0.0,
            shape=shape,
            lanes=room.lanes,
            tasks=((),),
            data_root="",
            site=room.site,
        )
        rehearse(trial, self.workspace, deadline_s=self.deadline_s)

    def default_gpus(self, settings: GridSettings) -> int:
        """Return as many as a node has and the recipe's virtual ranks can be spread over."""
        site = settings.site
        present = site.get("node_gpus") or self._partition(site).gpus
        ranks = settings.virtual_ranks
        return max((count for count in range(1, present + 1) if ranks % count == 0), default=0)

    def default_walltime(self, settings: GridSettings) -> int | None:
        return default_walltime(settings.site, deadline_s=self.deadline_s)

    # Submitting -----------------------------------------------------------------------------------

    def argv(self, allocation: Allocation) -> tuple[str, ...]:
        from .job import successor

        return (
            successor(allocation, self.workspace) if allocation.site.get("handover", True) else ()
        )

    def submit(self, allocation: Allocation) -> Submission:
        from .submission import submit

        return submit(allocation, self.workspace)

    # Looking and ending ---------------------------------------------------------------------------

    def observe(self, places: Sequence[Place]) -> dict[Key, JobView]:
        return look(places, now=self.clock(), deadline_s=self.look_s, was_on_node=self._was_on_node)

    def _was_on_node(self, place: Place) -> bool:
        """Return whether a node has begun with a place: SLURM makes its log first of all."""
        return self.workspace.agent_log(place.token, place.index, 0).exists()

    def cancel(self, places: Sequence[Place]) -> None:
        self._scancel(places)

    def nudge(self, places: Sequence[Place]) -> None:
        self._scancel((place for place in places if place.is_started), "--signal=USR1")

    def explain(self, word: str, *, job: str = "", token: str = "") -> Waiting | None:
        return explain(word, job=job)

    def wake(self) -> None:
        return

    def is_asleep(self) -> bool:
        return False

    def _scancel(self, places: Iterable[Place], *options: str) -> None:
        # A submission whose reply is not known yet is left: it is cancelled once it has been found.
        wanted = [place for place in places if place.job_id is not None]
        if not wanted:
            return
        # A controller that crashed gives ids away again. scancel's own filter by name is no way to
        # find out: with it, one waiting element of an array takes all that wait with it.
        ours = {(row.job_id, row.token) for row in squeue(deadline_s=self.deadline_s)}
        jobs = [
            f"{place.job_id}_{place.index}" if place.is_array else str(place.job_id)
            for place in wanted
            if (place.job_id, place.token) in ours
        ]
        for start in range(0, len(jobs), 500):
            ask(
                ["scancel", "--quiet", *options, *jobs[start : start + 500]],
                deadline_s=self.deadline_s,
            )


def _check(shape: Shape, part: cluster.Partition) -> None:
    """Refuse what the partition can never run: SLURM itself would let it wait for ever."""
    if part.gpus < shape.gpus:
        message = f"{shape.gpus} requested, a node of partition {part.name} has {part.gpus}"
        raise BadInput(Problem(key="gpus_per_node", message=message))
    if shape.nodes > part.nodes:
        message = f"{shape.nodes} requested, partition {part.name} has {part.nodes}"
        raise BadInput(Problem(key="nodes", message=message))
    if shape.gpu and part.kinds and shape.gpu not in part.kinds:
        message = f"partition {part.name} has no {shape.gpu}"
        raise BadInput(Problem(key="gpu", message=message, fix=suggest(shape.gpu, part.kinds)))
    if part.limit_s is not None and (shape.walltime_s or 0) > part.limit_s:
        limit = format_duration(part.limit_s)
        message = (
            f"{format_duration(shape.walltime_s or 0)} exceeds the {limit} of partition {part.name}"
        )
        raise BadInput(Problem(key="walltime", message=message, fix="SLURM would never start it"))
    if not part.is_up:
        raise BadInput(
            Problem(
                key="partition", message=f"partition {part.name} is down; jobs there would wait"
            )
        )


def _lanes(shape: Shape, pack: str | int, node_gpus: int, *, whole: bool) -> int:
    """Return how many runs share a node.

    As many as fit where nodes are given out whole, or where the grid says so.
    """
    if shape.nodes > 1 or pack == "none" or not shape.gpus:
        return 1 if isinstance(pack, str) else pack
    fits = max(1, node_gpus // shape.gpus)
    if isinstance(pack, int):
        if pack > fits:
            message = f"{pack} runs of {shape.gpus} GPUs do not fit on a node with {node_gpus}"
            raise BadInput(Problem(key="pack", message=message))
        return pack
    return fits if whole else 1


def _cpus(
    shape: Shape, site: Mapping[str, Any], part: cluster.Partition, node_gpus: int, lanes: int
) -> int:
    need = shape.ranks * shape.threads * lanes
    if not shape.gpus:
        return min(need, part.cpus)
    each = site.get("cpus_per_gpu") or max(1, part.cpus // max(1, node_gpus))
    return min(part.cpus, max(need, each * shape.gpus * lanes))


def make(config: Config, *, clock: Callable[[], float] = time.time) -> SlurmBackend:
    """Make the backend that a configuration names."""
    return SlurmBackend(config.workspace, poll_s=float(config.get("poll_s")), clock=clock)
