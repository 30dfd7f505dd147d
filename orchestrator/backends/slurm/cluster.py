"""What a cluster offers and allows.

Its partitions, its nodes' GPUs, its controller's configuration.
"""

import re
from dataclasses import dataclass, field

from .shell import ask

_GPUS = re.compile(r"gpu(?::(?P<kind>[\w.-]+))?:(?P<count>[0-9]+)")
_TIME = re.compile(
    r"(?:(?P<days>[0-9]+)-)?(?:(?P<hours>[0-9]+):)?(?P<minutes>[0-9]+):(?P<seconds>[0-9]+)\Z"
)


@dataclass(slots=True, kw_only=True)
class Partition:
    """A partition: the largest node in it stands for all."""

    name: str
    is_default: bool = False
    is_up: bool = True
    is_exclusive: bool = False
    """Whole nodes are given out."""
    limit_s: int | None = None
    nodes: int = 0
    gpus: int = 0
    kinds: set[str] = field(default_factory=set)
    cpus: int = 1


# What a site allows changes seldom.
FRESH_S = 60.0


def partitions(*, deadline_s: float) -> dict[str, Partition]:
    """Return the partitions by name.

    Raises:
        SchedulerUnreachable: the controller could not be asked.
    """
    found: dict[str, Partition] = {}
    command = ["sinfo", "--all", "--noheader", "--format=%P|%a|%l|%h|%D|%c|%G"]
    for line in ask(command, deadline_s=deadline_s).splitlines():
        name, up, limit, shared, nodes, cpus, gres = line.split("|", 6)
        part = found.setdefault(name.rstrip("*"), Partition(name=name.rstrip("*")))
        part.is_default |= name.endswith("*")
        part.is_up = up == "up"
        part.is_exclusive = shared == "EXCLUSIVE"
        part.limit_s = duration_s(limit)
        part.nodes += int(nodes)
        part.cpus = max(part.cpus, int(cpus.rstrip("+") or 1))
        for match in _GPUS.finditer(gres):
            part.gpus = max(part.gpus, int(match["count"]))
            part.kinds |= {match["kind"]} if match["kind"] else set()
    return found


def duration_s(text: str) -> int | None:
    """Read SLURM's way to write a time limit, such as `1-00:00:00`; None for infinite."""
    match = _TIME.match(text.strip())
    if match is None:
        return None
    days, hours, minutes, seconds = (
        int(match[name] or 0) for name in ("days", "hours", "minutes", "seconds")
    )
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def settings(*, deadline_s: float) -> dict[str, str]:
    """Return the controller's configuration."""
    found: dict[str, str] = {}
    for line in ask(["scontrol", "show", "config"], deadline_s=deadline_s).splitlines():
        name, equals, value = line.partition("=")
        if equals:
            found[name.strip()] = value.strip()
    return found
