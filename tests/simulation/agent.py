"""A node agent without ranks.

On disk it does what workers/agent/attempt.py does, and it can die between any two steps.

Its weights are a hash over every step since the beginning: a step that was lost or done twice shows
in the last one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from vtjobs.jobs.atomic_files import make_folder, to_json, write_new
from vtjobs.jobs.config.node import OnNode
from vtjobs.jobs.run.states import EXIT_OF_CLASS, AttemptState, FailureClass
from vtjobs.jobs.values import changed
from vtjobs.jobs.workspace.allocation import Allocation, Task
from vtjobs.jobs.workspace.history import next_number
from vtjobs.jobs.workspace.journal import HEARTBEAT_S, JournalWriter, encode
from vtjobs.jobs.workspace.lineage import candidates, completed_by
from vtjobs.jobs.workspace.markers import closed
from vtjobs.jobs.workspace.paths import RunFolder
from vtjobs.jobs.workspace.stored_grid import write_spec
from vtjobs.workers.agent.further_work import FurtherWork
from vtjobs.workers.agent.second_service import tasks_of_place

if TYPE_CHECKING:
    from .cluster import Cluster, Element

STEPS_PER_EPOCH = 5
# Longest time between two looks at claims and cancels.
FENCE_S = 10.0
FAILURES = (
    ("failed", "crash", "rank killed by SIGSEGV"),
    ("failed", "crash", "rank killed by SIGBUS"),
    ("failed", "user_error", "ValueError: a bug"),
    ("failed", "data_missing", "FileNotFoundError: x"),
    ("failed", "storage", "OSError: no space"),
    ("failed", "communication", "connection reset"),
    ("failed", "hardware", "ECC error"),
    ("failed", "setup_error", "ImportError: y"),
    ("failed", "hang", "no progress"),
    ("out_of_memory", "out_of_memory", "out of memory"),
    ("failed", "diverged", "the loss is NaN"),
)


def weights_at(run_id: str, step: int) -> str:
    """Return what a run's weights are after so many steps, if each was done once and in order."""
    found = run_id
    for number in range(step):
        found = next_weights(found, number)
    return found


def next_weights(weights: str, step: int) -> str:
    return hashlib.sha256(f"{weights} {step}".encode()).hexdigest()[:16]


def score(run_id: str, attempt: int, step: int) -> float:
    """Return a score that tells attempts apart."""
    return int(hashlib.sha256(f"{run_id} {attempt} {step}".encode()).hexdigest()[:8], 16) / (
        1 << 32
    )


class Node(OnNode):
    """What SLURM can do, as its nodes see it."""

    waits = delays = avoids = True


class Agent:
    """Serves one array element."""

    def __init__(self, cluster: Cluster, element: Element, allocation: Allocation) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.element = element
        self.allocation = allocation
        self.is_alive = True
        self.stopping: AttemptState | None = None
        self.explained = True
        again = element.restarts and tasks_of_place(cluster.workspace, allocation, element.index)
        self.hosted = [Hosted(self, task) for task in again or allocation.tasks[element.index]]
        self.further = FurtherWork(
            cluster.workspace, allocation, element.index, clock=self.world, scheduler=Node()
        )
        self._thawed_at = 0.0

    def start(self) -> None:
        for hosted in self.hosted:
            hosted.after(self.world.between(0.2, 2.0), hosted.begin)

    def freeze(self, seconds: float) -> None:
        self._thawed_at = self.world.now + seconds

    def was_frozen(self, seconds: float) -> bool:
        """Whether it stood still at some time of the last so many seconds."""
        return self._thawed_at > self.world.now - seconds

    def run(self, action: Callable[..., Any], *arguments: Any) -> None:
        """Do something, if the agent lives, once it may."""
        if not self.is_alive:
            return
        if self.world.now < self._thawed_at:
            self.world.after(
                self._thawed_at - self.world.now + self.world.between(0, 2),
                self.run,
                action,
                *arguments,
            )
        else:
            action(*arguments)

    def kill(self) -> None:
        """Die without a word, perhaps in the middle of one."""
        if self.is_alive:
            self.is_alive = False
            for hosted in self.hosted:
                hosted.die()

    # Signals --------------------------------------------------------------------------------------

    def usr2(self) -> None:
        self.run(self._stop, AttemptState.TIMEOUT)

    def term(self) -> None:
        """Ask SLURM why; where it does not answer, the end is left to be explained by it later."""
        if not self.cluster.is_up or self.element.cause == "requeued":
            self.explained = False
            self.run(self._stop, AttemptState.PREEMPTED)
            return
        cause = {"preempted": AttemptState.PREEMPTED, "timeout": AttemptState.TIMEOUT}
        self.run(self._stop, cause.get(self.element.cause, AttemptState.CANCELLED))

    def _stop(self, state: AttemptState) -> None:
        if self.stopping is None:
            self.stopping = state
            for hosted in self.hosted:
                hosted.stop(state)

    # End ------------------------------------------------------------------------------------------

    def gone(self, hosted: Hosted, failure: FailureClass | None) -> None:
        """As workers/agent/agent.py: see what further runs it may serve, and end when none is left."""
        assert hosted.state is not None
        if self.allocation.shape.nodes == 1:
            self.further.after(hosted.task, hosted.state, failure)
            while self.further.elsewhere:
                due = self.further.elsewhere.pop()
                avoid = self.element.node if due.avoids_node else ""
                self._submit_new((_next(hosted),), avoid=avoid, delay_s=due.delay_s)
        self._take_on()

    def _take_on(self) -> None:
        if not self.is_alive:
            return
        if self.stopping is None and (task := self.further.next()) is not None:
            self.world.note(f"{self.element.job.token} takes on {task.run_id} {task.attempt}")
            further = Hosted(self, task)
            self.hosted.append(further)
            further.after(self.world.between(0.0, 2.0), further.begin)
        elif self.stopping is None and self.further.pending and self._is_idle:
            self.world.after(30.0, self.run, self._take_on)
        else:
            self.retire()

    @property
    def _is_idle(self) -> bool:
        return all(hosted.state is not None for hosted in self.hosted)

    def retire(self) -> None:
        if self._is_idle:
            self._hand_on()
            self.is_alive = False
            code = 0 if len(self.hosted) > 1 else self.hosted[0].exit_code
            self.cluster.exited(self.element, code)

    def _hand_on(self) -> None:
        """As workers/agent/successor.py: one more allocation for the runs that advanced."""
        handing = self.stopping in (AttemptState.TIMEOUT, AttemptState.PREEMPTED) and self.explained
        if not handing or not self.allocation.argv:
            return
        mine = [
            hosted
            for hosted in self.hosted
            if hosted.state is self.stopping and hosted.may_be_handed_on
        ]
        tasks = tuple(_next(hosted) for hosted in mine)
        tasks += tuple(
            changed(
                task,
                attempt=next_number(self.cluster.workspace.run(task.run_id), above=task.attempt),
            )
            for task in self.further.pending
        )
        if tasks:
            self._submit_new(tasks)

    def _submit_new(
        self, tasks: tuple[Task, ...], *, avoid: str = "", delay_s: float = 0.0
    ) -> None:
        token = f"vtj-{self.world.random.randbytes(8).hex()}"
        content = changed(
            self.allocation,
            token=token,
            created_at=self.world.now,
            tasks=(tasks,),
            after=(),
            exclude=(*self.allocation.exclude, *filter(None, [avoid])),
        )
        write_new(self.cluster.workspace.allocation(token), to_json(content.to_dict()))
        self.world.note(f"{self.element.job.token} hands on to {token}")
        # SLURM would take the job now and begin it later; here it is taken later.
        self.world.after(delay_s + self.world.between(0.1, 2.0), self._submit, content)

    def _submit(self, content: Allocation) -> None:
        chance, element = self.world.random.random(), self.element
        if not self.cluster.is_up or (chance < 0.2 and not self.cluster.calm):
            # The file is there: the next command finds it and submits it.
            return
        job = str(element.job.id) + (f"_{element.index}" if element.job.is_array else "")
        self.cluster.sbatch(content.token, places=1, after=[job], exclude=content.exclude)


def _next(hosted: Hosted) -> Task:
    number = (
        max(hosted.folder.highest_claim(), hosted.folder.highest_cancel(), hosted.task.attempt) + 1
    )
    clean = hosted.task.clean and not hosted.has_begun
    return changed(hosted.task, attempt=number, clean=clean, is_claimed=False)


class Hosted:
    """One attempt."""

    def __init__(self, agent: Agent, task: Task) -> None:
        self.agent = agent
        self.world = agent.world
        self.profile = agent.cluster.profile
        self.task = task
        self.folder: RunFolder = agent.cluster.workspace.run(task.run_id)
        self.journal: JournalWriter | None = None
        self.state: AttemptState | None = None
        self.exit_code = 0
        self.step = self.start_step = self.saved_step = 0
        self.weights = task.run_id
        self.stopping: AttemptState | None = None
        self.has_begun = self.is_training = False
        self.plan = self.profile.epochs * STEPS_PER_EPOCH
        self.step_s = self.world.between(4.0, FENCE_S)
        self._beat_at = 0.0
        self._fails_at = self._draw_failure()

    def _draw_failure(self) -> int | None:
        if self.agent.cluster.calm or not self.world.chance(self.profile.failure):
            return None
        return self.world.random.randrange(self.plan)

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        self.world.after(seconds, self._run, action)

    def _run(self, action: Callable[[], None]) -> None:
        if self.state is None:
            self.agent.run(self._unless_ended, action)

    def _unless_ended(self, action: Callable[[], None]) -> None:
        """Go on where the agent stood still meanwhile, unless it was told to stop before this came
        up.
        """
        if self.state is None:
            action()

    def gap(self, action: Callable[[], None]) -> None:
        """Go on with the next step of the start; now and then much later."""
        slow = not self.agent.cluster.calm and self.world.chance(0.01)
        self.after(self.world.between(1.0, 400.0) if slow else self.world.between(0.0, 0.5), action)

    # Start ----------------------------------------------------------------------------------------

    def begin(self) -> None:
        self.has_begun = True
        make_folder(self.folder.logs(self.task.attempt))
        try:
            self.journal = JournalWriter(self.folder.journal(self.task.attempt, 0))
        except FileExistsError:
            self._gone(AttemptState.SUPERSEDED, FailureClass.SUPERSEDED)
            return
        self.gap(self._check)

    def _check(self) -> None:
        workspace, task = self.agent.cluster.workspace, self.task
        write_spec(workspace, task.grid_id, task.run_id)
        if kept := closed(workspace, task.grid_id)(task.run_id):
            self.folder.offer()
            self.end(AttemptState.SUPERSEDED, FailureClass.SKIPPED, kept.text)
        elif self.folder.highest_cancel() >= task.attempt:
            self.end(AttemptState.CANCELLED, FailureClass.CANCELLED, "cancelled by the user")
        elif task.parent is not None and completed_by(workspace.run(task.parent), 1 << 30) is None:
            self.folder.offer()
            self.end(
                AttemptState.SUPERSEDED,
                FailureClass.SKIPPED,
                f"parent {task.parent} has not completed",
            )
        else:
            self.gap(self._claim)

    def _claim(self) -> None:
        number = self.task.attempt
        claimed = self.folder.highest_claim() == number if self.task.is_claimed else None
        if self.folder.claim(number) if claimed is None else claimed:
            self.gap(self._read_lower)
        else:
            self.end(
                AttemptState.SUPERSEDED, FailureClass.SUPERSEDED, "a higher attempt owns the run"
            )

    def _read_lower(self) -> None:
        done = None if self.task.clean else completed_by(self.folder, self.task.attempt)
        if done is None:
            self.gap(self._launch)
        else:
            self.end(
                AttemptState.SUPERSEDED,
                FailureClass.SUPERSEDED,
                f"attempt {done} completed the run",
            )

    def _launch(self) -> None:
        found = None if self.task.clean else self._resume()
        if self.state is not None:
            return
        attempt, step = found or (None, None)
        self.start_step = self.saved_step = self.step = step or 0
        self.write(
            "start", attempt=self.task.attempt, host=self.agent.element.node, resumed_attempt=attempt,
            resumed_step=step, world_size=1, exact=True,
        )  # fmt: skip
        self.is_training = True
        self.world.note(f"start {self.task.run_id} {self.task.attempt} from {attempt} {step}")
        self.agent.cluster.watch.training(self)
        self.after(self.step_s, self._work if self.step < self.plan else self._finish)

    def _resume(self) -> tuple[int, int] | None:
        """Return the newest checkpoint that verifies, as workers/agent/resume.py does."""
        found = candidates(self.folder, self.task.attempt)
        for candidate in found:
            try:
                kept = json.loads(
                    (self.folder.checkpoint(candidate.attempt, candidate.step) / "m").read_bytes()
                )
            except (OSError, ValueError):
                continue
            self.weights = kept["weights"]
            return candidate.attempt, candidate.step
        if found:
            self.end(
                AttemptState.FAILED,
                FailureClass.NO_CHECKPOINT,
                "none of the checkpoints can be used",
            )
        return None

    # While it trains ------------------------------------------------------------------------------

    def _work(self) -> None:
        if self._is_fenced() or self.stopping is not None:
            return
        if self.world.now - self._beat_at >= HEARTBEAT_S:
            self.write("heartbeat")
        if self.step == self._fails_at:
            state, failure, signature = self.world.random.choice(FAILURES)
            self.end(AttemptState(state), FailureClass(failure), signature)
            return
        self.weights = next_weights(self.weights, self.step)
        self.step += 1
        if self.step % STEPS_PER_EPOCH == 0:
            self._epoch()
        if self.step < self.plan:
            self.after(self.step_s, self._work)
        else:
            self.after(0.1, self._finish)

    def _is_fenced(self) -> bool:
        if self.folder.highest_claim() > self.task.attempt:
            self.end(AttemptState.SUPERSEDED, FailureClass.SUPERSEDED, "")
            return True
        if (
            self.folder.highest_cancel() >= self.task.attempt
            and self.stopping is not AttemptState.CANCELLED
        ):
            self.stop(AttemptState.CANCELLED)
        return False

    def _epoch(self) -> None:
        epoch = self.step // STEPS_PER_EPOCH - 1
        place = {"epoch": epoch, "step": self.step}
        self.write("epoch", **place, metrics={"loss": 1.0 / self.step})
        metrics = {"top1": score(self.task.run_id, self.task.attempt, self.step), "n": 100.0}
        self.write("evaluation", **place, set="test", metrics=metrics)
        self._save()

    def _save(self) -> None:
        """Publish a checkpoint, then announce it.

        One that was published and not announced is as good.
        """
        place = self.folder.checkpoint(self.task.attempt, self.step)
        if place.exists():
            return
        make_folder(place)
        broken = not self.agent.cluster.calm and self.world.chance(0.002)
        (place / "m").write_text(
            "{" if broken else json.dumps({"step": self.step, "weights": self.weights})
        )
        if not self.agent.cluster.calm and self.world.chance(0.002):
            return
        self.write("checkpoint", epoch=self.step // STEPS_PER_EPOCH, step=self.step, bytes=10)
        self.saved_step = self.step

    @property
    def may_be_handed_on(self) -> bool:
        """Whether it advanced, or waits for its turn still, and the run is not somebody else's or
        cancelled by now.
        """
        if (
            self.folder.highest_claim() > self.task.attempt
            or self.folder.highest_cancel() >= self.task.attempt
        ):
            return False
        return self.saved_step > self.start_step or not self.has_begun

    # Ends -----------------------------------------------------------------------------------------

    def stop(self, state: AttemptState) -> None:
        """Have the ranks stop at a common step and save.

        A cancel wins over what stopped them before.
        """
        if self.state is not None:
            return
        first, self.stopping = self.stopping is None, state
        if self.journal is None:
            # It waits for its turn still: left without a claim.
            self._gone(state, FailureClass.STOPPED)
        elif first and self.is_training:
            self.after(self.world.between(0.5, 20.0), self._finish)
        elif first:
            self.after(0.5, self._finish)

    def _finish(self) -> None:
        """As HostedRun._finish: what stopped it, or completed it, is looked at once more."""
        if self.folder.highest_claim() > self.task.attempt:
            self.stopping = AttemptState.SUPERSEDED
        elif self.stopping is not None and self.folder.highest_cancel() >= self.task.attempt:
            self.stopping = AttemptState.CANCELLED
        if (
            self.is_training
            and self.stopping not in (None, AttemptState.SUPERSEDED)
            and self.step > self.saved_step
        ):
            self._save()
        if self.stopping is None:
            self.end(AttemptState.COMPLETED, None, "")
            return
        failure = {
            AttemptState.SUPERSEDED: FailureClass.SUPERSEDED,
            AttemptState.CANCELLED: FailureClass.CANCELLED,
            AttemptState.TIMEOUT: FailureClass.WALLTIME,
        }.get(self.stopping, FailureClass.STOPPED)
        self.end(self.stopping, failure, "stopped and saved")

    def end(self, state: AttemptState, failure: FailureClass | None, signature: str) -> None:
        told = (
            {}
            if self.agent.explained or failure is not FailureClass.STOPPED
            else {"explained": False}
        )
        self.write(
            "end", state=str(state), **{"class": failure}, signature=signature, error="", rank=None,
            exit_code=int(EXIT_OF_CLASS[failure]) if failure else 0, epoch=None, step=self.step, **told,
        )  # fmt: skip
        self.world.note(f"end {self.task.run_id} {self.task.attempt} {state} {failure}")
        self._gone(state, failure)

    def _gone(self, state: AttemptState, failure: FailureClass | None) -> None:
        self.state, self.is_training = state, False
        self.exit_code = int(EXIT_OF_CLASS[failure]) if failure else 0
        self._close()
        self.agent.gone(self, failure)

    def _close(self) -> None:
        if self.journal is not None:
            self.journal.close()
            self.journal = None

    def die(self) -> None:
        self.is_training = False
        if self.journal is not None and self.state is None and self.world.chance(0.1):
            # Half a line.
            torn = encode(
                {"seq": 999, "at": round(self.world.now, 3), "kind": "progress", "step": self.step}
            )
            with contextlib.suppress(OSError):
                os.write(
                    self.journal._handle, torn[: self.world.random.randrange(1, len(torn) - 1)]
                )
        self._close()

    def write(self, kind: str, **fields: Any) -> None:
        assert self.journal is not None
        self._beat_at = self.world.now
        self.journal.write(kind, at=self.world.now, **fields)
