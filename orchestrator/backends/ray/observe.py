"""From Ray's jobs to what is so.

Ray's word is a hint. All that a cluster knows of its jobs goes with its head, while an agent may go
on as an orphan: of a job that it has forgotten, the lease decides.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from ....jobs.run.states import AttemptState, FailureClass
from ....jobs.workspace.journal import LEASE_S
from ..base import JobState, JobView, Place

UNKNOWN = "unknown to Ray"
START_TIMEOUT = "JOB_SUPERVISOR_ACTOR_START_TIMEOUT"
_LIVE = {"PENDING": JobState.QUEUED, "RUNNING": JobState.RUNNING}
# How an attempt ended that left no end record, by the type of error.
_FAILED: dict[str, tuple[AttemptState, FailureClass]] = {
    # Ray gives a job up that has waited for 15 minutes, whatever its reason.
    START_TIMEOUT: (AttemptState.SUPERSEDED, FailureClass.SKIPPED),
    "RUNTIME_ENV_SETUP_FAILURE": (AttemptState.LOST, FailureClass.NOT_SUBMITTED),
}
# What Ray says of an actor whose node has died, and of one that its memory monitor has killed.
_NODE_DIED = (
    "node failure",
    "node died",
    "node has died",
    "node is dead",
    "node was terminated",
    "owner's node has crashed",
)
# Not a mere "OOM": Ray names that among the possible causes of any death that it cannot explain.
_NO_MEMORY = ("running low on memory", "node_out_of_memory")


def view_of(job: Mapping[str, Any]) -> JobView:
    """Return what a job's record says. An unknown word counts as running: it proves no end."""
    status, token = str(job["status"]), str(job["submission_id"])
    if status not in ("STOPPED", "SUCCEEDED", "FAILED"):
        return JobView(
            state=_LIVE.get(status, JobState.RUNNING), job_id=token, raw=status, source="ray"
        )
    end, failure = _end(status, job)
    ended_at = job["end_time"] / 1000 if job.get("end_time") else None
    raw = " ".join(filter(None, [status, _detail(job) if status == "FAILED" else ""]))
    return JobView(
        state=JobState.ENDED,
        job_id=token,
        raw=raw,
        end=end,
        failure=failure,
        ended_at=ended_at,
        source="ray",
    )


def _end(status: str, job: Mapping[str, Any]) -> tuple[AttemptState, FailureClass]:
    if status == "STOPPED":
        return AttemptState.CANCELLED, FailureClass.CANCELLED
    if status == "SUCCEEDED":
        return AttemptState.FAILED, FailureClass.NO_RESULT
    kind, message = str(job.get("error_type") or ""), str(job.get("message") or "").lower()
    if kind in _FAILED:
        return _FAILED[kind]
    if kind.startswith("JOB_SUPERVISOR"):
        # The end of the log in other messages may say anything.
        if any(sign in message for sign in _NODE_DIED):
            return AttemptState.NODE_FAIL, FailureClass.HARDWARE
        if any(sign in message for sign in _NO_MEMORY):
            return AttemptState.OUT_OF_MEMORY, FailureClass.OUT_OF_MEMORY
    return AttemptState.LOST, FailureClass.AGENT_DIED


def _detail(job: Mapping[str, Any]) -> str:
    code = job.get("driver_exit_code")
    if code is not None:
        return f"exit {code}" if code >= 0 else f"signal {-code}"
    return str(job.get("error_type") or "").removeprefix("JOB_").lower().replace("_", " ")


def look(places: Iterable[Place], jobs: Iterable[Mapping[str, Any]]) -> dict[str, JobView]:
    """Return the views of places by their tokens, from all jobs of their cluster."""
    seen = {str(job["submission_id"]): job for job in jobs if job.get("submission_id")}
    return {
        place.token: view_of(seen[place.token]) if place.token in seen else forgotten(place)
        for place in places
    }


def forgotten(place: Place) -> JobView:
    """Judge a place of which its cluster knows nothing."""
    return JobView(state=JobState.ABSENT, source="ray") if place.job_id is None else given_up(place)


def given_up(place: Place) -> JobView:
    """Judge a place whose job, if there ever was one, is known to nobody who can be asked."""
    return JobView(
        state=JobState.ENDED,
        job_id=place.job_id or "",
        raw=UNKNOWN,
        end=AttemptState.LOST,
        failure=FailureClass.AGENT_DIED if place.is_started else FailureClass.NOT_SUBMITTED,
        source="ray",
        is_settled=False,
        patience_s=LEASE_S,
    )
