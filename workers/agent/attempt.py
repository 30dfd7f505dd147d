"""One attempt on one node, from its claim to its end record."""

import dataclasses
import os
import socket
import time

from ...jobs.atomic_files import make_folder
from ...jobs.config.node import Ruling, on_node
from ...jobs.documents import from_plain
from ...jobs.errors import VtjobsError
from ...jobs.run.spec import RunSpec
from ...jobs.run.states import AttemptState, ExitCode, FailureClass
from ...jobs.values import changed
from ...jobs.workspace.allocation import Allocation, Task
from ...jobs.workspace.journal import HEARTBEAT_S, Line
from ...jobs.workspace.paths import RunFolder, Workspace
from ...jobs.workspace.stored_grid import write_spec
from ..environment import origin, trains_on_gpu, write_environment
from ..orders import Order
from ..ranks.gate import Gate
from ..ranks.rendezvous import listen, own_addresses
from ..reports import RankError
from .attempt_journal import AttemptJournal
from .blame import Weight, blame, weigh
from .claim import claim_or_refuse, overruled
from .lanes import Lane
from .meter import Meter
from .orders import make_order, processes_of_rank, publish_order, write_key
from .other_nodes import LOOK_S, OtherNodes
from .outcome import KillCause, Killed, Outcome, judge_ranks, set_up_failure
from .progress import Progress
from .rank_group import RankGroup
from .resume import choose_resume, from_parent
from .template_client import Forge, TemplateDied

FENCE_S = float(os.environ.get("VTJOBS_FENCE_S", "10"))
# After the first failure, peers get this long to say what they saw.
LAST_WORDS_S = 5.0
# After its own ranks are gone, node 0 gives the other nodes this long to say what they saw.
OTHERS_S = 10.0
# After a wish to stop, ranks get this long to reach a common step and save.
STOP_GRACE_S = 120.0
NO_TIME = "its walltime ended before a new checkpoint"


class HostedRun:
    """An attempt in the hands of an agent; `tick` until `ended` is set."""

    def __init__(
        self,
        workspace: Workspace,
        allocation: Allocation,
        task: Task,
        lane: Lane,
        forge: Forge | None,
        *,
        node: int = 0,
        mirror: bool = False,
    ) -> None:
        self.node = node
        self.workspace = workspace
        self.allocation = allocation
        self.task = task
        self.lane = lane
        self.forge = forge
        # The scheduler's name of this node: what it can be told to avoid.
        self.host = on_node(allocation.shape.backend).host()
        self.folder: RunFolder = workspace.run(task.run_id)
        others = (other for other in range(allocation.shape.nodes) if other != node)
        self.others = OtherNodes(self.folder, task.attempt, others)
        self.ended: Outcome | None = None
        self.journal: AttemptJournal | None = None
        self.ranks = RankGroup(
            self.folder.logs(task.attempt), hang_s=allocation.hang_s, mirror=mirror
        )
        self._gate: Gate | None = None
        self.errors: list[RankError] = []
        self.stopping: AttemptState | None = None
        # Why the scheduler stopped it, where that had to be asked.
        self.ruling: Ruling | None = None
        self.start_step = 0
        self.checkpoint_step = 0
        self._kill_at: float | None = None
        self._killed: Killed | None = None
        self._unsettled = False
        self._gone_at: float | None = None
        # Whether another node never said how it ended.
        self.deserted = False
        now = time.monotonic()
        self._beat_at = self._fence_at = now
        self._progress = Progress(now)
        self._meter = Meter(lane.gpus)

    # Start ----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Claim the run and fork its ranks, or end at once with the reason."""
        attempt = self.folder.attempt(self.task.attempt)
        try:
            make_folder(self.folder.logs(self.task.attempt))
            self.journal = AttemptJournal(self.folder.journal(self.task.attempt, 0))
        except FileExistsError:
            # This very attempt has been here: its journal says how it ended.
            self.ended = Outcome(
                state=AttemptState.SUPERSEDED,
                failure=FailureClass.SUPERSEDED,
                signature="ran already",
            )
            return
        except OSError as error:
            # No room for a journal; the agent's other runs go on, and this one is left to
            # reconcile.
            self.ended = dataclasses.replace(set_up_failure(error), failure=FailureClass.STORAGE)
            return
        try:
            write_spec(self.workspace, self.task.grid_id, self.task.run_id)
            spec = RunSpec.parse(self.folder.spec.read_text())
            if (refused := claim_or_refuse(self.workspace, self.task, spec)) is not None:
                self._end(refused)
                return
            write_environment(attempt / "environment.json")
            self._launch(spec)
        except TemplateDied:
            raise
        except (OSError, ValueError, KeyError, VtjobsError) as error:
            self.ranks.kill()
            self._end(set_up_failure(error))

    def fail_set_up(self, signature: str) -> None:
        """End the attempt because its agent could not even begin."""
        try:
            make_folder(self.folder.attempt(self.task.attempt))
            self.journal = AttemptJournal(self.folder.journal(self.task.attempt, self.node))
        except OSError:
            return
        self._end(
            Outcome(
                state=AttemptState.FAILED, failure=FailureClass.SETUP_ERROR, signature=signature
            )
        )

    def _launch(self, spec: RunSpec) -> None:
        assert self.journal is not None
        shape, number = self.allocation.shape, self.task.attempt
        here = origin(
            world_size=shape.world_size, threads=shape.threads, on_gpu=trains_on_gpu(shape.gpus)
        )
        resume = None
        if not self.task.clean:
            resume = choose_resume(self.folder, self.task.run_id, number, rejected=self._rejected)
        parent = from_parent(self.workspace, spec, resumed=resume is not None)
        self.start_step = self.checkpoint_step = resume.manifest.step if resume else 0
        self.journal.write(
            "start",
            attempt=number,
            host=self.host,
            gpus=self.lane.gpus,
            resumed_attempt=resume.attempt if resume else None,
            resumed_step=resume.manifest.step if resume else None,
            world_size=shape.world_size,
            exact=resume.is_exact(here, spec.recipe) if resume else None,
            software=here.software,
            steps=spec.steps,
        )
        self._gather(
            make_order(
                self.allocation,
                self.task,
                self.folder,
                spec=spec,
                origin=here,
                resume=resume,
                parent=parent,
            )
        )

    def _gather(self, order: Order) -> None:
        """Open rank 0's rendezvous, tell the other nodes, and fork this node's ranks."""
        shape = self.allocation.shape
        listener = listen() if shape.world_size > 1 else None
        if listener is not None:
            key, port = write_key(self.folder, self.task.attempt), listener.getsockname()[1]
            order = changed(order, port=port)
        if listener is not None and shape.nodes > 1:
            hosts = tuple(own_addresses(self.host))
            self._gate = Gate(hosts, store=port, key=key)
            order = changed(order, gate=self._gate.port, hosts=hosts)
            token, lane = self.allocation.token, self.lane.index
            publish_order(self.folder, self.task.attempt, order, token=token, lane=lane)
        self._fork_all(order, listener)
        if listener is not None:
            listener.close()

    def _fork_all(self, order: Order, listener: socket.socket | None) -> None:
        assert self.forge is not None
        count = self.allocation.shape.ranks
        self.ranks.start(
            self.forge,
            order,
            first=self.node * count,
            count=count,
            lane=self.lane,
            processes=processes_of_rank(self.allocation, order),
            listener=listener,
            now=time.monotonic(),
        )

    def _rejected(self, attempt: int, step: int, reason: str) -> None:
        assert self.journal is not None
        self.journal.write("rejected", attempt=attempt, step=step, reason=reason)

    # While it runs --------------------------------------------------------------------------------

    @property
    def position(self) -> dict[str, int]:
        """Epoch, step and number of steps, as far as they are known."""
        return self._progress.position

    @property
    def handles(self) -> list[int]:
        """The pipes that wake the agent."""
        return self.ranks.handles

    def tick(self) -> None:
        """Take in what happened, watch, and end the attempt once all its ranks are gone."""
        now = time.monotonic()
        try:
            self._listen(now)
            self._watch(now)
        except OSError as error:
            self._fail_journal(error)
        if self.ended is None and self.ranks.are_gone:
            self._finish()

    def stop(
        self, state: AttemptState, *, within_s: float | None = None, settled: bool = True
    ) -> None:
        """Have the ranks stop at a common step and save.

        Args:
            state: what that end is called.
            within_s: how long they may take.
            settled: False where `settle` will say what the end is called; until then it is not
                written.
        """
        if self.ended is None and self.stopping is None:
            self.stopping, self._unsettled = state, not settled
            self.ranks.stop()
            grace_s = STOP_GRACE_S if within_s is None else min(STOP_GRACE_S, within_s)
            self._kill_by(time.monotonic() + grace_s)

    def settle(self, ruling: Ruling) -> None:
        """Say why the scheduler stopped the attempt.

        What was found out about it otherwise stands.
        """
        decided = (AttemptState.SUPERSEDED, AttemptState.CANCELLED)
        if self._unsettled and self.stopping not in decided:
            self.stopping, self.ruling = ruling.state, ruling
        self._unsettled = False

    def template_died(self, reason: str) -> None:
        """End the attempt: its ranks are gone with the template."""
        self.ranks.died_with_template()
        if self.ended is None:
            self._killed = self._killed or Killed(KillCause.TEMPLATE, f"fork server died: {reason}")
            # Listens first: what the ranks said before they were gone counts.
            self._finish()

    def _listen(self, now: float) -> None:
        for rank, event in self.ranks.listen(now):
            self._take(rank, event, now)

    def _take(self, rank: int, event: Line, now: float) -> None:
        assert self.journal is not None
        kind = event.pop("kind")
        if kind == "error":
            self.errors.append(from_plain(event, RankError))
            self._kill_by(now + LAST_WORDS_S)
        elif kind == "mark":
            if rank == 0 and "step" in event and self._progress.mark(event, now):
                self._beat_at = now
                self.journal.write("progress", **self.position, trained_s=event["trained_s"])
        else:
            self._meter.complete(event)
            self.journal.write(kind, **event)
            self._beat_at = now
            self._progress.reach(event)
            if kind == "checkpoint":
                self.checkpoint_step = event["step"]

    def _watch(self, now: float) -> None:
        assert self.journal is not None
        if now - self._beat_at >= HEARTBEAT_S:
            self._beat_at = now
            self.journal.write("heartbeat")
        if now - self._fence_at >= FENCE_S:
            self._fence_at = now
            self._fence()
        statuses = [rank.status for rank in self.ranks.processes]
        if any(status not in (None, ExitCode.COMPLETED, ExitCode.STOPPED) for status in statuses):
            self._kill_by(now + LAST_WORDS_S)
        self._watch_hang(now)
        self._meter.look(self.ranks.cpu_before_s)
        if why := self.others.look(now):
            self._kill_by(now + LAST_WORDS_S, Killed(KillCause.PEER, why))
        if self._kill_at is not None and now >= self._kill_at:
            if self.stopping is not None and self._killed is None:
                self._killed = Killed(KillCause.LATE, "did not stop in time")
            self.ranks.kill()

    @property
    def has_advanced(self) -> bool:
        """Whether it made a checkpoint that is newer than the one it went on from."""
        return self.checkpoint_step > self.start_step

    def look_now(self) -> None:
        """Re-read claims and cancels at the next tick."""
        self._fence_at = 0.0

    def _fence(self) -> None:
        ruled = overruled(self.folder, self.task.attempt)
        if ruled is AttemptState.SUPERSEDED:
            self.stopping = ruled
            self.ranks.kill()
        elif ruled is not None:
            self.stop(ruled)
            self.stopping = ruled

    def _watch_hang(self, now: float) -> None:
        if self._kill_at is not None:
            return
        silence = self.ranks.silence(now)
        if silence and self.ranks.dump_stacks():
            self._killed = Killed(KillCause.HANG, f"no progress for {silence:.0f} s")
            self._kill_by(now + 2.0)

    def _kill_by(self, at: float, why: Killed | None = None) -> None:
        if self._kill_at is None or at < self._kill_at:
            self._kill_at = at
            self._killed = self._killed or why

    # End ------------------------------------------------------------------------------------------

    def _finish(self) -> None:
        """End the attempt, unless it is still being asked why, here or on the other nodes."""
        now = time.monotonic()
        try:
            self._listen(now)
        except OSError as error:
            self._fail_journal(error)
        was_stopped = self.stopping is not None
        ruled = overruled(self.folder, self.task.attempt)
        if ruled is AttemptState.SUPERSEDED or (was_stopped and ruled is not None):
            # Whatever stopped it, this is why it must not go on.
            self.stopping, self.ruling = ruled, None
        self._gone_at = now if self._gone_at is None else self._gone_at
        own = judge_ranks(
            self.ranks.processes, self.errors, stopping=self.stopping, killed=self._killed
        )
        if (outcome := self._conclude(own, now)) is not None:
            if outcome.state is AttemptState.TIMEOUT and not self.has_advanced:
                outcome = dataclasses.replace(outcome, signature=NO_TIME)
            self._end(outcome)

    def _conclude(self, own: Outcome, now: float) -> Outcome | None:
        """Return how it ended in the light of what others say; None while they may still say it."""
        assert self._gone_at is not None
        was_stopped = self.stopping is not None
        self.others.look(now)
        awaits = weigh(own, was_stopped=was_stopped) < Weight.STOP and bool(self.others.missing)
        # Where the job is being ended already, less time is left to listen.
        patience_s = OTHERS_S if not was_stopped else 2 * LOOK_S
        if self._unsettled or (awaits and now < self._gone_at + patience_s):
            return None
        self.deserted = awaits
        outcome = blame(own, self.others, was_stopped=was_stopped)
        return outcome if self.ruling is None else outcome.as_ruled(self.ruling)

    def _end(self, outcome: Outcome) -> None:
        self.ended = outcome
        if self.journal is not None:
            try:
                self.journal.end(outcome, self.position, self._meter.usage)
            except OSError as error:
                self.ended = Outcome(
                    state=AttemptState.FAILED, failure=FailureClass.STORAGE, signature=str(error)
                )
        if self._gate is not None:
            self._gate.close()
        self.ranks.close()

    def _fail_journal(self, error: OSError) -> None:
        text = f"journal: {error.strerror or error}"
        found = RankError(
            failure=FailureClass.STORAGE, signature=text, error=text, rank=0, monotonic=0.0
        )
        self.errors.append(found)
        self.ranks.kill()
