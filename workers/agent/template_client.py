"""The agent's side of the template: start it, have it fork ranks, hear of their ends."""

import contextlib
import json
import os
import socket
import subprocess
import time

from ...jobs.config.environment import rank_environment
from ...jobs.config.interpreter import module_command
from ...jobs.documents import from_plain, to_plain
from ...jobs.values import changed
from ..orders import RankOrder
from ..reports import Broken, Exited, Forked, Ready, TemplateReport
from .lane_process import Gone, LaneProcess, received
from .oom import oom_kills
from .rank_process import RankProcess, Start


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
            module_command("vtjobs.workers.ranks.template", str(theirs.fileno())),
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
        self._processes: list[LaneProcess] = []
        self._tickets = 0

    def start(self, order: RankOrder, *, lane: int, listener: socket.socket | None) -> RankProcess:
        """Have a rank begin: in the lane's process if that is idle and fits, else in a new one.

        The pipes of the rank exist at once, its process id may come later.

        Args:
            order: what the rank is to do.
            lane: the place in which it runs. A process there that does not fit is ended before.
            listener: where rank 0 of a group is met.

        Raises:
            TemplateDied: there is nobody to fork it.
        """
        events, events_theirs = os.pipe()
        control_theirs, control = os.pipe()
        log, log_theirs = os.pipe()
        self._tickets += 1
        rank = RankProcess(order.rank, str(self._tickets), events, control, log)
        handles = [events_theirs, control_theirs, log_theirs]
        if listener is not None:
            handles.append(os.dup(listener.fileno()))
        start = Start(rank, changed(order, ticket=rank.ticket), lane, handles)
        before = [one for one in self._processes if one.lane == lane and not one.is_working]
        if before:
            before[0].add(start)
        else:
            self._fork(start)
        return rank

    def _fork(self, start: Start) -> None:
        """Have the template fork a rank; if its order says so, its process may do others later."""
        rank, reuse, handles = start.rank, start.order.order.reuse, start.handles
        rank.oom_before = oom_kills()
        try:
            if reuse:
                mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                mine.setblocking(False)
                self._processes.append(LaneProcess(start.lane, reuse, mine, rank))
                handles.append(theirs.detach())
            self._by_ticket[rank.ticket] = rank
            self.socket.setblocking(True)
            socket.send_fds(self.socket, [json.dumps(to_plain(start.order)).encode()], handles)
        except OSError as error:
            raise TemplateDied(str(error)) from None
        finally:
            self.socket.setblocking(False)
            start.close()

    @property
    def handles(self) -> list[int]:
        """What wakes the agent."""
        processes = (one.channel.fileno() for one in self._processes if one.is_open)
        return [self.socket.fileno(), *processes]

    def hear(self) -> None:
        """Take in what the template says, and the processes that do several runs.

        Raises:
            TemplateDied: it is gone.
        """
        self._hear_processes()
        try:
            for told in received(self.socket):
                self._take(from_plain(json.loads(told), TemplateReport))
        except Gone as gone:
            # What they said before they ended with it counts.
            self._hear_processes()
            status = self.process.wait()
            raise TemplateDied(self._last_words or f"{gone}, exit status {status}") from None

    def _hear_processes(self) -> None:
        for process in self._processes:
            self._hear(process)

    def _hear(self, process: LaneProcess) -> None:
        for rank, pid in process.hear():
            self._has_process(rank, pid)

    def _has_process(self, rank: RankProcess, pid: int) -> None:
        rank.pid = pid
        self._by_pid[pid] = rank
        if rank.killed:
            # It was ended before it had one.
            rank.kill()

    def _take(self, report: TemplateReport) -> None:
        match report:
            case Ready():
                self.ready = True
            case Broken():
                self._last_words = report.text
            case Forked():
                self._has_process(self._by_ticket.pop(report.ticket), report.pid)
            case Exited():
                self._bury(report)

    def _bury(self, report: Exited) -> None:
        gone = [one for one in self._processes if one.rank.pid == report.pid]
        for process in gone:
            # What it said before it ended counts.
            self._hear(process)
        ended = self._by_pid.pop(report.pid, None)
        if ended is not None and ended.status is None:
            ended.status = report.status
        for process in gone:
            self._processes.remove(process)
            process.channel.close()
            for start in process.not_begun:
                if start.rank.killed:
                    start.drop()
                else:
                    self._fork(start)

    def dismiss(self) -> None:
        """End the processes that nobody needs any more, and those that do not answer."""
        for process in self._processes:
            if process.should_end and not process.is_ended:
                process.end()

    def end_resting(self) -> None:
        """End the processes that do no run at this moment, and forget what would follow there."""
        for process in self._processes:
            if not process.is_working:
                for start in process.not_begun:
                    start.drop()
                process.handed, process.following = None, []
                process.end()

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
        self.end_resting()
        deadline = time.monotonic() + 5.0
        with contextlib.suppress(TemplateDied):
            # Their memory, of a GPU too, is free for whoever comes next.
            while any(one.is_ended for one in self._processes) and time.monotonic() < deadline:
                time.sleep(0.01)
                self.hear()
        for process in self._processes:
            process.channel.close()
        self.socket.close()
        if not self.ready:
            # Importing torch takes seconds, and nothing hangs on this one yet.
            self.process.kill()
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
