"""The partitions of a cluster: their nodes by kind, their limits, and whom they let in."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from ....jobs.values import Value, changed
from .shell import ask

_GPUS = re.compile(r"gpu(?::(?P<kind>[\w.-]+))?:(?P<count>[0-9]+)")
_TIME = re.compile(
    r"(?:(?P<days>[0-9]+)-)?(?:(?P<hours>[0-9]+):)?(?P<minutes>[0-9]+):(?P<seconds>[0-9]+)\Z"
)
_DEFAULT_MEMORY = re.compile(r"DefMemPer(?:CPU|Node|GPU)\s*=\s*[1-9]")
# Any combination of features that is more than names joined by one of these is SLURM's to judge.
_ANY, _ALL = re.compile(r"[\w.-]+(?:\|[\w.-]+)*\Z"), re.compile(r"[\w.-]+(?:[&,][\w.-]+)*\Z")


class Nodes(Value, frozen=True, kw_only=True):
    """The nodes of a partition that are alike."""

    count: int
    cpus: int = 1
    threads: int = 1
    """Threads of a core. SLURM gives out whole cores."""
    memory_mb: int = 0
    gpus: Mapping[str, int] = {}
    """Type -> GPUs of one node; the type is "" where the site names none."""
    features: frozenset[str] = frozenset()

    @property
    def all_gpus(self) -> int:
        return sum(self.gpus.values())

    def gpus_of(self, kind: str | None) -> int:
        """Return how many GPUs of a type one node has; of any type for None."""
        if kind is None:
            return self.all_gpus
        # SLURM decides about a node whose GPUs have no type.
        return self.gpus.get(kind, self.gpus.get("", 0))

    def has(self, constraint: str | None) -> bool:
        """Return whether the nodes have the features of a constraint, if that can be told."""
        if not constraint:
            return True
        if _ANY.match(constraint):
            return not self.features.isdisjoint(constraint.split("|"))
        if _ALL.match(constraint):
            return self.features.issuperset(re.split("[&,]", constraint))
        return True


@dataclass(slots=True, kw_only=True)
class Partition:
    """A partition."""

    name: str
    is_default: bool = False
    is_up: bool = True
    is_exclusive: bool = False
    """Whole nodes are given out."""
    limit_s: int | None = None
    nodes: list[Nodes] = field(default_factory=list)
    facts: Mapping[str, str] = field(default_factory=dict)
    """What `scontrol show partition` says, by its own names."""

    @property
    def count(self) -> int:
        return sum(nodes.count for nodes in self.nodes)

    @property
    def kinds(self) -> set[str]:
        return {kind for nodes in self.nodes for kind in nodes.gpus if kind}

    @property
    def gives_memory(self) -> bool:
        """Whether a job that asks for no memory gets a default amount here."""
        return any(_DEFAULT_MEMORY.search(f"{name}={text}") for name, text in self.facts.items())

    def offer(self, *, constraint: str | None, node_gpus: int | None) -> list[Nodes]:
        """Return the nodes that have the features, with as many GPUs as the site's settings say."""
        found = [nodes for nodes in self.nodes if nodes.has(constraint)]
        if node_gpus is None:
            return found
        # Where SLURM reports no GPUs at all, each node may have them.
        is_told = any(nodes.gpus for nodes in found)
        return [
            changed(nodes, gpus={next(iter(nodes.gpus), ""): node_gpus})
            if nodes.gpus or not is_told
            else nodes
            for nodes in found
        ]


def partitions(*, deadline_s: float) -> dict[str, Partition]:
    """Return the partitions by name.

    Raises:
        SchedulerUnreachable: the controller could not be asked.
    """
    found: dict[str, Partition] = {}
    # Exact: nodes that differ have lines of their own.
    fields = "--format=%P|%a|%l|%h|%D|%c|%Z|%m|%f|%G"
    command = ["sinfo", "--all", "--exact", "--noheader", fields]
    for line in ask(command, deadline_s=deadline_s).splitlines():
        name, up, limit, shared, count, cpus, threads, memory, features, gres = line.split("|", 9)
        part = found.setdefault(name.rstrip("*"), Partition(name=name.rstrip("*")))
        part.is_default |= name.endswith("*")
        part.is_up = up == "up"
        part.is_exclusive = shared == "EXCLUSIVE"
        part.limit_s = duration_s(limit)
        part.nodes.append(
            Nodes(
                count=int(count),
                cpus=_least(cpus),
                threads=_least(threads),
                memory_mb=_least(memory),
                gpus=_gpus(gres),
                features=frozenset(features.split(",")) - {"(null)", ""},
            )
        )
    for name, facts in _facts(deadline_s=deadline_s).items():
        if name in found:
            found[name].facts = facts
    return found


def _facts(*, deadline_s: float) -> dict[str, dict[str, str]]:
    command = ["scontrol", "--all", "--oneliner", "show", "partition"]
    lines = ask(command, deadline_s=deadline_s).splitlines()
    rows = [dict(word.partition("=")[::2] for word in line.split()) for line in lines]
    return {row["PartitionName"]: row for row in rows if "PartitionName" in row}


def _gpus(gres: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for match in _GPUS.finditer(gres):
        kind = match["kind"] or ""
        found[kind] = found.get(kind, 0) + int(match["count"])
    return found


def _least(text: str) -> int:
    return int(text.rstrip("+") or 1)


def duration_s(text: str) -> int | None:
    """Read SLURM's way to write a time limit, such as `1-00:00:00`; None for infinite."""
    match = _TIME.match(text.strip())
    if match is None:
        return None
    days, hours, minutes, seconds = (
        int(match[name] or 0) for name in ("days", "hours", "minutes", "seconds")
    )
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def gives_memory(config: Mapping[str, str]) -> bool:
    """Return whether a job that asks for no memory gets a default amount in every partition.

    So it is too where memory is not given out at all.
    """
    if "MEMORY" not in config.get("SelectTypeParameters", "").upper():
        return True
    return any(_DEFAULT_MEMORY.search(f"{name}={text}") for name, text in config.items())
