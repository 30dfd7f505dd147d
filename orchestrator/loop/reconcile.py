"""From what the ledger believes and what the scheduler says to what must change. Pure.

The order of evidence is the caller's: journals are ingested after the scheduler was asked and
before this is decided, so an end record that was written meanwhile has already ended its attempt.
"""

from enum import StrEnum

from ...jobs.run.states import WITHOUT_RECORD, AttemptState, FailureClass
from ...jobs.values import Value
from ...jobs.workspace.journal import LEASE_S
from ..backends.base import JobState, JobView

# A job that the scheduler calls completed may have an end record that this host does not see yet.
NO_RESULT_S = 120.0


class Decision(StrEnum):
    """What to do about one live attempt."""

    NOTHING = "nothing"
    ACCEPTED = "accepted"  # the scheduler has it after all
    RESUBMIT = "resubmit"  # it never got there
    CANCEL = "cancel"  # the user's cancel has not reached the scheduler
    END = "end"


class LiveAttempt(Value, frozen=True, kw_only=True):
    """A live attempt as the ledger has it."""

    state: AttemptState
    accepted: bool
    """Whether the scheduler's acceptance is on record."""
    launching_until: float
    """0 once it is accepted."""
    submitted_at: float = 0.0
    is_cancelled: bool = False
    """Whether a cancel on disk covers it."""
    heartbeat_at: float | None = None
    is_over: bool = False
    """Whether its agent has said that it is gone, though not why it was told to go."""

    @property
    def is_started(self) -> bool:
        return self.state in (AttemptState.STARTING, AttemptState.RUNNING)


class Action(Value, frozen=True, kw_only=True):
    """A decision with what an end is called."""

    decision: Decision
    state: AttemptState | None = None
    failure: FailureClass | None = None
    signature: str = ""


NOTHING = Action(decision=Decision.NOTHING)


def decide(attempt: LiveAttempt, view: JobView, *, now: float) -> Action:
    """Decide about a live attempt that has no end record.

    Args:
        attempt: what the ledger believes.
        view: what the scheduler says about its place.
        now: the time.
    """
    if view.state.is_live:
        if not attempt.accepted:
            return Action(decision=Decision.ACCEPTED)
        return Action(decision=Decision.CANCEL) if attempt.is_cancelled else NOTHING
    alive_at = attempt.heartbeat_at or max(attempt.launching_until, attempt.submitted_at)
    if not view.is_settled and now - alive_at < view.patience_s:
        return NOTHING
    if view.state is JobState.ABSENT and not attempt.accepted:
        if now < attempt.launching_until:
            # Somebody may be submitting it at this moment.
            return NOTHING
        return (
            _end(attempt, view, now) if attempt.is_cancelled else Action(decision=Decision.RESUBMIT)
        )
    return _end(attempt, view, now)


def _end(attempt: LiveAttempt, view: JobView, now: float) -> Action:
    cancelled = attempt.is_cancelled or view.end is AttemptState.CANCELLED
    if cancelled and attempt.is_started and view.end is not None and _may_live(attempt, now):
        # A scheduler says "cancelled" of a job on a dead node as well, while its processes live on.
        return NOTHING
    if cancelled:
        by_user = WITHOUT_RECORD[FailureClass.CANCELLED]
        signature = by_user if attempt.is_cancelled else "cancelled in the scheduler"
        return _ended(AttemptState.CANCELLED, FailureClass.CANCELLED, signature)
    if view.failure in (FailureClass.NO_RESULT, FailureClass.AGENT_DIED) and attempt.is_over:
        return _ended(
            AttemptState.PREEMPTED,
            FailureClass.STOPPED,
            "stopped by the scheduler without a stated reason",
        )
    return _end_without_word(attempt, view, now)


def _end_without_word(attempt: LiveAttempt, view: JobView, now: float) -> Action:
    """Judge an attempt of which neither the user nor its agent has said how it ended."""
    died = WITHOUT_RECORD[FailureClass.AGENT_DIED]
    if view.failure is FailureClass.SKIPPED and view.end is not None and not attempt.is_started:
        return _ended(
            view.end, view.failure, f"given up by the scheduler before it started {_word(view)}"
        )
    if view.failure is FailureClass.NO_RESULT:
        if now - (view.ended_at or 0.0) < NO_RESULT_S:
            return NOTHING
        if attempt.is_started:
            return _ended(
                AttemptState.FAILED,
                FailureClass.NO_RESULT,
                "the scheduler reports completion, but there is no end record",
            )
    if not attempt.is_started and view.end in (None, AttemptState.FAILED, AttemptState.LOST):
        return _ended(
            AttemptState.LOST,
            FailureClass.NOT_SUBMITTED,
            f"{WITHOUT_RECORD[FailureClass.NOT_SUBMITTED]} {_word(view)}",
        )
    if view.end is None or view.failure is None:
        return _ended(AttemptState.LOST, FailureClass.AGENT_DIED, died)
    if view.end is AttemptState.LOST:
        return _ended(view.end, view.failure, f"{died} {_word(view)}")
    return _ended(view.end, view.failure, f"{view.end} in the scheduler")


def _may_live(attempt: LiveAttempt, now: float) -> bool:
    return (
        not attempt.is_over
        and attempt.heartbeat_at is not None
        and now - attempt.heartbeat_at < LEASE_S
    )


def _word(view: JobView) -> str:
    return f"({view.raw})" if view.raw else ""


def _ended(state: AttemptState, failure: FailureClass, signature: str) -> Action:
    return Action(decision=Decision.END, state=state, failure=failure, signature=signature.strip())
