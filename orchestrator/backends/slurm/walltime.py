"""How long a job may take whose grid does not say, and how long it must take at least."""

import contextlib
import os
import pwd
import time
from collections.abc import Iterable, Mapping
from typing import Any

from ....jobs.errors import BadInput, Problem, SchedulerUnreachable
from ....jobs.units import format_duration
from ....jobs.workspace.allocation import Shape
from .cluster import FRESH_S
from .partitions import Partition, duration_s
from .shell import NoAccounting, ask

# SLURM may send the walltime's signal so much too early: it looks at its jobs from time to time.
EARLY_S = 60
# Until a run can save its first step: imports, data, model.
START_S = 30
# SLURM counts walltimes in minutes.
_MINUTE_S = 60

_KNOWN: dict[tuple[str | None, str | None], tuple[float, list[int]]] = {}


def default_walltime(
    site: Mapping[str, Any], parts: Iterable[Partition], *, deadline_s: float
) -> int | None:
    """Return the time limit in seconds that SLURM gives a job which asks for none.

    Args:
        site: the backend's settings.
        parts: the partitions that the job may start in; the shortest limit counts.
        deadline_s: how long accounting may take over its answer.
    """
    # Without a default the longest time is the limit.
    found = [duration_s(part.facts.get("DefaultTime", "")) or part.limit_s for part in parts]
    limits = [limit for limit in found if limit is not None]
    limits += _known_of_accounts(site.get("account"), site.get("qos"), deadline_s=deadline_s)
    return min(limits, default=None)


def _known_of_accounts(account: str | None, qos: str | None, *, deadline_s: float) -> list[int]:
    known, found = _KNOWN.get((account, qos), (-FRESH_S, []))
    if time.monotonic() - known < FRESH_S:
        return found
    found = []
    # Where nobody keeps accounts there is no limit of theirs.
    with contextlib.suppress(NoAccounting, SchedulerUnreachable):
        found = _of_accounts(account, qos, deadline_s=deadline_s)
    _KNOWN[account, qos] = (time.monotonic(), found)
    return found


def _of_accounts(account: str | None, qos: str | None, *, deadline_s: float) -> list[int]:
    name = pwd.getpwuid(os.getuid()).pw_name
    command = ["sacctmgr", "-nP", "show", "associations", f"user={name}"]
    text = ask([*command, "format=Account,MaxWall,DefaultQOS"], deadline_s=deadline_s)
    found, chosen = [], {qos} if qos else set()
    for line in text.splitlines():
        its_account, limit, default = line.split("|")
        if account in (None, its_account):
            found.append(duration_s(limit))
            chosen |= set() if qos else {default}
    text = ask(["sacctmgr", "-nP", "show", "qos", "format=Name,MaxWall"], deadline_s=deadline_s)
    found += [
        duration_s(limit)
        for its_name, limit in (line.split("|") for line in text.splitlines())
        if its_name in chosen
    ]
    return [limit for limit in found if limit is not None]


def check_walltime(shape: Shape) -> None:
    """Refuse a walltime that may end before a run has saved anything.

    Raises:
        BadInput: with the walltime that it takes.
    """
    if shape.walltime_s is None:
        return
    left = shape.walltime_s - shape.lead_s - EARLY_S
    if left >= START_S:
        return
    # The lead is at most a quarter of the walltime.
    need = min(shape.lead_s + EARLY_S + START_S, (EARLY_S + START_S) * 4 / 3)
    minutes = -int(-need // _MINUTE_S)
    message = (
        f"{format_duration(shape.walltime_s)} may end before a run reaches its first checkpoint:"
        f" runs save {shape.lead_s} s before the end, and SLURM may tell them {EARLY_S} s earlier"
    )
    fix = f"Ask for {format_duration(minutes * _MINUTE_S)} at least"
    raise BadInput(Problem(key="walltime", message=message, fix=fix))
