"""What a Ray cluster has: its nodes, and how many places of a shape fit them."""

from collections.abc import Iterable, Mapping
from typing import Any

from ....jobs.documents import Document
from ....jobs.errors import BadInput, Problem, SchedulerUnreachable, suggest
from ....jobs.values import Value, field
from ....jobs.workspace.allocation import Allocation, Shape
from .api import Api, Refused

MOST_NODES = 10_000
METADATA_S = 10.0
KIND = "accelerator_type:"


class Node(Value, frozen=True, kw_only=True):
    """A node that is alive."""

    node_id: str
    host: str
    """Its address, which is Ray's name for it."""
    resources: dict[str, float] = field(default_factory=dict)

    @property
    def gpus(self) -> int:
        return int(self.resources.get("GPU", 0))

    @property
    def cpus(self) -> int:
        return int(self.resources.get("CPU", 0))

    @property
    def kinds(self) -> set[str]:
        """The kinds of GPU, in lower case."""
        return {name.removeprefix(KIND).lower() for name in self.resources if name.startswith(KIND)}


class Need(Value, frozen=True, kw_only=True):
    """What a place takes of each of its nodes."""

    gpus: int
    cpus: int
    kind: str | None = None
    spelled: str = ""
    """The kind as the nodes spell it."""
    custom: Mapping[str, float] = field(default_factory=dict)

    def fits(self, node: Node) -> int:
        """Return how many of it fit on a node."""
        if self.kind is not None and self.kind not in node.kinds:
            return 0
        parts: list[tuple[float, float]] = [(self.gpus, node.gpus), (self.cpus, node.cpus)]
        parts += [(amount, node.resources.get(name, 0.0)) for name, amount in self.custom.items()]
        return min(int(has // takes) for takes, has in parts if takes)

    def as_resources(self) -> dict[str, float]:
        """Return the custom resources to ask for.

        A kind of GPU is one, of which a trace will do.
        """
        kind = {KIND + (self.spelled or self.kind.upper()): 0.001} if self.kind else {}
        return {**self.custom, **kind}

    def __str__(self) -> str:
        kind = f" {self.kind}" if self.kind else ""
        gpus = [f"{self.gpus}{kind} GPUs"] if self.gpus else []
        return " and ".join(
            [
                *gpus,
                f"{self.cpus} CPUs",
                *(f"{value:g} {name}" for name, value in self.custom.items()),
            ]
        )


class Versions(Document, frozen=True, kw_only=True):
    """What has to be the same in a cluster and in whoever joins it."""

    ray_version: str
    python_version: str

    def __str__(self) -> str:
        return f"Ray {self.ray_version} on Python {self.python_version}"


def versions(api: Api) -> Versions | None:
    """Return what a cluster was started with; None where it does not say.

    Raises:
        SchedulerUnreachable: it could not be asked.
    """
    try:
        answer = api.ask("/api/v0/cluster_metadata", deadline_s=METADATA_S)
        found = answer["data"]
        return Versions(ray_version=found["rayVersion"], python_version=found["pythonVersion"])
    except (Refused, KeyError, TypeError):
        return None


def nodes(api: Api, *, deadline_s: float) -> list[Node]:
    """Return the nodes that are alive.

    Raises:
        SchedulerUnreachable, Refused: see Api.ask.
    """
    answer = api.ask(f"/api/v0/nodes?detail=1&limit={MOST_NODES}", deadline_s=deadline_s)
    try:
        return [_node(row) for row in answer["data"]["result"]["result"] if row["state"] == "ALIVE"]
    except (KeyError, TypeError):
        raise SchedulerUnreachable(f"Ray at {api.address}: unexpected answer about nodes") from None


def in_use(api: Api, *, deadline_s: float) -> dict[str, dict[str, float]]:
    """Return what is taken of each node's resources, by its id or address, as of some seconds ago.

    Empty where the head keeps no such account.

    Raises:
        SchedulerUnreachable, Refused: see Api.ask.
    """
    answer = api.ask("/api/cluster_status", deadline_s=deadline_s)
    try:
        nodes_used = answer["data"]["clusterStatus"]["loadMetricsReport"]["usageByNode"] or {}
        return {
            node_id: {name: float(taken) for name, (taken, _) in amounts.items()}
            for node_id, amounts in nodes_used.items()
        }
    except (AttributeError, KeyError, TypeError, ValueError):
        return {}


def _node(row: Mapping[str, Any]) -> Node:
    return Node(
        node_id=row["node_id"],
        host=row["node_ip"],
        resources=dict(row.get("resources_total") or {}),
    )


def need_of(shape: Shape, lanes: int, site: Mapping[str, Any], present: Iterable[Node]) -> Need:
    """Return what a place of this shape takes of each of its nodes."""
    least = shape.ranks * shape.threads * lanes
    gpus, kind = shape.gpus_of(lanes), shape.gpu.lower() if shape.gpu else None
    able = [node for node in present if kind is None or kind in node.kinds]
    roomy = [node for node in able if node.gpus >= gpus] if gpus else []
    # A GPU's share of its node's cores, on the node where that is least.
    share = min((node.cpus // node.gpus for node in roomy), default=0)
    cpus = max(least, (site.get("cpus_per_gpu") or share) * gpus) if gpus else least
    if roomy:
        cpus = min(cpus, max(least, min(node.cpus for node in roomy)))
    names = [
        name.removeprefix(KIND) for node in able for name in node.resources if name.startswith(KIND)
    ]
    spelled = next((name for name in names if name.lower() == kind), "")
    return Need(
        gpus=gpus, cpus=cpus, kind=kind, spelled=spelled, custom=site.get("resources") or {}
    )


def need_from(allocation: Allocation) -> Need:
    """Return what a place of an allocation takes, as it was submitted."""
    site, kind = allocation.site, allocation.shape.gpu.lower() if allocation.shape.gpu else None
    custom = {name: amount for name, amount in site["custom"].items() if not name.startswith(KIND)}
    return Need(gpus=site["gpus"], cpus=site["cpus"], kind=kind, custom=custom)


def places_at_a_time(need: Need, nodes_each: int, present: Iterable[Node]) -> int:
    """Return how many places the cluster can host at once, were it empty."""
    fits = [need.fits(node) for node in present]
    if nodes_each == 1:
        return sum(fits)
    # As many as have that many different nodes each: the largest n with n · nodes_each <= Σ
    # min(fits, n).
    count = 0
    while sum(min(fit, count + 1) for fit in fits) >= (count + 1) * nodes_each:
        count += 1
    return count


def check(need: Need, shape: Shape, present: list[Node]) -> None:
    """Refuse what these nodes can never host: Ray itself would let it wait.

    Raises:
        BadInput: with what the largest node has.
    """
    later = "If the cluster adds such nodes on demand, set backend.ray.autoscale: true"
    if not present:
        raise BadInput(Problem(key="address", message="this cluster has no nodes", fix=later))
    kinds = set().union(*(node.kinds for node in present))
    if need.kind is not None and need.kind not in kinds:
        fix = (
            suggest(need.kind, kinds)
            if kinds
            else "Start its nodes with an accelerator type, or remove resources.gpu"
        )
        raise BadInput(
            Problem(key="gpu", message=f"this cluster has no {need.kind}", fix=f"{fix}. {later}")
        )
    able = [node for node in present if need.fits(node)]
    if len(able) >= shape.nodes:
        return
    if able:
        message = f"{shape.nodes} requested, {len(able)} of this cluster's nodes have {need}"
        raise BadInput(Problem(key="nodes", message=message, fix=later))
    most = max(present, key=lambda node: (node.gpus, node.cpus))
    missing = sorted(
        name for name in need.custom if not any(node.resources.get(name) for node in present)
    )
    if missing:
        raise BadInput(
            Problem(key="resources", message=f"no node has the resource {missing[0]!r}", fix=later)
        )
    key = "gpus_per_node" if need.gpus > most.gpus else "threads"
    largest = f"the largest node of this cluster has {most.gpus} GPUs and {most.cpus} CPUs"
    message = f"a run needs {need} on one node, {largest}"
    raise BadInput(Problem(key=key, message=message, fix=later))
