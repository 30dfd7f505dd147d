"""squeue and sacct, one call each for everything, as rows per array element."""

import math
import re
from collections.abc import Collection, Iterator
from datetime import datetime

from ....jobs.errors import BadInput, SchedulerUnreachable
from ....jobs.values import Value
from .shell import CommandFailed, ask, user

# More names than this on one command line and sacct is asked for everything of the user's instead.
MOST_NAMES = 200

_ELEMENT = re.compile(r"(?P<job>[0-9]+)(?:_(?:\[(?P<range>[^\]]*)\]|(?P<index>[0-9]+)))?\Z")
_BOOT = re.compile(r"^BOOT_TIME *= *([0-9]+)", re.M)
_UNSENT = re.compile(r"DBD Agent queue size: *([0-9]+)")


class Row(Value, frozen=True, kw_only=True):
    """One job, or one element of an array, as a query showed it."""

    source: str
    """squeue or sacct."""
    token: str
    job_id: str
    index: int
    state: str
    reason: str = ""
    nodes: str = ""
    exit_code: str = ""
    ended_at: float | None = None
    starts_at: float | None = None
    """Of a waiting one, what the scheduler expects."""


def squeue(*, deadline_s: float) -> list[Row]:
    """Return the user's jobs that the controller knows, ended ones included as long as it remembers
    them.

    Raises:
        SchedulerUnreachable: it could not be asked.
    """
    fields = "--format=%F|%K|%T|%r|%N|%e|%S|%j"
    text = ask(
        ["squeue", f"--user={user()}", "--noheader", "--all", "--states=all", fields],
        deadline_s=deadline_s,
    )
    found: list[Row] = []
    for line in text.splitlines():
        job, element, state, reason, nodes, end, start, name = line.split("|", 7)
        found += [
            Row(
                source="squeue",
                token=name,
                job_id=job,
                index=index,
                state=state,
                reason=reason,
                nodes=nodes,
                ended_at=_time(end),
                starts_at=_time(start),
            )
            for index in ([0] if element == "N/A" else expand(element))
        ]
    return found


def sacct(tokens: Collection[str], *, since: float, deadline_s: float) -> list[Row]:
    """Return what accounting knows of these allocations, the newest row of each element last.

    A row of several waiting elements may still list one that has started: it comes before the rows
    of single ones.

    Raises:
        SchedulerUnreachable: it could not be asked.
        NoAccounting: the cluster keeps none.
    """
    command = [
        "sacct",
        "--allocations",
        "--duplicates",
        "--parsable2",
        "--noheader",
        f"--uid={user()}",
    ]
    command += [f"--starttime={datetime.fromtimestamp(since):%Y-%m-%dT%H:%M:%S}"]
    command += ["--format=JobID,State,ExitCode,End,NodeList,Reason,JobName"]
    if len(tokens) <= MOST_NAMES:
        command.append(f"--name={','.join(sorted(tokens))}")
    together: list[Row] = []
    single: list[Row] = []
    for line in ask(command, deadline_s=deadline_s).splitlines():
        element, state, code, end, nodes, reason, name = line.split("|", 6)
        match = _ELEMENT.match(element)
        if match is None or name not in tokens:
            continue
        indices = expand(match["range"]) if match["range"] else [int(match["index"] or 0)]
        (together if match["range"] else single).extend(
            Row(
                source="sacct",
                token=name,
                job_id=match["job"],
                index=index,
                state=state,
                reason="" if reason == "None" else reason,
                nodes=nodes,
                exit_code=code,
                ended_at=_time(end),
            )
            for index in indices
        )
    return together + single


def books_are_behind(*, deadline_s: float) -> bool:
    """Whether the controller still has news that accounting has not been told, such as after an
    outage of accounting.

    A site that hides this is taken to be up to date; what could not be asked is not.
    """
    try:
        text = ask(["sdiag"], deadline_s=deadline_s)
    except BadInput:
        return False
    except CommandFailed as error:
        return "denied" not in error.stderr.lower()
    except SchedulerUnreachable:
        return True
    match = _UNSENT.search(text)
    return match is not None and int(match[1]) > 0


def controller_started_at(*, deadline_s: float) -> float:
    """Return when the controller was started, in seconds since 1970; infinity if it hides that.

    Raises:
        SchedulerUnreachable: it could not be asked.
    """
    match = _BOOT.search(ask(["scontrol", "show", "config"], deadline_s=deadline_s))
    return float(match[1]) if match else math.inf


def expand(text: str) -> Iterator[int]:
    """Yield the indices of an array expression such as `4-10:2,12%3`."""
    for part in text.partition("%")[0].split(","):
        span, _, step = part.partition(":")
        low, _, high = span.partition("-")
        if low.isdigit():
            yield from range(int(low), int(high or low) + 1, int(step or 1))


def _time(text: str) -> float | None:
    return float(text) if text.isdigit() else None
