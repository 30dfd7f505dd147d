"""What a run's state follows from: its attempts, its parent, and what the user asked for. Pure."""

from collections.abc import Sequence

from ..values import Value
from .retry import Ended, Verdict, judge
from .states import AttemptState, FailureClass, RunState


class AttemptView(Value, frozen=True, kw_only=True):
    """An attempt as the derivation sees it."""

    number: int
    state: AttemptState
    failure: FailureClass | None = None
    signature: str = ""
    resumed_step: int | None = None
    checkpoint_step: int | None = None
    ended_at: float | None = None

    def ended(self) -> Ended:
        start = self.resumed_step or 0
        return Ended(
            state=self.state,
            failure=self.failure,
            signature=self.signature,
            started_step=start,
            checkpoint_step=max(start, self.checkpoint_step or 0),
        )


class RunView(Value, frozen=True, kw_only=True):
    """A run's own facts, as the derivation sees them."""

    tries: int
    tries_from: int = 0
    cancelled_through: int = 0
    may_halve: bool = False
    parent: RunState | None = None
    """The parent stage's state; None where there is no parent."""


def derive(run: RunView, attempts: Sequence[AttemptView]) -> Verdict:
    """Derive a run's state from its attempts, oldest first."""
    for attempt in attempts:
        if not attempt.state.is_terminal:
            active = attempt.state in (AttemptState.STARTING, AttemptState.RUNNING)
            return Verdict(state=RunState.RUNNING if active else RunState.QUEUED)
    counted = [attempt for attempt in attempts if attempt.number > run.tries_from]
    if any(attempt.state is AttemptState.COMPLETED for attempt in counted):
        return Verdict(state=RunState.COMPLETED)
    last = attempts[-1].number if attempts else 0
    # A cancel covers the attempt that would have come next, also where an agent had handed on to
    # just that one and nobody knew of it yet; a try that was granted afterwards lies behind it.
    if run.cancelled_through >= last and run.cancelled_through > run.tries_from:
        return Verdict(state=RunState.CANCELLED, reason="cancelled")
    verdict = judge(
        [attempt.ended() for attempt in counted], tries=run.tries, may_halve=run.may_halve
    )
    if verdict.state is RunState.PENDING and run.parent is not None:
        if run.parent.is_settled and run.parent is not RunState.COMPLETED:
            return Verdict(state=RunState.BLOCKED, reason=f"its parent stage is {run.parent}")
    return verdict
