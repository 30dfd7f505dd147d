"""What a cluster offers and allows.

Its partitions, its nodes' GPUs, the limits of arrays and of this user.
"""

import contextlib
import os
import pwd
import re
import time
from dataclasses import dataclass, field

from ....jobs.errors import SchedulerUnreachable
from .shell import NoAccounting, ask

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much may be submitted."""

    array_size: int
    """Elements of one array."""
    jobs: int | None
    """Of this user at a time; None where the site has no such limit."""


# Site limits change seldom, and accounting answers slowly.
FRESH_S = 60.0
_MOST_TASKS = re.compile(r"\bmax_array_tasks=([0-9]+)")
_KNOWN: dict[tuple[str | None, str | None], tuple[float, Limits | None]] = {}


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


def limits(*, account: str | None, qos: str | None, deadline_s: float) -> Limits:
    """Return the limits that hold for this user, as they were within the last minute.

    Raises:
        SchedulerUnreachable: the controller could not be asked. Accounting that cannot be asked
            sets no limit: SLURM itself will say so.
    """
    known, found = _KNOWN.get((account, qos), (0.0, None))
    if found is not None and time.monotonic() - known < FRESH_S:
        return found
    config = settings(deadline_s=deadline_s)
    jobs = _number(config.get("MaxJobCount", ""))
    with contextlib.suppress(NoAccounting, SchedulerUnreachable):
        for limit in _submit_limits(account, qos, deadline_s=deadline_s):
            jobs = limit if jobs is None else min(jobs, limit)
    # Indices run from 0 to MaxArraySize - 1. A second limit counts the elements.
    size = _number(config.get("MaxArraySize", "")) or 1001
    if match := _MOST_TASKS.search(config.get("SchedulerParameters", "")):
        size = max(1, min(size, int(match[1])))
    found = Limits(array_size=size, jobs=jobs)
    _KNOWN[account, qos] = (time.monotonic(), found)
    return found


def settings(*, deadline_s: float) -> dict[str, str]:
    """Return the controller's configuration."""
    found: dict[str, str] = {}
    for line in ask(["scontrol", "show", "config"], deadline_s=deadline_s).splitlines():
        name, equals, value = line.partition("=")
        if equals:
            found[name.strip()] = value.strip()
    return found


def _submit_limits(account: str | None, qos: str | None, *, deadline_s: float) -> list[int]:
    name = pwd.getpwuid(os.getuid()).pw_name
    fields = "format=Account,MaxSubmitJobs,GrpSubmitJobs,QOS,DefaultQOS"
    text = ask(
        ["sacctmgr", "-nP", "show", "associations", f"user={name}", fields], deadline_s=deadline_s
    )
    found: list[int | None] = []
    chosen = {qos} if qos else set()
    for line in text.splitlines():
        its_account, most, group, every, default = line.split("|")
        if account in (None, its_account):
            found += [_number(most), _number(group)]
            if not qos:
                chosen |= (
                    {default}
                    if default
                    else set(every.split(","))
                    if every.count(",") == 0
                    else set()
                )
    chosen.discard("")
    if chosen:
        fields = "format=Name,MaxSubmitJobsPU,GrpSubmitJobs"
        for line in ask(
            ["sacctmgr", "-nP", "show", "qos", fields], deadline_s=deadline_s
        ).splitlines():
            qos_name, most, group = line.split("|")
            if qos_name in chosen:
                found += [_number(most), _number(group)]
    return [limit for limit in found if limit is not None]


def _number(text: str) -> int | None:
    return int(text) if text.strip().isdigit() else None
