"""SLURM's words for a job's state, as ours."""

import re

from ....jobs.run.states import AttemptState, FailureClass
from ..base import JobState, JobView
from .query import Row

_QUEUED = frozenset(
    ("PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "SPECIAL_EXIT")
)
# COMPLETING: the ranks may still be at work; the end is read once it is one.
_RUNNING = frozenset(
    (
        "RUNNING",
        "CONFIGURING",
        "COMPLETING",
        "SUSPENDED",
        "STOPPED",
        "RESIZING",
        "SIGNALING",
        "STAGE_OUT",
    )
)
# How an attempt ended that left no end record.
_ENDS: dict[str, tuple[AttemptState, FailureClass]] = {
    "COMPLETED": (AttemptState.FAILED, FailureClass.NO_RESULT),
    "FAILED": (AttemptState.LOST, FailureClass.AGENT_DIED),
    "LAUNCH_FAILED": (AttemptState.NODE_FAIL, FailureClass.HARDWARE),
    "RECONFIG_FAIL": (AttemptState.NODE_FAIL, FailureClass.HARDWARE),
    "BOOT_FAIL": (AttemptState.NODE_FAIL, FailureClass.HARDWARE),
    "NODE_FAIL": (AttemptState.NODE_FAIL, FailureClass.HARDWARE),
    "OUT_OF_MEMORY": (AttemptState.OUT_OF_MEMORY, FailureClass.OUT_OF_MEMORY),
    "TIMEOUT": (AttemptState.TIMEOUT, FailureClass.WALLTIME),
    "DEADLINE": (AttemptState.TIMEOUT, FailureClass.WALLTIME),
    "PREEMPTED": (AttemptState.PREEMPTED, FailureClass.STOPPED),
    "REVOKED": (AttemptState.LOST, FailureClass.NOT_SUBMITTED),
    "CANCELLED": (AttemptState.CANCELLED, FailureClass.CANCELLED),
}


# A node may be to blame for the end of a job that nobody else has ended.
_NODES_FAULT = (FailureClass.AGENT_DIED, FailureClass.HARDWARE)
_FIRST_NODE = re.compile(r"(?P<name>[\w.-]+)(?:\[(?P<number>[0-9]+)[^\]]*\](?P<rest>[\w.-]*))?")


def first_node(text: str) -> str:
    """Return the first node of a list such as `gpu[3,7-9]`; the job's script runs there.

    Nothing where the job was given none.
    """
    if (match := _FIRST_NODE.match(text)) is None or " " in text:
        return ""
    return match["name"] + (match["number"] or "") + (match["rest"] or "")


def view_of(row: Row) -> JobView:
    """Return what a row says. An unknown word counts as running: it proves no end."""
    word = row.state.split(" ")[0].rstrip("+")
    raw = " ".join(part for part in (row.state, row.reason if row.reason != "None" else "") if part)
    raw += f" exit {row.exit_code}" if row.exit_code not in ("", "0:0") else ""
    if word in _QUEUED:
        return JobView(
            state=JobState.QUEUED,
            job_id=row.job_id,
            raw=raw,
            reason=row.reason,
            starts_at=row.starts_at,
            source=row.source,
        )
    if word in _ENDS:
        end, failure = _ENDS[word]
        return JobView(
            state=JobState.ENDED,
            job_id=row.job_id,
            raw=raw,
            end=end,
            failure=failure,
            ended_at=row.ended_at,
            node=first_node(row.nodes) if failure in _NODES_FAULT else "",
            source=row.source,
        )
    return JobView(
        state=JobState.RUNNING,
        job_id=row.job_id,
        raw=raw,
        starts_at=row.starts_at,
        source=row.source,
    )


def is_known(word: str) -> bool:
    """Whether a word is one that we know."""
    return word in _QUEUED or word in _RUNNING or word in _ENDS
