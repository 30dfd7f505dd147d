"""The agent's side of the template: start it, have it fork ranks, hear of their ends."""

import json
import os
import socket
import subprocess
import sys
from dataclasses import dataclass, field

from ...jobs.config.environment import rank_environment
from ...jobs.documents import changed, from_plain, to_plain
from ..orders import RankOrder
from ..reports import Broken, Exited, Forked, Ready, TemplateReport
from .oom import oom_kills


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
        self._tickets = 0

    def fork(self, order: RankOrder, *, listener: socket.socket | None) -> RankProcess:
        """Have a rank forked; its pipes exist at once, its process id comes later.

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
            handles.append(listener.fileno())
        try:
            self.socket.setblocking(True)
            message = to_plain(changed(order, ticket=rank.ticket))
            socket.send_fds(self.socket, [json.dumps(message).encode()], handles)
        except OSError as error:
            raise TemplateDied(str(error)) from None
        finally:
            self.socket.setblocking(False)
            for handle in (events_theirs, control_theirs, log_theirs):
                os.close(handle)
        self._by_ticket[rank.ticket] = rank
        return rank

    def hear(self) -> None:
        """Take in what the template says.

        Raises:
            TemplateDied: it is gone.
        """
        while True:
            try:
                message = self.socket.recv(1 << 16)
            except BlockingIOError:
                return
            except OSError as error:
                raise TemplateDied(str(error)) from None
            if not message:
                raise TemplateDied(self._last_words or f"exit status {self.process.wait()}")
            self._take(from_plain(json.loads(message), TemplateReport))

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
                ended = self._by_pid.pop(report.pid, None)
                if ended is not None:
                    ended.status = report.status

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
        """End the template."""
        self.socket.close()
        if not self.ready:
            # Importing torch takes seconds, and nothing hangs on this one yet.
            self.process.kill()
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
