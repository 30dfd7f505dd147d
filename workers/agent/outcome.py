"""How an attempt ended, from what its ranks said and how they exited."""

import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

from ...jobs.config.node import Ruling
from ...jobs.run.states import EXIT_OF_CLASS, AttemptState, ExitCode, FailureClass
from ..errors import STORAGE_ERRORS, alike
from ..reports import RankError
from .oom import oom_kills
from .rank_process import RankProcess
from .resume import NoCheckpoint


class KillCause(Enum):
    """Why an agent ended its own ranks."""

    HANG = auto()
    """No rank made progress for too long."""
    PEER = auto()
    """Another node of the run failed or fell silent."""
    LATE = auto()
    """The ranks did not stop in time after they were asked to."""
    TEMPLATE = auto()
    """The fork server died, and its ranks with it."""


@dataclass(frozen=True, slots=True)
class Killed:
    """Why an agent ended its own ranks, for programs and for people."""

    cause: KillCause
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What the end record says."""

    state: AttemptState
    failure: FailureClass | None = None
    signature: str = ""
    error: str = ""
    rank: int | None = None
    host: str = ""
    """Where the cause lay, if not on node 0."""
    explained: bool = True
    """False where the scheduler stopped it and would not say why."""

    @property
    def exit_code(self) -> ExitCode:
        return EXIT_OF_CLASS[self.failure] if self.failure else ExitCode.COMPLETED

    def as_ruled(self, ruling: Ruling) -> "Outcome":
        """Return the outcome of a stop with what the scheduler said about it.

        Any other end speaks for itself.
        """
        if self.state is not ruling.state:
            return self
        explained = ruling.explained or self.failure is not FailureClass.STOPPED
        signature = ruling.signature or self.signature
        return replace(self, explained=explained, signature=signature)


_STOPPED_CLASS = {
    AttemptState.CANCELLED: FailureClass.CANCELLED,
    AttemptState.TIMEOUT: FailureClass.WALLTIME,
    AttemptState.PREEMPTED: FailureClass.STOPPED,
    AttemptState.SUPERSEDED: FailureClass.SUPERSEDED,
}


def judge_ranks(
    ranks: Sequence[RankProcess],
    errors: Sequence[RankError],
    *,
    stopping: AttemptState | None,
    killed: Killed | None,
) -> Outcome:
    """Return how an attempt ended whose ranks are all gone.

    The evidence is weighed in this order: an order to stop for good, a primary error, a hang, a
    rank killed by a signal, what its peers saw, an orderly stop, the other nodes, exit statuses.

    Args:
        ranks: the ranks of this node, each with its exit status.
        errors: what ranks reported through their pipes.
        stopping: what the stop is called that the agent asked for; None: it asked for none.
        killed: why the agent ended the ranks itself; None: it did not.
    """
    for weigh in (_ended_for_good, _reported, _hung, _died, _echoed, _stopped, _lost_peer):
        outcome = weigh(_Evidence(ranks, errors, stopping, killed))
        if outcome is not None:
            return outcome
    return _unexplained(ranks, killed)


@dataclass(frozen=True, slots=True)
class _Evidence:
    """What is known of an attempt whose ranks are gone."""

    ranks: Sequence[RankProcess]
    errors: Sequence[RankError]
    stopping: AttemptState | None
    killed: Killed | None

    @property
    def text(self) -> str:
        return self.killed.text if self.killed else ""

    def all_exited(self, code: ExitCode) -> bool:
        return bool(self.ranks) and all(rank.status == code for rank in self.ranks)

    def was_killed_for(self, cause: KillCause) -> bool:
        return self.killed is not None and self.killed.cause is cause


def _ended_for_good(seen: _Evidence) -> Outcome | None:
    if seen.stopping in (AttemptState.SUPERSEDED, AttemptState.CANCELLED):
        failure = _STOPPED_CLASS[seen.stopping]
        return Outcome(state=seen.stopping, failure=failure, signature=seen.text)
    if seen.all_exited(ExitCode.COMPLETED):
        return Outcome(state=AttemptState.COMPLETED)
    return None


def _reported(seen: _Evidence) -> Outcome | None:
    primary = [one for one in seen.errors if one.failure != FailureClass.COMMUNICATION]
    return _from_error(primary) if primary else None


def _hung(seen: _Evidence) -> Outcome | None:
    if not seen.was_killed_for(KillCause.HANG):
        return None
    return Outcome(
        state=AttemptState.FAILED,
        failure=FailureClass.HANG,
        signature="no progress",
        error=seen.text,
    )


def _died(seen: _Evidence) -> Outcome | None:
    """A rank was killed by a signal that the agent did not send.

    Its peers see a broken connection; that is not the cause.
    """
    if seen.stopping is not None:
        return None
    for rank in seen.ranks:
        if (rank.status or 0) < 0 and not rank.killed:
            return _crash(rank, seen.text)
    return None


def _echoed(seen: _Evidence) -> Outcome | None:
    return _from_error(seen.errors) if seen.errors else None


def _stopped(seen: _Evidence) -> Outcome | None:
    if seen.all_exited(ExitCode.STOPPED):
        state = seen.stopping or AttemptState.PREEMPTED
        return Outcome(state=state, failure=_STOPPED_CLASS[state], signature="stopped and saved")
    if seen.stopping is None:
        return None
    failure = _STOPPED_CLASS[seen.stopping]
    return Outcome(state=seen.stopping, failure=failure, signature=seen.text or "stopped")


def _lost_peer(seen: _Evidence) -> Outcome | None:
    if not seen.was_killed_for(KillCause.PEER):
        return None
    return Outcome(
        state=AttemptState.FAILED, failure=FailureClass.COMMUNICATION, signature=seen.text
    )


def _unexplained(ranks: Sequence[RankProcess], killed: Killed | None) -> Outcome:
    text = killed.text if killed else ""
    for rank in ranks:
        if rank.status not in (ExitCode.COMPLETED, ExitCode.STOPPED):
            return _crash(rank, text)
    reason = text or "no rank was started"
    return Outcome(state=AttemptState.FAILED, failure=FailureClass.CRASH, signature=reason)


def set_up_failure(error: Exception) -> Outcome:
    """Return how an attempt ended that its agent could not start."""
    text = f"{type(error).__name__}: {error}"
    failure = FailureClass.SETUP_ERROR
    if isinstance(error, NoCheckpoint):
        text, failure = str(error), FailureClass.NO_CHECKPOINT
    elif isinstance(error, OSError) and error.errno in STORAGE_ERRORS:
        failure = FailureClass.STORAGE
    return Outcome(state=AttemptState.FAILED, failure=failure, signature=alike(text), error=text)


def _crash(rank: RankProcess, why: str) -> Outcome:
    if rank.status == -signal.SIGKILL and not rank.killed and oom_kills() > rank.oom_before:
        text = "killed by the kernel: out of host memory"
        return Outcome(
            state=AttemptState.OUT_OF_MEMORY,
            failure=FailureClass.OUT_OF_MEMORY,
            signature=text,
            error=f"rank {rank.rank}: {text}",
            rank=rank.rank,
        )
    return Outcome(
        state=AttemptState.FAILED,
        failure=FailureClass.CRASH,
        signature=_status_text(rank.status or 0),
        error=f"rank {rank.rank}: {_status_text(rank.status or 0)} {why}".strip(),
        rank=rank.rank,
    )


def _from_error(errors: Sequence[RankError]) -> Outcome:
    primary = min(errors, key=lambda error: error.monotonic)
    out_of_memory = primary.failure is FailureClass.OUT_OF_MEMORY
    return Outcome(
        state=AttemptState.OUT_OF_MEMORY if out_of_memory else AttemptState.FAILED,
        failure=primary.failure,
        signature=primary.signature,
        error=primary.error,
        rank=primary.rank,
    )


def _status_text(status: int) -> str:
    if status >= 0:
        return f"rank exited with {status}"
    name = signal.Signals(-status).name if -status in set(signal.Signals) else f"signal {-status}"
    hint = " (is /dev/shm full?)" if name == "SIGBUS" else ""
    return f"rank killed by {name}{hint}"


def job_code(ends: Sequence[Outcome | None], *, is_left: bool, goes_on: bool) -> ExitCode:
    """Return what a job ends with.

    Args:
        ends: of its runs; None where nobody could write down how one ended.
        is_left: whether some have not started.
        goes_on: whether another job goes on with what it was stopped in.
    """
    if len(ends) == 1 and not is_left and ends[0] is not None:
        # What the user wanted is no failure.
        wanted = ends[0].state is AttemptState.CANCELLED
        code = ExitCode.COMPLETED if wanted else ends[0].exit_code
    else:
        code = ExitCode.STOPPED if is_left else ExitCode.COMPLETED
    # What is handed on has not failed: nobody shall be mailed about it.
    return ExitCode.COMPLETED if code is ExitCode.STOPPED and goes_on else code
