"""Processes that do several runs of a lane, one after another, as their agent sees them."""

import contextlib
import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from ...jobs.documents import from_plain, to_plain
from ..orders import RankOrder
from ..process import send_signal
from ..reports import Begun, Done, Idle, StayerReport
from .oom import oom_kills
from .processes import use_of_trees

# One that waits for a next run is ended after so long, and so is one that says nothing for longer
# while it should get ready or take a run.
IDLE_S = 5.0
STUCK_S = 30.0


@dataclass(slots=True)
class RankProcess:
    """A rank as its agent knows it."""

    rank: int
    ticket: str
    events: int
    control: int
    log: int
    pid: int | None = None
    status: int | None = None
    """The exit code, or minus the signal; None while it does its run."""
    killed: bool = False
    """Whether its agent killed it, so that its status says nothing."""
    oom_before: int = field(default_factory=oom_kills)
    """Processes around it that the kernel had killed for want of memory when it was forked."""
    cpu_before_s: float = 0.0
    """CPU seconds that its process, and what that had started, spent on earlier runs."""

    def kill(self) -> None:
        """End it, with the processes that it started; as soon as it is known where that is not so
        yet.
        """
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


@dataclass(slots=True)
class Stayer:
    """A process that may do several runs."""

    lane: int
    reuse: str
    socket: socket.socket
    """Orders go out, reports come in."""
    rank: RankProcess
    """What it does, or did last."""
    is_open: bool = True
    """Whether it can still report."""
    is_idle: bool = False
    """Whether it waits for an order."""
    since: float = 0.0
    """When it last reported, or was given a run, in monotonic seconds."""
    handed: Start | None = None
    """The run that it was given and has not taken yet."""
    following: list[Start] = field(default_factory=list)
    """Ranks that begin in its lane as soon as it is idle or gone."""

    @property
    def is_working(self) -> bool:
        return self.rank.status is None

    @property
    def left(self) -> list[Start]:
        """What others must start if it is gone."""
        return [*([self.handed] if self.handed is not None else []), *self.following]

    def hear(self) -> Iterator[tuple[RankProcess, int]]:
        """Take in its reports; yield each run that it begins, with its process id."""
        try:
            for told in received(self.socket):
                yield from self._take(from_plain(json.loads(told), StayerReport))
        except OSError:
            # The template tells how it ended.
            self.is_open = False

    def _take(self, report: StayerReport) -> Iterator[tuple[RankProcess, int]]:
        self.since = time.monotonic()
        match report:
            case Done():
                if self.rank.ticket == report.ticket and self.is_working:
                    self.rank.status = 0
            case Idle():
                self.is_idle = True
                self.go_on()
            case Begun():
                start, pid = self.handed, self.rank.pid
                if start is None or pid is None or start.rank.ticket != report.ticket:
                    return
                self.rank, self.handed = start.rank, None
                start.close()
                uses = use_of_trees([pid])
                self.rank.cpu_before_s = uses[pid].cpu_s if pid in uses else 0.0
                yield self.rank, pid

    def add(self, start: Start) -> None:
        """Have a rank begin here, or where this process was."""
        self.following.append(start)
        self.go_on()

    def go_on(self) -> None:
        """Give an idle process the run that follows, or end it where it does not fit."""
        if not (self.is_idle and self.following):
            return
        (first, *more) = self.following
        if not more and first.order.order.reuse == self.reuse and self._hand(first):
            self.handed, self.following = first, []
            self.is_idle, self.since = False, time.monotonic()
        else:
            # Side by side they would take more than the lane has.
            self.end()

    def _hand(self, start: Start) -> bool:
        message = json.dumps(to_plain(start.order)).encode()
        try:
            socket.send_fds(self.socket, [message], start.handles)
        except OSError:
            return False
        return True

    def is_of_no_use(self, idle_s: float) -> bool:
        """Whether it has waited for so long, or says nothing where it should."""
        silent_s = time.monotonic() - self.since
        if self.is_working:
            return False
        return silent_s >= (idle_s if self.is_idle and not self.following else STUCK_S)

    def end(self) -> None:
        """Kill it."""
        if self.rank.pid is not None:
            end_group(self.rank.pid)


def end_group(pid: int) -> None:
    """Kill a process and what it started: its loader workers are in its process group."""
    with contextlib.suppress(ProcessLookupError):
        try:
            os.killpg(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            send_signal(pid, signal.SIGKILL)


def received(source: socket.socket) -> Iterator[bytes]:
    """Yield the messages that have arrived.

    Raises:
        ConnectionResetError: the other side is gone.
    """
    while True:
        try:
            message = source.recv(1 << 16)
        except BlockingIOError:
            return
        if not message:
            raise ConnectionResetError("its socket is closed")
        yield message
