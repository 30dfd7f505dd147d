"""A process that does the runs of a lane one after another, as its agent sees it."""

import json
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from ...jobs.documents import from_plain, to_plain
from ..reports import Begun, Done, Idle, LaneReport
from .rank_process import RankProcess, Start, end_group

# How long a process waits for a next run.
IDLE_S = 5.0
# How long it may take to let go of a run, or to take the next one.
STUCK_S = 30.0


class Gone(Exception):
    """The other side of a socket is no longer there."""


@dataclass(slots=True)
class LaneProcess:
    """A process that may do several runs."""

    lane: int
    reuse: str
    channel: socket.socket
    """Orders go out, reports come in."""
    rank: RankProcess
    """What it does, or did last."""
    is_open: bool = True
    """Whether it can still report."""
    is_idle: bool = False
    """Whether it waits for an order."""
    is_ended: bool = False
    """Whether it was killed, so that it begins nothing any more."""
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
    def not_begun(self) -> list[Start]:
        """What has to be started otherwise if it ends."""
        return [*([self.handed] if self.handed is not None else []), *self.following]

    def hear(self) -> list[tuple[RankProcess, int]]:
        """Take in its reports; return what it has begun, each with the process id."""
        begun: list[tuple[RankProcess, int]] = []
        try:
            for told in received(self.channel):
                begun += self._take(from_plain(json.loads(told), LaneReport))
        except Gone:
            # The template tells how it ended.
            self.is_open = False
        return begun

    def _take(self, report: LaneReport) -> list[tuple[RankProcess, int]]:
        self.since = time.monotonic()
        match report:
            case Done():
                if self.rank.ticket == report.ticket and self.is_working:
                    self.rank.status = 0
            case Idle():
                self.is_idle = True
                self._go_on()
            case Begun():
                return self._begin(report)
        return []

    def _begin(self, report: Begun) -> list[tuple[RankProcess, int]]:
        start = self.handed
        if self.is_ended or start is None or start.rank.ticket != report.ticket:
            return []
        pid, self.rank, self.handed = self.rank.pid, start.rank, None
        # An order is handed over only after the template has named the process.
        assert pid is not None
        self.rank.cpu_before_s = report.cpu_s
        start.close()
        return [(self.rank, pid)]

    def add(self, start: Start) -> None:
        """Have a rank begin here, or where this process was."""
        self.following.append(start)
        self._go_on()

    def _go_on(self) -> None:
        """Give an idle process the run that follows; end it if it cannot take that one."""
        if not (self.is_idle and self.following):
            return
        (first, *more) = self.following
        # Several ranks, a run that computes otherwise, or one that nobody wants any more need
        # processes of their own, and the lane has room for these once this one is gone.
        fits = not more and first.order.order.reuse == self.reuse and not first.rank.killed
        if fits and not self.is_ended and self._hand(first):
            self.handed, self.following = first, []
            self.is_idle, self.since = False, time.monotonic()
        else:
            self.end()

    def _hand(self, start: Start) -> bool:
        message = json.dumps(to_plain(start.order)).encode()
        try:
            socket.send_fds(self.channel, [message], start.handles)
        except OSError:
            return False
        return True

    @property
    def should_end(self) -> bool:
        """Whether nobody needs it any more, or it does not do what it should."""
        if self.is_working:
            return False
        if self.not_begun and all(start.rank.killed for start in self.not_begun):
            return True
        is_waiting = self.is_idle and not self.following
        return time.monotonic() - self.since >= (IDLE_S if is_waiting else STUCK_S)

    def end(self) -> None:
        """Kill it."""
        self.is_ended = True
        if self.rank.pid is not None:
            end_group(self.rank.pid)


def received(source: socket.socket) -> Iterator[bytes]:
    """Yield the messages that have arrived.

    Raises:
        Gone: the other side has closed its end.
    """
    while True:
        try:
            message = source.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError as error:
            raise Gone(str(error)) from None
        if not message:
            raise Gone("its socket is closed")
        yield message
