"""How an attempt ended, from what its ranks said and how they exited."""

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...jobs.run.states import EXIT_OF_CLASS, AttemptState, ExitCode, FailureClass
from ..ranks.failure import STORAGE_ERRORS
from .oom import oom_kills
from .template_client import RankProcess


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What the end record says."""

    state: AttemptState
    failure: FailureClass | None = None
    signature: str = ""
    error: str = ""
    rank: int | None = None
    host: str = ""
    # Where the cause lay, if not on node 0.
    explained: bool = True
    # False where the scheduler stopped it and would not say why.

    @property
    def exit_code(self) -> ExitCode:
        return EXIT_OF_CLASS[self.failure] if self.failure else ExitCode.COMPLETED


_STOPPED_CLASS = {
    AttemptState.CANCELLED: FailureClass.CANCELLED,
    AttemptState.TIMEOUT: FailureClass.WALLTIME,
    AttemptState.PREEMPTED: FailureClass.STOPPED,
    AttemptState.SUPERSEDED: FailureClass.SUPERSEDED,
}


def judge_ranks(
    ranks: Sequence[RankProcess],
    errors: Sequence[dict[str, Any]],
    *,
    stopping: AttemptState | None,
    killed_for: str,
) -> Outcome:
    """Judge an attempt whose ranks have all ended.

    The first primary error wins, then a rank that died of a signal, then what peers saw of it, then exit statuses.
    """
    statuses = [rank.status for rank in ranks]
    if stopping in (AttemptState.SUPERSEDED, AttemptState.CANCELLED):
        return Outcome(state=stopping, failure=_STOPPED_CLASS[stopping], signature=killed_for)
    if statuses and all(status == ExitCode.COMPLETED for status in statuses):
        return Outcome(state=AttemptState.COMPLETED)
    primary = [error for error in errors if error["failure"] != FailureClass.COMMUNICATION]
    if primary:
        return _from_error(primary)
    if killed_for.startswith("no progress"):
        return Outcome(state=AttemptState.FAILED, failure=FailureClass.HANG, signature="no progress", error=killed_for)
    died = next((rank for rank in ranks if (rank.status or 0) < 0 and not rank.killed), None)
    if died is not None and stopping is None:
        # Peers of a rank that dies without a word see a broken connection; that is not the cause.
        return _crash(died, killed_for)
    if errors:
        return _from_error(errors)
    if statuses and all(status == ExitCode.STOPPED for status in statuses):
        state = stopping or AttemptState.PREEMPTED
        return Outcome(state=state, failure=_STOPPED_CLASS[state], signature="stopped and saved")
    if stopping is not None:
        return Outcome(state=stopping, failure=_STOPPED_CLASS[stopping], signature=killed_for or "stopped")
    if killed_for.startswith("node "):
        return Outcome(state=AttemptState.FAILED, failure=FailureClass.COMMUNICATION, signature=killed_for)
    failed = next((rank for rank in ranks if rank.status not in (ExitCode.COMPLETED, ExitCode.STOPPED)), None)
    if failed is None:
        reason = killed_for or "no rank was started"
        return Outcome(state=AttemptState.FAILED, failure=FailureClass.CRASH, signature=reason)
    return _crash(failed, killed_for)


def set_up_failure(error: Exception) -> Outcome:
    """Return how an attempt ended that its agent could not start."""
    stored = isinstance(error, OSError) and error.errno in STORAGE_ERRORS
    failure = FailureClass.STORAGE if stored else FailureClass.SETUP_ERROR
    return Outcome(state=AttemptState.FAILED, failure=failure, signature=f"{type(error).__name__}: {error}")


def _crash(rank: RankProcess, killed_for: str) -> Outcome:
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
        error=f"rank {rank.rank}: {_status_text(rank.status or 0)} {killed_for}".strip(),
        rank=rank.rank,
    )


def _from_error(errors: Sequence[dict[str, Any]]) -> Outcome:
    primary = min(errors, key=lambda error: error["monotonic"])
    failure = FailureClass(primary["failure"])
    out_of_memory = failure is FailureClass.OUT_OF_MEMORY
    return Outcome(
        state=AttemptState.OUT_OF_MEMORY if out_of_memory else AttemptState.FAILED,
        failure=failure,
        signature=primary["signature"],
        error=primary["error"],
        rank=primary["rank"],
    )


def _status_text(status: int) -> str:
    if status >= 0:
        return f"rank exited with {status}"
    name = signal.Signals(-status).name if -status in set(signal.Signals) else f"signal {-status}"
    hint = " (is /dev/shm full?)" if name == "SIGBUS" else ""
    return f"rank killed by {name}{hint}"
