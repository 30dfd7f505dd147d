"""Which allocations wait for what an agent's node has. An agent asks this between its runs.

Ray starts what fits at a moment, in no order: a large job waits for as long as small ones follow
each other. So agents leave one node after the other to it, and nobody else is sent there before it
has begun.
"""

from collections import defaultdict
from collections.abc import Mapping

from ....jobs.config.node import Queued
from ....jobs.errors import DamagedFile
from ....jobs.values import Value, changed
from ....jobs.workspace.allocation import Allocation, read_allocation
from ....jobs.workspace.paths import Workspace
from ....jobs.workspace.unsent import waits
from .api import Api
from .cluster import Need, Node, in_use, need_from, nodes
from .submission import JOBS

LIVE = ("PENDING", "RUNNING")


class Part(Value, frozen=True, kw_only=True):
    """What a node has for the allocations of one workspace."""

    node: Node
    """With what nobody else has taken of it."""
    ours: list[Need]
    """What our agents have taken of that."""

    @property
    def taken(self) -> tuple[int, int]:
        """GPUs and CPUs that our agents have."""
        return sum(need.gpus for need in self.ours), sum(need.cpus for need in self.ours)

    def lacks(self, need: Need) -> tuple[bool, bool]:
        """Return whether too few GPUs are free at this moment, and whether too few CPUs are."""
        gpus, cpus = self.taken
        return need.gpus > self.node.gpus - gpus, need.cpus > self.node.cpus - cpus


def queue(api: Api, workspace: Workspace, token: str, *, deadline_s: float) -> list[Queued]:
    """Return the allocations that are at work, and those that wait for what one of them has.

    Args:
        api: the cluster.
        workspace: where the allocations lie.
        token: the one that asks.
        deadline_s: how long each answer is waited for.

    Raises:
        SchedulerUnreachable: it could not be asked.
    """
    jobs = {
        str(job["submission_id"]): job
        for job in api.ask(JOBS, deadline_s=deadline_s)
        if job.get("submission_id") and job["status"] in LIVE
    }
    known = {name: each for name in jobs if (each := _read(workspace, name)) is not None}
    # The driver of one that has several nodes runs before these are there.
    waiting = [name for name in known if waits(workspace, name)]
    found = [Queued(token=name, waits=False) for name in known if name not in waiting]
    if not waiting or token not in known:
        return found
    at_work: dict[str, list[Need]] = defaultdict(list)
    for name in known.keys() - waiting:
        # Where the agents of several nodes are is not known: these count as somebody else's.
        if known[name].shape.nodes == 1:
            at_work[str(jobs[name].get("driver_node_id"))].append(need_from(known[name]))
    present, used = nodes(api, deadline_s=deadline_s), in_use(api, deadline_s=deadline_s)
    parts = [
        # An autoscaler that adds nodes keeps its account by their addresses.
        part_of(node, used.get(node.node_id) or used.get(node.host, {}), at_work[node.node_id])
        for node in present
    ]
    mine, where = need_from(known[token]), str(jobs[token].get("driver_node_id"))
    return found + [
        Queued(token=name, waits=True)
        for name in waiting
        if would_help(mine, where, need_from(known[name]), known[name].shape.nodes, parts)
    ]


def part_of(node: Node, used: Mapping[str, float], ours: list[Need]) -> Part:
    """Return what a node has for us, from what is used of it and what our agents have of that."""
    whole = Part(node=node, ours=ours)
    gpus, cpus = whole.taken
    free_of_others = {
        "GPU": node.gpus - max(0.0, used.get("GPU", 0.0) - gpus),
        "CPU": node.cpus - max(0.0, used.get("CPU", 0.0) - cpus),
    }
    return changed(whole, node=changed(node, resources={**node.resources, **free_of_others}))


def would_help(mine: Need, where: str, other: Need, nodes_each: int, parts: list[Part]) -> bool:
    """Return whether an agent has what a waiting allocation lacks.

    Only what is given back on one node, or as many as it asks for, adds up: these are the nodes
    with the least to give back.

    Args:
        mine: what the agent has.
        where: the id of its node.
        other: what the waiting allocation asks of each of its nodes.
        nodes_each: how many nodes it asks for.
        parts: the cluster's nodes.
    """
    able = [part for part in parts if other.fits(part.node)]
    able.sort(key=lambda part: (part.taken, part.node.node_id))
    for part in able[:nodes_each]:
        if part.node.node_id == where:
            lacks_gpus, lacks_cpus = part.lacks(other)
            return bool((lacks_gpus and mine.gpus) or (lacks_cpus and mine.cpus))
    return False


def _read(workspace: Workspace, token: str) -> Allocation | None:
    try:
        return read_allocation(workspace.allocation(token)) if token.startswith("vtj-") else None
    except DamagedFile:
        return None
