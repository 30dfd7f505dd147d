"""SLURM behind the one protocol of all schedulers."""

import contextlib
import math
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from ....jobs.config.config import Config
from ....jobs.errors import SchedulerUnreachable
from ....jobs.workspace.allocation import Allocation, Shape
from ....jobs.workspace.grid_settings import GridSettings
from ....jobs.workspace.paths import Workspace
from ..base import (
    CANCELLING,
    REQUEUED,
    SUSPENDED,
    HostMemory,
    JobState,
    JobView,
    Key,
    Place,
    Rehearsal,
    Room,
    Submission,
    Waiting,
)
from . import cluster, limits
from .exclude import exclude
from .observe import look
from .partitions import Partition, gives_memory, partitions
from .pending import explain
from .query import squeue
from .request import chosen, default_gpus, request
from .shell import ask
from .states import view_of
from .walltime import check_walltime, default_walltime

MORE = (
    "Ask for more with slurm.mem, or let fewer share a node: resources: {{pack: {runs}}} in the"
    " grid file"
)


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
    one_machine = False
    nodes_change = False

    def __init__(
        self,
        workspace: Workspace,
        *,
        poll_s: float = 30.0,
        look_s: float = 2.0,
        deadline_s: float = 15.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.workspace = workspace
        self.clock = clock
        self.poll_s = poll_s
        self.look_s = look_s
        self.deadline_s = deadline_s
        self._partitions: dict[str, Partition] = {}
        self._gives_memory = True
        self._asked_at = -math.inf

    # Placing --------------------------------------------------------------------------------------

    def cluster(self, site: Mapping[str, Any]) -> str:
        return ""

    def by_cluster(self, places: Sequence[Place]) -> dict[str, list[Place]]:
        return {"": list(places)}

    def room(self, shape: Shape, settings: GridSettings) -> Room:
        site = settings.site
        check_walltime(shape)
        parts = self._parts(site)
        asked = request(
            shape, site, settings.resources.pack, parts, gives_memory=self._gives_memory
        )
        resolved = {
            **{name: value for name, value in site.items() if value not in (None, [], {})},
            "cpus": asked.cpus,
            "exclusive": asked.is_exclusive,
            **({"mem": asked.mem} if asked.mem else {}),
        }
        free = limits.free(site, parts[0].name, mine=self._mine(), deadline_s=self.deadline_s)
        return Room(
            lanes=asked.lanes,
            tasks=asked.lanes,
            places=limits.rules(deadline_s=self.deadline_s).array_size,
            free=free,
            at_once=site.get("array_parallelism"),
            memory=HostMemory(bytes=asked.memory_bytes, fix=MORE) if asked.memory_bytes else None,
            site=resolved,
        )

    def _parts(self, site: Mapping[str, Any]) -> list[Partition]:
        """Return the partitions that a job may run in."""
        if time.monotonic() - self._asked_at >= cluster.FRESH_S:
            self._partitions = partitions(deadline_s=self.deadline_s)
            self._gives_memory = gives_memory(cluster.settings(deadline_s=self.deadline_s))
            self._asked_at = time.monotonic()
        return chosen(site, self._partitions)

    def _mine(self) -> int:
        """Return how many places of this user the controller holds at this moment."""
        return sum(view_of(row).state.is_live for row in squeue(deadline_s=self.deadline_s))

    def rehearse(self, shape: Shape, room: Room) -> Rehearsal:
        from .doors import require_open
        from .submission import rehearse

        parts = self._parts(room.site)
        require_open(room.site, parts, shape.walltime_s, deadline_s=self.deadline_s)
        trial = Allocation(
            token="vtj-rehearsal",
            created_at=0.0,
            shape=shape,
            lanes=room.lanes,
            tasks=((),),
            data_root="",
            site=room.site,
        )
        return rehearse(trial, self.workspace, deadline_s=self.deadline_s)

    def default_gpus(self, settings: GridSettings) -> int:
        """Return as many as a node has and the recipe's virtual ranks can be spread over."""
        site, kind = settings.site, settings.resources.gpu
        return default_gpus(site, kind, settings.virtual_ranks, self._parts(site))

    def default_walltime(self, settings: GridSettings) -> int | None:
        parts = self._parts(settings.site)
        return default_walltime(settings.site, parts, deadline_s=self.deadline_s)

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
        self._scancel(places, to=(JobState.QUEUED, JobState.RUNNING))

    def nudge(self, places: Sequence[Place]) -> None:
        started = (place for place in places if place.is_started)
        # A job may end before the signal comes; and agents look by themselves every few seconds.
        with contextlib.suppress(SchedulerUnreachable):
            self._scancel(started, "--signal=USR1", to=(JobState.RUNNING,))

    def avoid(self, places: Sequence[Place], nodes: Sequence[str]) -> None:
        jobs = {place.job_id: place.token for place in places if place.job_id is not None}
        exclude(jobs, nodes, deadline_s=self.deadline_s)

    def explain(self, word: str, *, job: str = "", token: str = "") -> Waiting | None:
        return explain(word, job=job)

    def wake(self) -> None:
        return

    def is_asleep(self) -> bool:
        return False

    def _scancel(self, places: Iterable[Place], *options: str, to: Collection[JobState]) -> None:
        # A submission whose reply is not known yet is left: it is cancelled once it has been found.
        wanted = [place for place in places if place.job_id is not None]
        if not wanted:
            return
        # A controller that crashed gives ids away again. scancel's own filter by name is no way to
        # find out: with it, one waiting element of an array takes all that wait with it.
        ours: dict[Key, set[str]] = defaultdict(set)
        for row in squeue(deadline_s=self.deadline_s):
            # scancel fails where it is to signal what has no processes.
            if view_of(row).state in to:
                ours[row.token, row.index].add(row.job_id)
        # Two submitters at once may have made two jobs of one allocation.
        jobs = [
            f"{job_id}_{place.index}" if place.is_array else job_id
            for place in wanted
            for job_id in sorted(ours[place.key])
        ]
        for start in range(0, len(jobs), 500):
            ask(
                ["scancel", "--quiet", *options, *jobs[start : start + 500]],
                deadline_s=self.deadline_s,
            )


def make(config: Config, *, clock: Callable[[], float] = time.time) -> SlurmBackend:
    """Make the backend that a configuration names."""
    return SlurmBackend(
        config.workspace,
        poll_s=float(config.get("poll_s")),
        look_s=float(config.get("look_s")),
        clock=clock,
    )
