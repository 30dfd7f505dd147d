"""Partitions that do not let a job in, as far as that can be known before it is submitted.

Where EnforcePartLimits is NO, SLURM takes such a job and never starts it; sbatch --test-only says
nothing either.
"""

import contextlib
import grp
import os
import pwd
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ....jobs.errors import BadInput, Problem, SchedulerUnreachable
from ....jobs.units import format_duration
from ....jobs.values import Value
from . import cluster
from .partitions import Partition, duration_s
from .shell import NoAccounting, ask

# From here on a list of accounts includes the accounts below them, which a user may not see.
_ACCOUNTS_ARE_TREES = (23, 11)


class Credentials(Value, frozen=True, kw_only=True):
    """As what a job would come; None and "" where that is not known."""

    account: str | None = None
    qos: str | None = None
    groups: frozenset[str] | None = None
    """None where SLURM lets this user in whatever the groups."""
    most_s: int | None = None
    """The longest walltime that QOS or account allow."""
    limited_by: str = ""
    """Whose limit that is."""


def require_open(
    site: Mapping[str, Any],
    parts: Sequence[Partition],
    walltime_s: int | None,
    *,
    deadline_s: float,
) -> None:
    """Refuse a job that none of its partitions would ever let in.

    Raises:
        BadInput: with what keeps it out.
        SchedulerUnreachable: the controller could not be asked.
    """
    config = cluster.settings(deadline_s=deadline_s)
    own = credentials(site, config, deadline_s=deadline_s)
    problems = [closed(part, own, walltime_s) for part in parts]
    wrong = [problem for problem in problems if problem is not None]
    if wrong and len(wrong) == len(problems):
        message = "; ".join(dict.fromkeys(problem.message for problem in wrong))
        raise BadInput(Problem(key=wrong[0].key, message=message, fix=wrong[0].fix))


def credentials(
    site: Mapping[str, Any], config: Mapping[str, str], *, deadline_s: float
) -> Credentials:
    """Return as what a job with these settings would come."""
    rows: list[list[str]] = []
    walls: dict[str, int | None] = {}
    # A site may keep no accounting, or not let its users look.
    with contextlib.suppress(NoAccounting, SchedulerUnreachable):
        rows = _table(
            "user",
            _user(),
            "withassoc",
            fields="DefaultAccount,Account,DefaultQOS,QOS,MaxWall",
            deadline_s=deadline_s,
        )
        named = _table("qos", fields="Name,MaxWall", deadline_s=deadline_s)
        walls = {row[0]: duration_s(row[1]) for row in named}
    account = site.get("account") or next((row[0] for row in rows if row[0]), None)
    mine = [row for row in rows if row[1] == account]
    qos = site.get("qos") or _default_qos(mine)
    most, whose = walls.get(qos or ""), f"QOS {qos}"
    if most is None and len(mine) == 1:
        most, whose = duration_s(mine[0][4]), f"account {account}"
    if "limits" not in config.get("AccountingStorageEnforce", ""):
        most = None
    version = tuple(map(int, re.findall(r"[0-9]+", config.get("SLURM_VERSION", "99"))[:2]))
    return Credentials(
        account=account if version < _ACCOUNTS_ARE_TREES else None,
        qos=qos,
        groups=_groups(),
        most_s=most,
        limited_by=whose,
    )


def closed(part: Partition, own: Credentials, walltime_s: int | None) -> Problem | None:
    """Return why a partition would not let a job in; None where nothing is known to keep it out."""
    for key, names in (("account", {own.account}), ("qos", {own.qos}), ("groups", own.groups)):
        if found := _kept_out(part, key, frozenset(filter(None, names or ()))):
            return found
    is_shorter = own.most_s is not None and (walltime_s or 0) > own.most_s
    # A partition's own QOS may allow more.
    if is_shorter and part.facts.get("QoS", "N/A") == "N/A":
        asked, most = format_duration(walltime_s or 0), format_duration(own.most_s or 0)
        message = f"{asked} exceeds the {most} of {own.limited_by}"
        return Problem(key="walltime", message=message, fix="SLURM would never start it")
    return None


# Key of the settings -> how the lists of a partition end, what is in them, and what helps.
_LISTS = {
    "account": ("Accounts", "account", "Set slurm.account; see: sacctmgr show associations"),
    "qos": ("Qos", "QOS", "Set slurm.qos; see: sacctmgr show qos"),
    "groups": ("Groups", "group", "Set slurm.partition; see: scontrol show partition"),
}


def _kept_out(part: Partition, key: str, names: frozenset[str]) -> Problem | None:
    """Return how a partition's lists keep somebody out who comes with one of these names."""
    what, called, fix = _LISTS[key]
    allowed, denied = (_names(part.facts.get(f"{word}{what}")) for word in ("Allow", "Deny"))
    folded = {name.lower() for name in names}
    if not folded or not (allowed or denied):
        return None
    if allowed and not folded & allowed:
        known = f", not {', '.join(sorted(names))}" if key != "groups" else ""
        message = f"partition {part.name} is open to {called} {', '.join(sorted(allowed))}{known}"
    elif not allowed and folded <= denied:
        message = f"partition {part.name} is closed to {called} {', '.join(sorted(names))}"
    else:
        return None
    return Problem(key="partition" if key == "groups" else key, message=message, fix=fix)


def _names(text: str | None) -> set[str]:
    return {name.lower() for name in (text or "").split(",")} - {"", "all", "(null)", "n/a"}


def _default_qos(rows: Sequence[Sequence[str]]) -> str | None:
    found = {row[2] or (row[3] if "," not in row[3] else "") for row in rows}
    return found.pop() or None if len(found) == 1 else None


def _groups() -> frozenset[str] | None:
    """Return the groups of this user; None where they cannot be told, or do not count."""
    if os.getuid() == 0:
        return None
    try:
        return frozenset(grp.getgrgid(one).gr_name for one in {os.getgid(), *os.getgroups()})
    except KeyError:
        return None


def _user() -> str:
    return pwd.getpwuid(os.getuid()).pw_name


def _table(*words: str, fields: str, deadline_s: float) -> list[list[str]]:
    command = ["sacctmgr", "-nP", "show", *words, f"format={fields}"]
    width = fields.count(",") + 1
    lines = ask(command, deadline_s=deadline_s).splitlines()
    return [row for line in lines if len(row := line.split("|")) == width]
