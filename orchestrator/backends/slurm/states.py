"""SLURM's words for a job's state, as ours."""

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
