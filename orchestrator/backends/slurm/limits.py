"""How many more jobs SLURM lets this user submit, counted as SLURM counts.

Of each limit the first holds that is set: of the partition's QOS, of the job's, of the user's
association, of its accounts up to the root. A QOS with the flag OverPartQOS comes before the
partition's. How much of a limit is used is what the controller itself counts, jobs of other
users included.
"""

import contextlib
import os
import pwd
import re
import time
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

from ....jobs.errors import SchedulerUnreachable
from ....jobs.values import Value
from . import cluster
from .shell import CommandFailed, NoAccounting, ask, is_away

_MOST_TASKS = re.compile(r"\bmax_array_tasks=([0-9]+)")
_PAIR = re.compile(r"(\w+)=(\S*)")
_USED = re.compile(r"(?P<most>N|[0-9]+)\((?P<used>[0-9]+)\)\Z")
_QOS_OF_PARTITION = re.compile(r"^PartitionName=(\S+).*? QoS=(\S+)", re.M)
# The kinds of AccountingStorageEnforce that have limits enforced.
_ENFORCED = frozenset(("limits", "safe", "all"))
GROUP, OF_USER, OF_ACCOUNT = "GrpSubmitJobs", "MaxSubmitJobsPU", "MaxSubmitJobsPA"
OF_ASSOCIATION = "MaxSubmitJobs"


class Count(Value, frozen=True, kw_only=True):
    """One limit, and how much of it is used."""

    most: int | None = None
    """None: there is no limit."""
    used: int = 0

    @property
    def left(self) -> int:
        return max(0, (self.most or 0) - self.used)


@dataclass(slots=True, kw_only=True)
class Association:
    """A user's or an account's place in the tree of accounts."""

    account: str
    user: str = ""
    partition: str = ""
    parent: str = ""
    is_default: bool = False
    counts: dict[str, Count] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Usage:
    """What the controller counts at this moment."""

    associations: list[Association] = field(default_factory=list)
    qos: dict[str, dict[str, Count]] = field(default_factory=dict)
    """QOS -> limit -> its count; those of a user or an account as `name key`."""


class Rules(Value, frozen=True, kw_only=True):
    """What the site allows, as it was within the last minute."""

    array_size: int
    """Elements of one array."""
    most_jobs: int | None
    """Jobs that the controller holds."""
    is_enforced: bool = False
    """Whether accounting's limits hold."""
    qos: Mapping[str, Mapping[str, int | None]] = {}
    """QOS -> limit -> its number."""
    over_partition: frozenset[str] = frozenset()
    """QOS whose limits come before the partition's."""
    default_qos: Mapping[tuple[str, str], str] = {}
    """Account and partition of an association of this user's -> the QOS of jobs that name none."""
    partition_qos: Mapping[str, str] = {}


_known: tuple[float, Rules] | None = None


def rules(*, deadline_s: float) -> Rules:
    """Return what the site allows.

    Raises:
        SchedulerUnreachable: the controller could not be asked. Accounting that cannot be asked
            sets no limit: SLURM itself will say so.
    """
    global _known
    if _known is not None and time.monotonic() - _known[0] < cluster.FRESH_S:
        return _known[1]
    config = cluster.settings(deadline_s=deadline_s)
    # Indices run from 0 to MaxArraySize - 1. A second limit counts the elements.
    size = _number(config.get("MaxArraySize", "")) or 1001
    if match := _MOST_TASKS.search(config.get("SchedulerParameters", "")):
        size = max(1, min(size, int(match[1])))
    most = _number(config.get("MaxJobCount", ""))
    enforced = set(config.get("AccountingStorageEnforce", "").lower().split(","))
    found = Rules(array_size=size, most_jobs=most, is_enforced=bool(enforced & _ENFORCED))
    if found.is_enforced:
        found = _with_accounting(found, config.get("ClusterName", ""), deadline_s=deadline_s)
    _known = (time.monotonic(), found)
    return found


def free(
    site: Mapping[str, Any], partition: str, *, mine: int, deadline_s: float
) -> dict[str, int]:
    """Return how many places may be submitted now, by the limit that leaves so many.

    Args:
        site: account and QOS that are asked for, if any.
        partition: where.
        mine: places of this user that the controller holds.
        deadline_s: how long an answer is waited for, in seconds.

    Raises:
        SchedulerUnreachable: the controller could not be asked.
    """
    known = rules(deadline_s=deadline_s)
    found = {"MaxJobCount": max(0, known.most_jobs - mine)} if known.most_jobs is not None else {}
    if not known.is_enforced:
        return found
    now = usage(deadline_s=deadline_s)
    user = pwd.getpwuid(os.getuid()).pw_name
    chosen = _chosen(now, user, site.get("account"), partition)
    account = chosen.account if chosen else site.get("account") or ""
    job_qos = site.get("qos") or _default_qos(known, account, partition)
    order = [known.partition_qos.get(partition, ""), job_qos]
    if job_qos in known.over_partition:
        order.reverse()
    names = {GROUP: "", OF_USER: user, OF_ACCOUNT: account}
    of_qos = {
        kind: first
        for kind, name in names.items()
        if (first := _first(known, now, order, kind, name)) is not None
    }
    found |= {f"{kind} of QOS {qos}": left for kind, (qos, left) in of_qos.items()}
    return found | _of_associations(now, chosen, skip=of_qos.keys())


def usage(*, deadline_s: float) -> Usage:
    """Return what the controller counts; nothing where it does not tell this user.

    Raises:
        SchedulerUnreachable: it could not be asked.
    """
    user = pwd.getpwuid(os.getuid()).pw_name
    command = ["scontrol", "show", "assoc_mgr", "flags=assoc,qos", f"users={user}"]
    try:
        return read_usage(ask(command, deadline_s=deadline_s))
    except CommandFailed as error:
        if is_away(error.stderr):
            raise
        return Usage()


def read_usage(text: str) -> Usage:
    """Read what `scontrol show assoc_mgr` prints."""
    found = Usage()
    counts: dict[str, Count] = {}
    name = ""
    for line in text.splitlines():
        pairs = dict(_PAIR.findall(line))
        if "ClusterName" in pairs:
            user = _bare(pairs.get("UserName", ""))
            at = {"account": pairs["Account"], "partition": pairs.get("Partition", "")}
            found.associations.append(Association(**at, user=user))
            counts, name = found.associations[-1].counts, ""
        elif "ParentAccount" in pairs:
            found.associations[-1].parent = _bare(pairs["ParentAccount"])
            found.associations[-1].is_default = pairs.get("DefAssoc") == "Yes"
        elif line.startswith("QOS="):
            counts, name = found.qos.setdefault(_bare(pairs["QOS"]), {}), ""
        elif line.strip() and "=" not in line:
            # The user or the account that the next lines are about.
            name = line.strip()
        for kind in (GROUP, OF_USER, OF_ACCOUNT, OF_ASSOCIATION):
            if match := _USED.match(pairs.get(kind, "")):
                key = f"{kind} {name}" if kind in (OF_USER, OF_ACCOUNT) else kind
                counts[key] = Count(most=_number(match["most"]), used=int(match["used"]))
    return found


def _bare(text: str) -> str:
    """Return a name without the number that SLURM writes after it."""
    return text.partition("(")[0]


def _chosen(now: Usage, user: str, account: str | None, partition: str) -> Association | None:
    """Return the association that a job gets: one for its partition comes before one for all."""
    mine = [
        one
        for one in now.associations
        if one.user == user
        and one.partition in ("", partition)
        and (one.account == account if account else True)
    ]
    if not account and (default := next((one for one in mine if one.is_default), None)):
        mine = [one for one in mine if one.account == default.account]
    return max(mine, key=lambda one: one.partition != "", default=None)


def _default_qos(known: Rules, account: str, partition: str) -> str:
    found = known.default_qos
    return found.get((account, partition)) or found.get((account, "")) or ""


def _first(
    known: Rules, now: Usage, order: list[str], kind: str, name: str
) -> tuple[str, int] | None:
    """Return the first QOS that sets a limit, and what it leaves."""
    for qos in order:
        counts = now.qos.get(qos, {})
        names = [f"{kind} {one}" for one in _spellings(name)] if name else [kind]
        count = next((counts[key] for key in names if key in counts), Count())
        # Of a user or an account that has no job there yet the controller shows nothing.
        most = known.qos.get(qos, {}).get(kind) if count.most is None else count.most
        if most is not None:
            return qos, Count(most=most, used=count.used).left
    return None


def _spellings(name: str) -> Iterator[str]:
    """Yield the ways in which SLURM's versions write a user."""
    yield name
    with contextlib.suppress(KeyError):
        number = pwd.getpwnam(name).pw_uid
        yield str(number)
        yield f"{name}({number})"


def _of_associations(now: Usage, chosen: Association | None, *, skip: Set[str]) -> dict[str, int]:
    """Return what the limits of a user's association and of its accounts leave.

    A limit that a QOS sets takes the place of theirs.
    """
    if chosen is None:
        return {}
    found: dict[str, int] = {}
    most = chosen.counts.get(OF_ASSOCIATION, Count())
    if most.most is not None and not {OF_USER, OF_ACCOUNT} & skip:
        found[f"{OF_ASSOCIATION} of account {chosen.account}"] = most.left
    if GROUP in skip:
        return found
    accounts = {one.account: one for one in now.associations if not one.user}
    above: list[Association] = [chosen]
    name = chosen.account
    while (one := accounts.pop(name, None)) is not None:
        above.append(one)
        name = one.parent
    for one in above:
        group = one.counts.get(GROUP, Count())
        if group.most is not None:
            found[f"{GROUP} of {'user' if one.user else 'account'} {one.account}"] = group.left
    return found


def _with_accounting(found: Rules, name: str, *, deadline_s: float) -> Rules:
    """Add what accounting knows, where it answers, and the partitions' QOS."""
    text = ask(["scontrol", "--oneliner", "show", "partition"], deadline_s=deadline_s)
    partition_qos = {
        match[1]: match[2] for match in _QOS_OF_PARTITION.finditer(text) if match[2] != "N/A"
    }
    qos: dict[str, dict[str, int | None]] = {}
    default: dict[tuple[str, str], str] = {}
    over: set[str] = set()
    with contextlib.suppress(NoAccounting, SchedulerUnreachable):
        for line in _accounting("qos", f"Name,Flags,{GROUP},{OF_USER},{OF_ACCOUNT}", deadline_s):
            one, flags, *numbers = line.split("|")
            kinds = (GROUP, OF_USER, OF_ACCOUNT)
            qos[one] = dict(zip(kinds, map(_number, numbers), strict=True))
            over |= {one} if "overpartqos" in flags.lower() else set()
        for line in _accounting(
            "associations", "Account,Partition,QOS,DefaultQOS", deadline_s, name
        ):
            account, partition, every, own = line.split("|")
            # Of several QOS without a default, SLURM takes the root's.
            default[account, partition] = own or (every if "," not in every else "normal")
    return Rules(
        array_size=found.array_size,
        most_jobs=found.most_jobs,
        is_enforced=True,
        qos=qos,
        over_partition=frozenset(over),
        default_qos=default,
        partition_qos=partition_qos,
    )


def _accounting(what: str, fields: str, deadline_s: float, cluster_name: str = "") -> list[str]:
    command = ["sacctmgr", "-nP", "show", what, f"format={fields}"]
    if what == "associations":
        user = pwd.getpwuid(os.getuid()).pw_name
        command += [f"user={user}", f"cluster={cluster_name}"]
    return ask(command, deadline_s=deadline_s).splitlines()


def _number(text: str) -> int | None:
    return int(text) if text.strip().isdigit() else None
