"""Why a job waits: SLURM's reason as a sentence and an action, and whether waiting helps at all."""

import re

from ..base import Waiting, WaitKind

_WAIT, _NEVER, _ACT = WaitKind.WAIT, WaitKind.NEVER, WaitKind.ACT

# From SLURM's list of job reason codes; what each means for a run of a grid.
_REASONS: dict[str, tuple[WaitKind, str, str]] = {
    "None": (_WAIT, "the scheduler has not looked at it yet", ""),
    "Resources": (_WAIT, "it is next in the queue and waits for free nodes", ""),
    "Priority": (_WAIT, "jobs with higher priority are ahead of it", ""),
    "Dependency": (_WAIT, "it waits for the job of its parent stage to end", ""),
    "BeginTime": (_WAIT, "its earliest start has not come yet", ""),
    "Licenses": (_WAIT, "a licence that it asks for is in use", ""),
    "Reservation": (_WAIT, "its reservation has not begun", "See: scontrol show reservation"),
    "ReservationDeleted": (
        _NEVER,
        "its reservation was deleted",
        "Change slurm.reservation and submit again",
    ),
    "JobArrayTaskLimit": (
        _WAIT,
        "slurm.array_parallelism is reached: other elements of its array are running",
        "",
    ),
    "Cleaning": (_WAIT, "its node is being cleaned up", ""),
    "Prolog": (_WAIT, "its node runs the site's prolog", ""),
    "NodeDown": (_WAIT, "a node that it needs is down", "See: sinfo -R"),
    "ReqNodeNotAvail": (
        _WAIT,
        "nodes that it may run on are down, drained or reserved",
        "See: sinfo -R",
    ),
    "SchedDefer": (_WAIT, "the scheduler deferred it", ""),
    "FrontEndDown": (_WAIT, "the front end is down", ""),
    "JobHeldUser": (_ACT, "held by its user in SLURM", "scontrol release {job}"),
    "JobHeldAdmin": (_ACT, "held by an administrator", "Ask the site's administrators"),
    "Nodes required for job are DOWN": (
        _WAIT,
        "its nodes are down, drained or given to others first",
        "See: sinfo -R",
    ),
    "JobHoldMaxRequeue": (
        _ACT,
        "SLURM requeued it too often and holds it",
        "Run: vtjobs cancel {run}. Once it is cancelled, run: vtjobs retry {run}",
    ),
    "job requeued in held state": (
        _ACT,
        "SLURM requeued it and holds it",
        "scontrol release {job}",
    ),
    "launch failed requeued held": (
        _ACT,
        "its launch failed and SLURM holds it",
        "scontrol release {job}",
    ),
    "PartitionDown": (
        _ACT,
        "its partition is down",
        "Wait for the site, or change slurm.partition and submit again",
    ),
    "PartitionInactive": (
        _ACT,
        "its partition takes no jobs at present",
        "Change slurm.partition and submit again",
    ),
    "DependencyNeverSatisfied": (
        _NEVER,
        "its dependency on another job can never be satisfied",
        "Run: vtjobs cancel {run}. Once it is cancelled, run: vtjobs retry {run}",
    ),
    "PartitionTimeLimit": (
        _NEVER,
        "it asks for more time than its partition allows",
        "Lower resources.walltime",
    ),
    "PartitionNodeLimit": (
        _NEVER,
        "it asks for more nodes than its partition allows",
        "Lower resources.nodes",
    ),
    "PartitionConfig": (
        _NEVER,
        "its partition cannot serve what it asks for",
        "Lower resources.walltime or nodes",
    ),
    "BadConstraints": (
        _NEVER,
        "no node has what it asks for",
        "Change slurm.constraint or resources",
    ),
    "AccountNotAllowed": (
        _NEVER,
        "its account may not use this partition",
        "Change slurm.account or partition",
    ),
    "InvalidAccount": (_NEVER, "its account is not valid", "Change slurm.account"),
    "InvalidQOS": (_NEVER, "its QOS is not valid", "Change slurm.qos"),
    "QOSNotAllowed": (_NEVER, "its QOS is not allowed here", "Change slurm.qos"),
    "DeadLine": (_NEVER, "it can no longer end before its deadline", "Submit again"),
}
# Families: the limit of an account or QOS on one job never lifts; one on all of them together does.
_FAMILIES: list[tuple[str, WaitKind, str, str]] = [
    (
        r"(QOS|Assoc)MaxWall\w*",
        _NEVER,
        "it asks for more time than {who} allows",
        "Lower resources.walltime",
    ),
    (
        r"(QOS|Assoc)Max\w*(PerJob|PerNode)(Limit)?\Z",
        _NEVER,
        "one run asks for more than {who} allows",
        "Ask for less",
    ),
    (
        r"(QOS|Assoc)Grp\w*",
        _WAIT,
        "{who} has reached the limit that its members share",
        "See: sshare, sacctmgr show qos",
    ),
    (r"(QOS|Assoc)Max\w*", _WAIT, "{who} has reached its limit of running jobs or resources", ""),
    (
        r"(QOS|Assoc)\w*",
        _WAIT,
        "it waits because of a limit of {who}",
        "See: sacctmgr show associations",
    ),
]


# Only operators may resume a job; one that a preemption has suspended goes on by itself.
_SUSPENDED = (
    "suspended by an administrator or a preemption; it does not train",
    "If it lasts: ask the site's administrators",
)


def explain(word: str, *, job: str = "") -> Waiting | None:
    """Explain the word of a waiting job, such as `PENDING Resources`.

    None where it does not wait.
    """
    state, _, reason = word.partition(" ")
    if state in ("SUSPENDED", "STOPPED"):
        return Waiting(kind=_ACT, reason=state, sentence=_SUSPENDED[0], action=_SUSPENDED[1])
    if state not in ("PENDING", "REQUEUE_HOLD", "SPECIAL_EXIT"):
        return None
    reason = reason.strip("() ") or "None"
    name = reason.partition(",")[0]
    if found := _REASONS.get(name) or _REASONS.get(reason):
        kind, sentence, action = found
        return Waiting(
            kind=kind, reason=reason, sentence=sentence, action=action.replace("{job}", job)
        )
    for pattern, kind, sentence, action in _FAMILIES:
        if match := re.match(pattern, name):
            who = "its QOS" if match[1] == "QOS" else "its account"
            return Waiting(
                kind=kind, reason=reason, sentence=sentence.format(who=who), action=action
            )
    return Waiting(kind=_WAIT, reason=reason, sentence=f"SLURM says {reason}", action="")
