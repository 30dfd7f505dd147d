"""A rank of one attempt, as its agent knows it."""

import contextlib
import os
import signal
from dataclasses import dataclass

from ..orders import RankOrder
from ..process import send_signal


@dataclass(slots=True)
class RankProcess:
    """A rank of one attempt; ranks of several attempts may have one process, one after another."""

    rank: int
    ticket: str
    events: int
    control: int
    log: int
    pid: int | None = None
    """None until it has a process."""
    status: int | None = None
    """The exit code, or minus the signal; None until the rank has ended."""
    killed: bool = False
    """Whether its agent killed it, so that its status says nothing."""
    oom_before: int = 0
    """Processes around it that the kernel had killed for want of memory when it was forked."""
    cpu_before_s: float = 0.0
    """CPU seconds that its process had spent on earlier runs."""

    def kill(self) -> None:
        """End its process and what that started; if it has none yet, as soon as it gets one."""
        self.killed = True
        if self.pid is not None:
            end_group(self.pid)


@dataclass(frozen=True, slots=True)
class Start:
    """All that it takes to start a rank."""

    rank: RankProcess
    order: RankOrder
    lane: int
    handles: list[int]
    """What the rank writes to and reads from."""

    def close(self) -> None:
        """Close this side's copies of them."""
        for handle in self.handles:
            os.close(handle)

    def drop(self) -> None:
        """Let the rank end without having begun."""
        self.rank.status = -signal.SIGKILL
        self.close()


def end_group(pid: int) -> None:
    """Kill a process and what it started: its loader workers are in its process group."""
    # That it has ended, and its id is somebody else's, is about to be told.
    with contextlib.suppress(PermissionError):
        try:
            os.killpg(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            send_signal(pid, signal.SIGKILL)
