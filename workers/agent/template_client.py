"""The agent's side of the template: start it, have it fork ranks, hear of their ends."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from ...jobs.config.environment import rank_environment
from ...jobs.documents import changed, from_plain, to_plain
from ..orders import RankOrder
from ..process import send_signal
from ..reports import (
    Begun,
    Broken,
    Exited,
    Finished,
    Forked,
    Ready,
    StayerReport,
    TemplateReport,
)
from .oom import oom_kills
from .processes import cpu_seconds

# A process that stays for a next run is ended after so long without one.
IDLE_S = 5.0


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
    """The exit code, or minus the signal; None while it lives."""
    killed: bool = False
    """Whether its agent killed it, so that its status says nothing."""
    oom_before: int = field(default_factory=oom_kills)
    """Processes around it that the kernel had killed for want of memory when it was forked."""
    cpu_before_s: float = 0.0
    """CPU seconds that its process spent on earlier runs."""


@dataclass(frozen=True, slots=True)
class _Start:
    """All that it takes to start a rank."""

    rank: RankProcess
    order: RankOrder
    lane: int
    handles: list[int]
    """What the rank writes to and reads from."""


@dataclass(slots=True)
class _Stayer:
    """A process that may do several runs, one after another."""

    lane: int
    reuse: str
    socket: socket.socket
    """Orders go out, reports come in."""
    rank: RankProcess
    """What it does, or did last."""
    is_open: bool = True
    """Whether it may still report."""
    idle_at: float | None = None
    """Since when it waits, in monotonic seconds; None while it does a run."""
    following: list[_Start] = field(default_factory=list)
    """What the template is to fork once this process is gone: the ranks of a run that it does not
    fit, or what it was given and has not taken.
    """


class TemplateDied(Exception):
    """The template is gone, and every rank with it."""


class Forge:
    """A template process and the ranks it forked."""

    def __init__(self, *, threads: int, log: int) -> None:
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        environment = {
            **rank_environment(os.environ),
            "OMP_NUM_THREADS": str(threads),
            "MKL_NUM_THREADS": str(threads),
            "OPENBLAS_NUM_THREADS": "1",
            "PYTHONUNBUFFERED": "1",
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "vtjobs.workers.ranks.template", str(theirs.fileno())],
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
        )
        theirs.close()
        mine.setblocking(False)
        self.socket = mine
        self.ready = False
        self._last_words = ""
        self._by_ticket: dict[str, RankProcess] = {}
        self._by_pid: dict[int, RankProcess] = {}
        self._stayers: list[_Stayer] = []
        self._tickets = 0

    def fork(
        self, order: RankOrder, *, lane: int = 0, listener: socket.socket | None = None
    ) -> RankProcess:
        """Have a rank's process forked, or an idle one of its lane begin anew.

        The pipes of the rank exist at once, its process id may come later.

        Args:
            order: what the rank is to do.
            lane: the place in which it runs; what is idle there makes room for it.
            listener: where rank 0 of a group is met.

        Raises:
            TemplateDied: there is nobody to fork it.
        """
        events, events_theirs = os.pipe()
        control_theirs, control = os.pipe()
        log, log_theirs = os.pipe()
        self._tickets += 1
        rank = RankProcess(order.rank, str(self._tickets), events, control, log)
        order = changed(order, ticket=rank.ticket)
        start = _Start(rank, order, lane, [events_theirs, control_theirs, log_theirs])
        if listener is not None:
            start.handles.append(os.dup(listener.fileno()))
        idle = next((one for one in self._idle() if one.lane == lane), None)
        if idle is None:
            self._fork(start)
        else:
            idle.following.append(start)
            if idle.reuse != order.order.reuse or not _hand(idle, start):
                # Two processes at a time are more than its lane has a right to.
                self._end(idle)
        return rank

    def _fork(self, start: _Start) -> None:
        """Have the template fork a rank, one that may stay if its order says so."""
        reuse, handles = start.order.order.reuse, list(start.handles)
        if reuse:
            mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            mine.setblocking(False)
            self._stayers.append(_Stayer(start.lane, reuse, mine, start.rank))
            handles.append(theirs.detach())
        self._by_ticket[start.rank.ticket] = start.rank
        try:
            self.socket.setblocking(True)
            socket.send_fds(self.socket, [json.dumps(to_plain(start.order)).encode()], handles)
        except OSError as error:
            raise TemplateDied(str(error)) from None
        finally:
            self.socket.setblocking(False)
            for handle in handles:
                os.close(handle)

    @property
    def handles(self) -> list[int]:
        """What wakes the agent."""
        stayers = (one.socket.fileno() for one in self._stayers if one.is_open)
        return [self.socket.fileno(), *stayers]

    def hear(self) -> None:
        """Take in what the template says, and the processes that do several runs.

        Raises:
            TemplateDied: it is gone.
        """
        for stayer in self._stayers:
            try:
                for told in _received(stayer.socket):
                    self._take_of(stayer, from_plain(json.loads(told), StayerReport))
            except OSError:
                # The template tells how it ended.
                stayer.is_open = False
        try:
            for told in _received(self.socket):
                self._take(from_plain(json.loads(told), TemplateReport))
        except OSError as error:
            raise TemplateDied(
                self._last_words or f"{error}, exit status {self.process.wait()}"
            ) from None

    def _take_of(self, stayer: _Stayer, report: StayerReport) -> None:
        match report:
            case Finished():
                stayer.rank.status, stayer.idle_at = 0, time.monotonic()
            case Begun():
                start, pid = stayer.following.pop(), stayer.rank.pid
                assert pid is not None
                stayer.rank, stayer.idle_at = start.rank, None
                start.rank.pid, start.rank.cpu_before_s = pid, cpu_seconds(pid)
                self._by_pid[pid] = start.rank
                for handle in start.handles:
                    os.close(handle)

    def _take(self, report: TemplateReport) -> None:
        match report:
            case Ready():
                self.ready = True
            case Broken():
                self._last_words = report.text
            case Forked():
                rank = self._by_ticket.pop(report.ticket)
                rank.pid = report.pid
                self._by_pid[report.pid] = rank
            case Exited():
                self._bury(report)

    def _bury(self, report: Exited) -> None:
        ended = self._by_pid.pop(report.pid, None)
        if ended is not None and ended.status is None:
            ended.status = report.status
        for stayer in [one for one in self._stayers if one.rank is ended]:
            self._stayers.remove(stayer)
            stayer.socket.close()
            for start in stayer.following:
                self._fork(start)

    def _idle(self) -> Iterator[_Stayer]:
        # One that ended before the template said who it is waits until that is heard.
        return (one for one in self._stayers if one.idle_at is not None and one.rank.pid)

    def _end(self, stayer: _Stayer) -> None:
        send_signal(stayer.rank.pid, signal.SIGKILL)

    def dismiss(self, idle_s: float = IDLE_S) -> None:
        """End the processes that have had nothing to do for so many seconds."""
        now = time.monotonic()
        for stayer in self._idle():
            if not stayer.following and now - (stayer.idle_at or now) >= idle_s:
                self._end(stayer)

    @property
    def was_killed(self) -> bool:
        """Whether the template, which is gone, died of a signal.

        That says nothing about what it imports.
        """
        try:
            return self.process.wait(timeout=5) < 0
        except subprocess.TimeoutExpired:
            return False

    def close(self) -> None:
        """End the template, and before it what waits for a next run."""
        self.dismiss(idle_s=0.0)
        deadline = time.monotonic() + 5.0
        with contextlib.suppress(TemplateDied):
            # Its memory, of a GPU too, is free for whoever comes next.
            while any(self._idle()) and time.monotonic() < deadline:
                time.sleep(0.01)
                self.hear()
        for stayer in self._stayers:
            stayer.socket.close()
        self.socket.close()
        if not self.ready:
            # Importing torch takes seconds, and nothing hangs on this one yet.
            self.process.kill()
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def _hand(stayer: _Stayer, start: _Start) -> bool:
    """Give an idle process its next run; False where it is gone."""
    message = json.dumps(to_plain(start.order)).encode()
    try:
        socket.send_fds(stayer.socket, [message], start.handles)
    except OSError:
        return False
    return True


def _received(source: socket.socket) -> Iterator[bytes]:
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
