"""The node agent: serves one allocation on one node, the same under every backend.

Of an allocation of several nodes, node 0's agent claims, decides and hands on; the others follow
it.
"""

import logging
import signal
import sys
import time
from collections import deque

from ...jobs.config.node import Ruling, on_node
from ...jobs.errors import VtjobsError
from ...jobs.run.retry import STALLED_LIMIT
from ...jobs.run.states import AttemptState, ExitCode, FailureClass
from ...jobs.workspace.allocation import Allocation, Task
from ...jobs.workspace.paths import Workspace
from ...jobs.workspace.presence import Presence
from ..reach import inquiry, take_answer
from .attempt import STOP_GRACE_S, HostedRun
from .follower import OrderWatch, PeerRun
from .further_work import FurtherWork
from .lanes import lanes_of
from .outcome import job_code
from .second_service import serve_again, tasks_of_place
from .successor import hand_on, hand_on_stopped, submit_unsent, was_sent
from .telling import tell
from .template_client import Forge, TemplateDied
from .turn import Turn
from .wake import Wake

logger = logging.getLogger("vtjobs.agent")

TICK_S = 0.25
# Of the time between the walltime's signal and the walltime, what the end record and the successor
# may take.
HAND_ON_S = 15.0
MOST_TEMPLATES = 3
HANDED_ON = (AttemptState.TIMEOUT, AttemptState.PREEMPTED)

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2)


class Agent:
    """Claim, fork, watch and end the runs of one allocation, several at a time."""

    def __init__(
        self,
        workspace: Workspace,
        allocation: Allocation,
        index: int,
        *,
        node: int = 0,
        mirror: bool = False,
    ) -> None:
        self.node = node
        self.mirror = mirror
        self.scheduler = on_node(allocation.shape.backend)
        self.workspace = workspace
        self.allocation = allocation
        self.index = index
        again = self.scheduler.restarts and tasks_of_place(workspace, allocation, index)
        self.waiting: deque[Task] = deque(again or allocation.tasks[index])
        self.lanes = lanes_of(allocation)
        self.active: list[HostedRun] = []
        self.done: list[HostedRun] = []
        self.stopping: AttemptState | None = None
        self.ruling: Ruling | None = None
        self._unsettled = False
        self.further = FurtherWork(
            workspace, allocation, index, clock=time.time, scheduler=self.scheduler
        )
        # One agent of an allocation asks for all.
        asks = not node and not index and not mirror
        self.asked = inquiry(workspace, allocation.shape.backend, self.scheduler) if asks else None
        # All nodes of an allocation serve the same runs.
        may_end = asks and allocation.shape.nodes == 1
        self.turn = Turn(workspace, allocation, self.scheduler, may_end=may_end)
        self.forge: Forge | None = None
        self.templates = 0
        self.began = time.monotonic()
        self._ordered = OrderWatch(workspace, allocation)
        self._gave_up = False
        # Whether another job goes on with what this one was stopped in.
        self._goes_on = False
        self._wake = Wake()
        self._presence = Presence(workspace)

    def run(self) -> int:
        """Serve until every run has ended; return the agent's exit code."""
        self._wake.up_by_signals()
        for number in _SIGNALS:
            signal.signal(number, self._on_signal)
        signal.signal(signal.SIGUSR1, self._on_nudge)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        if any(len(lane.gpus) < self.allocation.shape.gpus for lane in self.lanes):
            # Otherwise a GPU run would train on the CPU, in silence.
            self._give_up(
                f"each run needs {self.allocation.shape.gpus} GPUs, the allocation has too few"
            )
        if self.scheduler.restarts and not self.node:
            self.scheduler.start_no_more()
        while self._has_work() or self.active or self._unsettled:
            try:
                self._serve()
            except TemplateDied as error:
                self._bury(str(error))
        if self.forge is not None:
            # Before the scheduler is asked: others may want its processes' GPUs.
            self.forge.end_resting()
        if not self.node:
            self._leave()
        if self.forge is not None:
            self.forge.close()
        if not self.node and self.stopping is None and self.scheduler.waits:
            # Elsewhere a queue of ours, or who waits for the run, sees to it.
            tell(self.workspace, self.allocation, [hosted.task for hosted in self.done])
        return self._exit_code()

    def _leave(self) -> None:
        """See that others go on with what is left, and with what others could not submit."""
        self._presence.require(at_once=True)
        if self._hands_on():
            # Before all else: little time may be left.
            self._give_up_where_time_is_too_short()
            left = [*self.waiting, *self.further.pending]
            token = hand_on_stopped(self.workspace, self.allocation, self.done, left)
            self._goes_on = was_sent(self.workspace, token)
        elif self.stopping is None:
            self._pass_on()
        submit_unsent(self.workspace, self.allocation.shape.backend)
        # A job that somebody wants to end stays ended.
        if self.stopping in (None, AttemptState.TIMEOUT) and not self._gave_up:
            serve_again(self.workspace, self.allocation, self.index, self.scheduler)

    def _give_up_where_time_is_too_short(self) -> None:
        """End what never gets to start, however often it is handed on."""
        before = self.allocation.unstarted
        if self.stopping is AttemptState.TIMEOUT and not self.done and before + 1 >= STALLED_LIMIT:
            self._give_up(
                f"the walltime of {before + 1} jobs in a row ended before the run could start; ask"
                " for more resources.walltime"
            )

    def _has_work(self) -> bool:
        """Whether a run waits to be started here; where none does, further ones are looked for."""
        if self.stopping is not None or self._gives_way():
            return False
        if not self.waiting and len(self.active) < len(self.lanes) and self._takes_on():
            if (task := self.further.next()) is not None:
                self.waiting.append(task)
        return bool(self.waiting) or bool(self.further.pending and self._takes_on())

    def _gives_way(self) -> bool:
        """Whether no further run is started, so that another grid gets what this one has."""
        return bool(self.done) and len(self.active) < len(self.lanes) and self.turn.is_over()

    def _takes_on(self) -> bool:
        """Whether further runs are served here.

        The other nodes of an allocation know only what it began with; whoever runs one in the
        foreground wants no other; and a run should at least reach its next checkpoint.
        """
        shape = self.allocation.shape
        if shape.nodes > 1 or self._gave_up or self.mirror:
            return False
        if shape.walltime_s is None:
            return True
        need = shape.lead_s + min(shape.checkpoint_every_s, shape.walltime_s / 4)
        return time.monotonic() - self.began + need < shape.walltime_s

    def _hands_on(self) -> bool:
        if self.node or self.stopping not in HANDED_ON:
            return False
        # A TERM that nobody explained may be the user's wish to end it.
        return self.stopping is AttemptState.TIMEOUT or (
            self.ruling is not None and self.ruling.explained
        )

    def _serve(self) -> None:
        self._presence.require()
        if self.forge is None and self.waiting and self.stopping is None and not self._gave_up:
            self.forge = Forge(threads=self.allocation.shape.threads, log=sys.stderr.fileno())
            self.templates += 1
        if self.forge is not None:
            self.forge.hear()
            if self.forge.ready and self.node:
                self._follow(self.forge)
            elif self.forge.ready:
                self._fill(self.forge)
            # After the idle ones were given what was there to do.
            self.forge.dismiss()
        self._sleep()
        self.asked = take_answer(self.asked, self.workspace, self.allocation.shape.backend)
        if self.forge is not None:
            self.forge.hear()
        for hosted in self.active:
            hosted.tick()
        for hosted in [hosted for hosted in self.active if hosted.ended is not None]:
            self._retire(hosted)
        self._check_walltime()
        if self._unsettled:
            self._settle()

    def _fill(self, forge: Forge) -> None:
        if self._gives_way():
            return
        busy = {hosted.lane.index for hosted in self.active}
        for lane in self.lanes:
            while lane.index not in busy and self.waiting and self.stopping is None:
                if not self._presence.is_there():
                    return
                task = self.waiting.popleft()
                hosted = HostedRun(
                    self.workspace, self.allocation, task, lane, forge, mirror=self.mirror
                )
                self.active.append(hosted)
                hosted.start()
                if hosted.ended is not None:
                    self._retire(hosted)
                else:
                    logger.info(
                        "run %s: attempt %d started", hosted.task.run_id, hosted.task.attempt
                    )
                    busy.add(lane.index)
        if self.active:
            self.turn.begin()

    def _follow(self, forge: Forge) -> None:
        """Start this node's ranks of what node 0 has ordered."""
        if self.stopping is not None:
            return
        busy = {hosted.lane.index for hosted in self.active}
        for task, order in self._ordered.take(self.waiting, busy):
            hosted = PeerRun(
                self.workspace,
                self.allocation,
                task,
                self.lanes[order.lane],
                forge,
                node=self.node,
                mirror=self.mirror,
            )
            self.active.append(hosted)
            hosted.follow(order)
            if hosted.ended is not None:
                self._retire(hosted)
        self._ordered.check(self.waiting, is_busy=bool(self.active))

    def _retire(self, hosted: HostedRun) -> None:
        assert hosted.ended is not None
        self.active.remove(hosted)
        self.done.append(hosted)
        outcome = hosted.ended
        self._look_after(hosted)
        task, why = hosted.task, f" ({outcome.signature})" if outcome.signature else ""
        logger.info("run %s: attempt %d %s%s", task.run_id, task.attempt, outcome.state, why)
        if self.node == 0 and self.allocation.shape.nodes > 1 and self.stopping is None:
            if outcome.failure in (FailureClass.STOPPED, FailureClass.WALLTIME):
                # Another node's agent was told to stop; it will serve no further run.
                self._stop(outcome.state)
            elif hosted.deserted:
                self._stop(AttemptState.PREEMPTED)

    def _look_after(self, hosted: HostedRun) -> None:
        """See whether the run is tried again, here or on another node."""
        outcome, further = hosted.ended, self.further
        if self.node or outcome is None:
            return
        self._presence.require(at_once=True)
        try:
            further.after(
                hosted.task,
                outcome.state,
                outcome.failure,
                signature=outcome.signature,
                error=outcome.error,
            )
            while further.elsewhere:
                due = further.elsewhere.pop()
                hand_on(
                    self.workspace,
                    self.allocation,
                    [due.task],
                    avoid=hosted.host if due.avoids_node else "",
                    waits=False,
                    delay_s=due.delay_s,
                )
        except (OSError, ValueError, KeyError, VtjobsError) as error:
            # The next pass over the workspace retries it.
            logger.warning("run %s: cannot be retried from here: %s", hosted.task.run_id, error)

    def _pass_on(self) -> None:
        """Submit what is due and can no longer be served here, where nobody else would.

        What gave way, retries, or one run of the grid that waits: its agent takes on the next one.
        """
        further = self.further
        if self._gave_up or not (self.scheduler.waits or self.waiting):
            return
        delay_s = further.delay_s if self.scheduler.delays else 0.0
        left = [*self.waiting, *further.pending]
        token = hand_on(
            self.workspace,
            self.allocation,
            left or list(filter(None, [further.next(here=False)])),
            delay_s=delay_s,
            after_start_of=self.turn.waits_for,
        )
        self._goes_on = token is not None

    def _sleep(self) -> None:
        handles = {handle for hosted in self.active for handle in hosted.handles}
        handles.update(self.forge.handles if self.forge is not None else ())
        self._wake.wait(handles, TICK_S)

    def _bury(self, reason: str) -> None:
        """The template died: end what it carried, and start another one while that makes sense."""
        assert self.forge is not None
        forge, self.forge = self.forge, None
        sound = forge.ready or forge.was_killed
        forge.close()
        logger.error("fork server died: %s", reason)
        for hosted in list(self.active):
            hosted.template_died(reason)
            if hosted.ended is not None:
                self._retire(hosted)
        if not sound:
            self._give_up(f"the fork server could not start ({reason}); see the agent's log")
        elif self.templates >= MOST_TEMPLATES:
            # Something on this node kills them; what has not started goes elsewhere, or here again
            # later.
            self._stop(AttemptState.PREEMPTED)

    def _give_up(self, reason: str) -> None:
        """End every run that has not started, because it cannot start here."""
        self._gave_up = True
        while self.waiting:
            task = self.waiting.popleft()
            hosted = HostedRun(
                self.workspace, self.allocation, task, self.lanes[0], None, node=self.node
            )
            hosted.fail_set_up(reason)
            self.done.append(hosted)

    def _on_signal(self, number: int, _: object) -> None:
        if number == signal.SIGUSR2:
            lead = self.allocation.shape.lead_s
            keeps_time = self.scheduler.signals_walltime
            within_s = max(lead / 2, lead - HAND_ON_S) if keeps_time else STOP_GRACE_S
            self._stop(AttemptState.TIMEOUT, within_s=within_s)
        elif number == signal.SIGTERM:
            # Only node 0's word counts, so only its agent asks why.
            self._stop(
                AttemptState.PREEMPTED,
                within_s=self.scheduler.term_grace_s or STOP_GRACE_S,
                settled=bool(self.node) or not self.scheduler.explains_stops,
            )
        else:
            self._stop(AttemptState.PREEMPTED)

    def _on_nudge(self, *_: object) -> None:
        for hosted in self.active:
            hosted.look_now()

    def _stop(
        self, state: AttemptState, *, within_s: float = STOP_GRACE_S, settled: bool = True
    ) -> None:
        if self.stopping is None:
            self.stopping, self._unsettled = state, not settled
            for hosted in self.active:
                hosted.stop(state, within_s=within_s, settled=settled)

    def _settle(self) -> None:
        """Ask the scheduler why it stops this job, without holding up the ranks that are saving
        meanwhile.
        """
        self.ruling = self.scheduler.why_stopped()
        if self.ruling is not None:
            self.stopping, self._unsettled = self.ruling.state, False
            logger.info("stopped by the scheduler: %s", self.ruling)
            for hosted in self.active:
                hosted.settle(self.ruling)

    def _check_walltime(self) -> None:
        walltime = self.allocation.shape.walltime_s
        if walltime is not None and self.stopping is None and not self.scheduler.signals_walltime:
            lead = min(self.allocation.shape.lead_s, walltime / 4)
            if time.monotonic() - self.began >= walltime - lead:
                self._stop(AttemptState.TIMEOUT)

    def _exit_code(self) -> int:
        if self.node:
            # Node 0's code speaks for the run; a bad one from here would have srun kill node 0's
            # agent as it writes.
            return int(ExitCode.COMPLETED)
        ends = [hosted.ended for hosted in self.done]
        return int(job_code(ends, is_left=bool(self.waiting), goes_on=self._goes_on))
