"""What one job asks of a site: how many runs share it, and its CPUs and memory.

Judged by the nodes that can serve it, in each partition of the list: a node without GPUs says
nothing of a run that needs some.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ....jobs.errors import BadInput, Problem, suggest
from ....jobs.units import format_duration
from ....jobs.values import Value
from ....jobs.workspace.allocation import Shape
from .partitions import Nodes, Partition

# Other ways to ask for memory: sbatch takes one.
MEMORY = frozenset(("mem-per-gpu", "mem-per-cpu"))
# Many sites keep some of a node's memory for the system, and SLURM does not tell how much.
GIVEN_OUT = 0.95
# Of --mem, as powers of two.
UNITS = {"K": 10, "M": 20, "G": 30, "T": 40}


class Request(Value, frozen=True, kw_only=True):
    """What one job asks for on each node."""

    lanes: int
    """Runs at a time."""
    cpus: int
    is_exclusive: bool
    """Whether the node is to be its own."""
    mem: str | None = None
    """As --mem takes it; None: nothing is asked for."""
    memory_bytes: int | None = None
    """What its runs share on a node by that; None where the site has a default of its own."""


def request(
    shape: Shape,
    site: Mapping[str, Any],
    pack: str | int,
    parts: Sequence[Partition],
    *,
    gives_memory: bool,
) -> Request:
    """Return what a job with runs of this shape asks for.

    Args:
        shape: of one run.
        site: the site's settings.
        pack: resources.pack of the grid.
        parts: the partitions that the job may run in.
        gives_memory: whether the cluster has a default for jobs that ask for no memory.

    Raises:
        BadInput: no partition can ever run one; SLURM itself would let it wait for ever.
    """
    if shape.nodes > 1 and shape.gpus and site.get("gpu_option") == "gpus":
        # SLURM might divide the sum unevenly among the nodes.
        message = "gpus is for runs on one node"
        raise BadInput(Problem(key="gpu_option", message=message, fix="Use gpus-per-node or gres"))
    able = _able(shape, site, parts)
    serving = [nodes for part in able for nodes in _serving(shape, part, site)]
    whole = any(part.is_exclusive for part in able)
    lanes = _lanes(shape, pack, serving, whole=whole)
    if shape.gpus:
        serving = [one for one in serving if one.gpus_of(shape.gpu) >= shape.gpus_of(lanes)]
    # Runs that share one GPU take no more of a node than one of them.
    is_exclusive = lanes > shape.per_gpu or whole
    cpus = _cpus(shape, site, serving, lanes)
    mem = site.get("mem")
    is_given = gives_memory or all(part.gives_memory for part in able)
    if not (mem or is_exclusive or is_given or MEMORY & site.get("extra", {}).keys()):
        # SLURM would give each job all the memory of its node, and the node to nobody else.
        mem = _memory(shape, lanes, cpus, serving, able)
    whole_mb = min((nodes.memory_mb for nodes in serving), default=0) if is_exclusive else 0
    return Request(
        lanes=lanes,
        cpus=cpus,
        is_exclusive=is_exclusive,
        mem=mem,
        # A site that does not say how much its nodes have gives them 1 MB.
        memory_bytes=_bytes_of(mem) or (whole_mb << 20 if whole_mb > 1 else None),
    )


def _bytes_of(mem: str | None) -> int | None:
    """Return the bytes that --mem names; None where it names none, or all of a node."""
    found = re.fullmatch(r"(\d+)([KMGT]?)B?", (mem or "").strip().upper())
    return None if found is None else int(found[1]) << UNITS[found[2] or "M"]


def chosen(site: Mapping[str, Any], parts: Mapping[str, Partition]) -> list[Partition]:
    """Return the partitions that the site's settings name, or the cluster's default.

    Raises:
        BadInput: there is no such partition.
    """
    if names := [name for name in (site.get("partition") or "").split(",") if name]:
        for name in names:
            if name not in parts:
                message = f"unknown partition {name!r}"
                raise BadInput(Problem(key="partition", message=message, fix=suggest(name, parts)))
        return [parts[name] for name in names]
    found = [part for part in parts.values() if part.is_default]
    if not found:
        fix = f"Allowed: {', '.join(sorted(parts))}"
        message = "this cluster has no default partition"
        raise BadInput(Problem(key="partition", message=message, fix=fix))
    return found


def default_gpus(
    site: Mapping[str, Any], kind: str | None, virtual_ranks: int, parts: Sequence[Partition]
) -> int:
    """Return as many GPUs as a node has and the virtual ranks can be divided among.

    Of nodes that differ, those count with which the most GPUs can be at work.
    """
    offers = [nodes for part in parts for nodes in _offer(part, site)]
    present = {nodes.gpus_of(kind) for nodes in offers}
    counts = {_divisor(virtual_ranks, gpus) for gpus in present} - {0}
    busy = {
        count: sum(one.count * (one.gpus_of(kind) // count * count) for one in offers)
        for count in counts
    }
    return max(counts, key=lambda count: (busy[count], count), default=0)


def _divisor(ranks: int, most: int) -> int:
    return max((count for count in range(1, most + 1) if ranks % count == 0), default=0)


def _offer(part: Partition, site: Mapping[str, Any]) -> list[Nodes]:
    return part.offer(constraint=site.get("constraint"), node_gpus=site.get("node_gpus"))


def _serving(shape: Shape, part: Partition, site: Mapping[str, Any]) -> list[Nodes]:
    """Return the nodes of a partition that have the GPUs of one run."""
    return [nodes for nodes in _offer(part, site) if nodes.gpus_of(shape.gpu) >= shape.gpus]


def _able(shape: Shape, site: Mapping[str, Any], parts: Sequence[Partition]) -> list[Partition]:
    """Return the partitions that can run it."""
    problems = {part.name: _problem(shape, site, part) for part in parts}
    able = [part for part in parts if problems[part.name] is None]
    if able:
        return able
    wrong = [problem for problem in problems.values() if problem is not None]
    if len(wrong) == 1:
        raise BadInput(wrong[0])
    message = "; ".join(problem.message for problem in wrong)
    raise BadInput(Problem(key=wrong[0].key, message=message, fix=wrong[0].fix))


def _problem(shape: Shape, site: Mapping[str, Any], part: Partition) -> Problem | None:
    """Return why a partition can never run it."""
    offers = _offer(part, site)
    if part.nodes and not offers:
        message = f"no node of partition {part.name} has {site.get('constraint')}"
        return Problem(key="constraint", message=message, fix="See: sinfo -o '%P %f'")
    if shape.gpu and part.kinds and shape.gpu not in part.kinds:
        message = f"partition {part.name} has no {shape.gpu}"
        return Problem(key="gpu", message=message, fix=suggest(shape.gpu, part.kinds))
    most = max((nodes.gpus_of(shape.gpu) for nodes in offers), default=0)
    kind = f" {shape.gpu}" if shape.gpu else ""
    if most < shape.gpus:
        message = f"{shape.gpus} requested, a node of partition {part.name} has {most}{kind}"
        return Problem(key="gpus_per_node", message=message)
    there = sum(nodes.count for nodes in _serving(shape, part, site))
    if shape.nodes > there:
        able = f" with {shape.gpus}{kind} GPUs" if shape.gpus and there < part.count else ""
        message = f"{shape.nodes} requested, partition {part.name} has {there}{able}"
        return Problem(key="nodes", message=message)
    if part.limit_s is not None and (shape.walltime_s or 0) > part.limit_s:
        limit = format_duration(part.limit_s)
        message = (
            f"{format_duration(shape.walltime_s or 0)} exceeds the {limit} of partition {part.name}"
        )
        return Problem(key="walltime", message=message, fix="SLURM would never start it")
    if not part.is_up:
        message = f"partition {part.name} is down; jobs there would wait"
        return Problem(key="partition", message=message)
    return None


def _lanes(shape: Shape, pack: str | int, serving: Sequence[Nodes], *, whole: bool) -> int:
    """Return how many runs share a node.

    As many as fit where nodes are given out whole, or where the grid says so.
    """
    if shape.nodes > 1 or pack == "none" or not shape.gpus:
        return shape.per_gpu if isinstance(pack, str) else pack
    fits = {max(shape.per_gpu, shape.lanes_on(nodes.gpus_of(shape.gpu))) for nodes in serving}
    if isinstance(pack, int):
        if pack > max(fits):
            most = max(nodes.gpus_of(shape.gpu) for nodes in serving)
            each = f"{shape.gpus} GPUs" if shape.per_gpu == 1 else f"1/{shape.per_gpu} GPU"
            message = f"{pack} runs of {each} do not fit on a node with {most}"
            raise BadInput(Problem(key="pack", message=message))
        return pack
    if not whole:
        return shape.per_gpu
    # Nodes that differ: as many to a node as lets the most runs train at a time.
    return max(fits, key=lambda lanes: (_at_once(lanes, shape, serving), lanes))


def _at_once(lanes: int, shape: Shape, serving: Sequence[Nodes]) -> int:
    gpus = shape.gpus_of(lanes)
    return lanes * sum(one.count for one in serving if one.gpus_of(shape.gpu) >= gpus)


def _cpus(shape: Shape, site: Mapping[str, Any], serving: Sequence[Nodes], lanes: int) -> int:
    """Return the CPUs of a job on one node: its GPUs' share of the node that has the least."""
    need = shape.ranks * shape.threads * lanes
    most = max(nodes.cpus for nodes in serving)
    if not shape.gpus:
        return min(need, most)
    gpus = shape.gpus_of(lanes)
    each = site.get("cpus_per_gpu")
    share = each * gpus if each else min(_share(nodes, gpus) for nodes in serving)
    return min(most, max(need, share))


def _share(nodes: Nodes, gpus: int) -> int:
    """Return the CPUs that go with so many of a node's GPUs."""
    share = max(1, nodes.cpus // max(1, nodes.all_gpus)) * gpus
    # Whole cores: a part of one is rounded up, and the last GPUs of the node would be left over.
    return share - share % nodes.threads if share > nodes.threads else share


def _memory(
    shape: Shape, lanes: int, cpus: int, serving: Sequence[Nodes], parts: Sequence[Partition]
) -> str | None:
    """Return the memory that goes with a job's GPUs, or with its CPUs where it has none."""
    shares = [
        nodes.memory_mb * shape.gpus_of(lanes) / nodes.all_gpus
        if shape.gpus
        else nodes.memory_mb * min(1.0, cpus / nodes.cpus)
        for nodes in serving
    ]
    most = [limit for part in parts if (limit := _most_memory(part, cpus)) is not None]
    share = int(min([*(share * GIVEN_OUT for share in shares), *most]))
    # A site that does not say how much its nodes have gives them 1 MB.
    return f"{share}M" if share > 1 else None


def _most_memory(part: Partition, cpus: int) -> int | None:
    """Return the most memory in MB that a job may ask for on a node of a partition."""
    for name, times in (("MaxMemPerNode", 1), ("MaxMemPerCPU", cpus)):
        if (text := part.facts.get(name, "")).isdigit():
            return int(text) * times
    return None
