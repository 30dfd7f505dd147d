"""Whether a run gets another try: a pure function of how its attempts ended."""

from collections.abc import Sequence

from ..values import Value
from .states import AttemptState, FailureClass, RunState

# Seconds to wait before the next attempt, by how often this has happened already.
STORAGE_BACKOFF_S = (120, 600, 1800)
DATA_BACKOFF_S = 300
# Ends that cost no try, in a row, without a new checkpoint, before we stop believing them.
STALLED_LIMIT = 3
# Allocations in a row that end before they start the run, before the run is given up.
NEVER_STARTED_LIMIT = 10

DETERMINISTIC = frozenset((FailureClass.SETUP_ERROR, FailureClass.NO_CHECKPOINT, FailureClass.DATA))
# Failures that another run of the grid is likely to repeat, and how many runs that fail alike are
# enough to start no further one.
BLAMED = DETERMINISTIC | {
    FailureClass.USER_ERROR,
    FailureClass.REFUSED,
    FailureClass.DATA_MISSING,
}
ALIKE_RUNS = 3
# Of these, runs count already while they wait for another try.
AT_ONCE = frozenset((FailureClass.DATA_MISSING,))
# What may pass by itself, so that a run waits before its next try.
WAITED_FOR = frozenset((FailureClass.DATA_MISSING, FailureClass.STORAGE))
ONCE = frozenset((FailureClass.DATA_MISSING, FailureClass.NO_RESULT))


class Ended(Value, frozen=True, kw_only=True):
    """One ended attempt, as the policy sees it."""

    state: AttemptState
    failure: FailureClass | None
    signature: str = ""
    started_step: int = 0
    """The step it went on from."""
    checkpoint_step: int = 0
    """The newest step it made durable; `started_step` where it made none."""


class Verdict(Value, frozen=True, kw_only=True):
    """What the policy says about a run with nothing live."""

    state: RunState
    reason: str = ""
    wait_s: int = 0
    halve_micro_batch: bool = False


def judge(history: Sequence[Ended], *, tries: int, may_halve: bool = False) -> Verdict:
    """Judge a run by its ended attempts, oldest first, counted since the user last asked for a try.

    Args:
        history: the ended attempts.
        tries: how many ends that count are allowed.
        may_halve: whether the grid allows a smaller micro-batch after running out of memory.
    """
    if not history:
        return Verdict(state=RunState.PENDING)
    last = history[-1]
    match last.state:
        case AttemptState.COMPLETED:
            return Verdict(state=RunState.COMPLETED)
        case AttemptState.CANCELLED:
            return Verdict(state=RunState.CANCELLED, reason="cancelled")
    if last.failure is FailureClass.DIVERGED:
        return Verdict(state=RunState.DIVERGED, reason=last.signature)
    if last.failure is FailureClass.REFUSED:
        return Verdict(state=RunState.FAILED, reason=last.signature)
    if last.state.is_infrastructure:
        return _after_infrastructure(history)
    return _after_failure(history, tries, may_halve)


def _after_infrastructure(history: Sequence[Ended]) -> Verdict:
    if history[-1].failure in (FailureClass.SKIPPED, FailureClass.SUPERSEDED):
        return Verdict(state=RunState.PENDING)
    if history[-1].failure is FailureClass.NOT_SUBMITTED:
        return _after_no_start(history)
    stalled = 0
    for ended in reversed(history):
        if not ended.state.is_infrastructure or ended.checkpoint_step > ended.started_step:
            break
        stalled += ended.failure not in (
            FailureClass.SKIPPED,
            FailureClass.NOT_SUBMITTED,
            FailureClass.SUPERSEDED,
        )
    if stalled >= STALLED_LIMIT:
        return Verdict(
            state=RunState.FAILED, reason=f"{stalled} attempts in a row brought no new checkpoint"
        )
    return Verdict(state=RunState.PENDING)


def _after_no_start(history: Sequence[Ended]) -> Verdict:
    """The run itself is not to blame, but an agent that cannot even start must not be started for
    ever.
    """
    in_a_row = 0
    for ended in reversed(history):
        if ended.failure is not FailureClass.NOT_SUBMITTED:
            break
        in_a_row += 1
    if in_a_row >= NEVER_STARTED_LIMIT:
        return Verdict(
            state=RunState.FAILED,
            reason=f"{in_a_row} allocations in a row ended before the run started",
        )
    return Verdict(
        state=RunState.PENDING, wait_s=min(60, 2 ** (in_a_row - 1)) if in_a_row > 1 else 0
    )


def _after_failure(history: Sequence[Ended], tries: int, may_halve: bool) -> Verdict:
    last = history[-1]
    counted = [ended for ended in history if not ended.state.is_infrastructure]
    alike = [ended for ended in counted if ended.failure is last.failure]
    gave_up = Verdict(state=RunState.FAILED, reason=last.signature)
    if last.failure in DETERMINISTIC or len(counted) >= tries:
        return gave_up
    if (
        last.failure is FailureClass.USER_ERROR
        and len(alike) >= 2
        and alike[-2].signature == last.signature
    ):
        return gave_up
    if last.failure in ONCE and len(alike) > 1:
        return gave_up
    if last.failure is FailureClass.OUT_OF_MEMORY:
        if may_halve and len(alike) == 1:
            return Verdict(state=RunState.PENDING, halve_micro_batch=True)
        return gave_up
    if last.failure is FailureClass.STORAGE:
        return Verdict(
            state=RunState.PENDING,
            wait_s=STORAGE_BACKOFF_S[min(len(alike), len(STORAGE_BACKOFF_S)) - 1],
        )
    is_missing = last.failure is FailureClass.DATA_MISSING
    return Verdict(state=RunState.PENDING, wait_s=DATA_BACKOFF_S if is_missing else 0)
