"""The agent's side of the template: start it, have it fork ranks, hear of their ends."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time

from ...jobs.config.environment import rank_environment
from ...jobs.documents import changed, from_plain, to_plain
from ..orders import RankOrder
from ..reports import Broken, Exited, Forked, Ready, TemplateReport
from .oom import oom_kills
from .stayers import IDLE_S, RankProcess, Start, Stayer, received


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
        self._stayers: list[Stayer] = []
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
        start = Start(rank, order, lane, [events_theirs, control_theirs, log_theirs])
        if listener is not None:
            start.handles.append(os.dup(listener.fileno()))
        before = [one for one in self._stayers if one.lane == lane and not one.is_working]
        if before:
            before[0].add(start)
        else:
            self._fork(start)
        return rank

    def _fork(self, start: Start) -> None:
        """Have the template fork a rank, one that may stay if its order says so."""
        rank, reuse, handles = start.rank, start.order.order.reuse, list(start.handles)
        rank.oom_before = oom_kills()
        if reuse:
            mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            mine.setblocking(False)
            self._stayers.append(Stayer(start.lane, reuse, mine, rank))
            handles.append(theirs.detach())
        self._by_ticket[rank.ticket] = rank
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
        self.dismiss()
        for stayer in self._stayers:
            self._hear(stayer)
        try:
            for told in received(self.socket):
                self._take(from_plain(json.loads(told), TemplateReport))
        except OSError as error:
            status = self.process.wait()
            raise TemplateDied(self._last_words or f"{error}, exit status {status}") from None

    def _hear(self, stayer: Stayer) -> None:
        for rank, pid in stayer.hear():
            self._began(rank, pid)

    def _began(self, rank: RankProcess, pid: int) -> None:
        rank.pid = pid
        self._by_pid[pid] = rank
        if rank.killed:
            # Before it had a process.
            rank.kill()

    def _take(self, report: TemplateReport) -> None:
        match report:
            case Ready():
                self.ready = True
            case Broken():
                self._last_words = report.text
            case Forked():
                self._began(self._by_ticket.pop(report.ticket), report.pid)
            case Exited():
                self._bury(report)

    def _bury(self, report: Exited) -> None:
        gone = [one for one in self._stayers if one.rank.pid == report.pid]
        for stayer in gone:
            # What it said before it ended counts.
            self._hear(stayer)
        ended = self._by_pid.pop(report.pid, None)
        if ended is not None and ended.status is None:
            ended.status = report.status
        for stayer in gone:
            self._stayers.remove(stayer)
            stayer.socket.close()
            for start in stayer.left:
                if start.rank.killed:
                    start.rank.status = -signal.SIGKILL
                    start.close()
                else:
                    self._fork(start)

    def dismiss(self, idle_s: float = IDLE_S) -> None:
        """End the processes that have had nothing to do for so many seconds."""
        for stayer in self._stayers:
            if stayer.is_of_no_use(idle_s):
                stayer.end()

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
        resting = [one for one in self._stayers if not one.is_working]
        for stayer in resting:
            stayer.end()
        deadline = time.monotonic() + 5.0
        with contextlib.suppress(TemplateDied):
            # Its memory, of a GPU too, is free for whoever comes next.
            while any(one in self._stayers for one in resting) and time.monotonic() < deadline:
                time.sleep(0.01)
                self.hear()
        for stayer in self._stayers:
            stayer.socket.close()
            for start in stayer.left:
                start.close()
        self.socket.close()
        if not self.ready:
            # Importing torch takes seconds, and nothing hangs on this one yet.
            self.process.kill()
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
