"""What an agent takes on beside the runs that it was given.

Retries of these, and runs of their grid that nobody has submitted: a limit of the site kept them
back, or their parent stage has just completed. So a grid goes on while nobody looks.
"""

import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from ...jobs.atomic_files import read_json, to_json, write_new
from ...jobs.config.node import OnNode
from ...jobs.errors import VtjobsError
from ...jobs.run.error_text import message_of
from ...jobs.run.retry import ALIKE_RUNS, AT_ONCE, BLAMED
from ...jobs.run.states import AttemptState, FailureClass, RunState
from ...jobs.values import changed
from ...jobs.workspace.allocation import Allocation, Place, Task
from ...jobs.workspace.events import End, typed
from ...jobs.workspace.grid_settings import GridSettings
from ...jobs.workspace.history import next_number, verdict_of
from ...jobs.workspace.journal import read_first
from ...jobs.workspace.lineage import completed_by, read_attempt
from ...jobs.workspace.markers import closed, trip
from ...jobs.workspace.paths import RunFolder, Workspace
from ...jobs.workspace.stored_grid import read_settings
from ...jobs.workspace.submissions import Submissions

logger = logging.getLogger("vtjobs.agent")

# Ends after which the policy is asked whether the run is tried again here. What was stopped is
# handed on, and what was refused waits for whoever refused it.
_FAILED = (AttemptState.FAILED, AttemptState.OUT_OF_MEMORY)
# The node may be to blame: another one shall try.
NODE_FAULTS = (FailureClass.HARDWARE, FailureClass.COMMUNICATION)
# After a search that found nothing, so long until the next one, while other runs are at work.
SEARCH_EVERY_S = 30.0
# A longer back-off is not waited for on the node, where the scheduler can delay a job.
WAIT_HERE_S = 60.0


def _may_be_at_work(folder: RunFolder) -> bool:
    """Whether the newest attempt that claimed the run has not said that it ended.

    Whether it is lost is the scheduler's to tell.
    """
    newest = folder.highest_claim()
    return newest > 0 and read_attempt(folder, newest).end is None


def _was_skipped(folder: RunFolder, task: Task) -> bool:
    """Whether an attempt did not start, because its parent was not done or a marker held it."""
    # It says so first and nothing else, and journals of others may be long.
    line = read_first(folder.journal(task.attempt, 0))
    first = None if line is None else typed(line)
    return isinstance(first, End) and first.failure is FailureClass.SKIPPED


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """A try at a run that another allocation shall serve."""

    task: Task
    """Its last attempt."""
    delay_s: float
    avoids_node: bool
    """Whether this node shall not serve it."""


class FurtherWork:
    """Finds runs for one place of an allocation, and claims them.

    Args:
        workspace: where runs and grids lie.
        allocation: the one that the agent serves.
        index: its place in it.
        clock: gives the time, in seconds since 1970.
        scheduler: what it can do.
    """

    def __init__(
        self,
        workspace: Workspace,
        allocation: Allocation,
        index: int,
        *,
        clock: Callable[[], float],
        scheduler: OnNode,
    ) -> None:
        self.workspace = workspace
        self.allocation = allocation
        self.place = Place(token=allocation.token, index=index)
        self.clock = clock
        self.scheduler = scheduler
        self.retries: list[tuple[float, Task]] = []
        """Retries with the time from which on each may start."""
        self.elsewhere: list[Retry] = []
        """Retries that another allocation shall serve."""
        self._grids = dict.fromkeys(task.grid_id for task in allocation.tasks[index])
        self._submissions = Submissions(workspace)
        self._search_at = 0.0
        # Runs that failed here in a way that others are likely to repeat.
        self._alike: set[str] = set()
        # The same by grid, class and signature.
        self._blamed: dict[tuple[str, FailureClass, str], set[str]] = {}

    def after(
        self,
        task: Task,
        state: AttemptState,
        failure: FailureClass | None,
        *,
        signature: str = "",
        error: str = "",
    ) -> None:
        """Note how an attempt of this place ended: its run may be due again, or a later stage.

        Args:
            task: the attempt.
            state: of its end.
            failure: of its end.
            signature: what failures have in common that are alike.
            error: the text of the failure.
        """
        if state is AttemptState.COMPLETED:
            self._search_at = 0.0
            self._alike.clear()
        elif failure in BLAMED:
            self._alike.add(task.run_id)
        if state not in _FAILED:
            return
        folder = self.workspace.run(task.run_id)
        settings = read_settings(self.workspace, task.grid_id)
        if settings is None or not self._is_as_asked(settings):
            return
        verdict = verdict_of(folder, settings)
        if failure in AT_ONCE or (failure in BLAMED and verdict.state is RunState.FAILED):
            self._count(task, failure, signature, error)
        if verdict.state is not RunState.PENDING or (verdict.wait_s and not self.scheduler.waits):
            return
        again = changed(
            task,
            clean=task.clean and read_attempt(folder, task.attempt).start is None,
            micro_split=task.micro_split * (2 if verdict.halve_micro_batch else 1),
            is_claimed=False,
        )
        can_submit = bool(self.allocation.argv)
        avoid = can_submit and self.scheduler.avoids and failure in NODE_FAULTS
        later = can_submit and self.scheduler.delays and verdict.wait_s > WAIT_HERE_S
        if avoid or later:
            self.elsewhere.append(Retry(task=again, delay_s=verdict.wait_s, avoids_node=avoid))
        else:
            self.retries.append((self.clock() + verdict.wait_s, again))

    def _count(self, task: Task, failure: FailureClass, signature: str, error: str) -> None:
        """Stop the grid where runs fail alike and all runs are here.

        Nobody may make a pass that would. On a cluster one node sees too little to judge.
        """
        if not self.scheduler.one_machine:
            return
        alike = self._blamed.setdefault((task.grid_id, failure, signature), set())
        alike.add(task.run_id)
        if len(alike) >= ALIKE_RUNS:
            trip(
                self.workspace,
                task.grid_id,
                failure=failure,
                signature=signature,
                message=message_of(error, signature),
                runs=sorted(alike),
            )
            # Once a user has opened it, it takes as many failures again.
            alike.clear()

    def _is_as_asked(self, settings: GridSettings) -> bool:
        """Whether runs of the grid would still get a place like this one.

        A grid may have been submitted again since, with other resources or to another backend.
        """
        shape, asked = self.allocation.shape, settings.resources
        if (settings.backend, asked.nodes, asked.threads) != (
            shape.backend,
            shape.nodes,
            shape.threads,
        ):
            return False
        if not shape.gpus:
            return not asked.gpus_per_node and asked.cpu_ranks == shape.ranks
        same = (asked.gpu, asked.per_gpu) == (shape.gpu, shape.per_gpu)
        return same and asked.gpus_per_node in (None, shape.gpus)

    @property
    def pending(self) -> list[Task]:
        """The retries that have not begun."""
        return [task for _, task in self.retries]

    @property
    def delay_s(self) -> float:
        """Seconds until the last of these may start."""
        return max(0.0, *(at - self.clock() for at, _ in self.retries), 0.0)

    def next(self, *, here: bool = True) -> Task | None:
        """Claim a run that is due and return its attempt; None: there is none at this time.

        What cannot be read at this moment is looked for again later.

        Args:
            here: whether it is served at this place, which is then written down.
        """
        try:
            return self._next_retry() or self._next_waiting(here=here)
        except (OSError, ValueError, KeyError, VtjobsError) as error:
            logger.warning("cannot look for further runs: %s", error)
            self._search_at = self.clock() + SEARCH_EVERY_S
            return None

    def _next_retry(self) -> Task | None:
        for item in list(self.retries):
            at, task = item
            if at <= self.clock():
                self.retries.remove(item)
                if self._may_start(task) and (taken := self._take(task)):
                    return taken
        return None

    def _may_start(self, task: Task) -> bool:
        """Whether nobody has cancelled, held or taken over the run since it failed."""
        folder = self.workspace.run(task.run_id)
        return (
            folder.highest_cancel() < task.attempt
            and folder.highest_claim() <= task.attempt
            and closed(self.workspace, task.grid_id)(task.run_id) is None
        )

    def _next_waiting(self, *, here: bool) -> Task | None:
        if self.clock() < self._search_at or len(self._alike) >= ALIKE_RUNS:
            # Whoever makes the next pass trips the grid's breaker.
            return None
        self._submissions.refresh()
        offered = self.workspace.offered()
        has_completed = cache(self._has_completed)
        for grid_id in self._grids:
            settings = read_settings(self.workspace, grid_id)
            if settings is None or not self._is_as_asked(settings):
                continue
            stored = read_json(self.workspace.grid(grid_id) / "runs.json") or {"runs": []}
            why_closed = closed(self.workspace, grid_id)
            for run_id, _, _, parent in stored["runs"]:
                # Of most runs a scheduler has been given the newest attempt: no file is asked.
                is_new = self._submissions.newest(run_id) is None
                if not (is_new or run_id in offered) or why_closed(run_id) is not None:
                    continue
                if parent is not None and not has_completed(parent):
                    continue
                task = self._unsubmitted(run_id, grid_id, parent)
                if task is None:
                    continue
                if taken := self._take(task, here=here):
                    return taken
        self._search_at = self.clock() + SEARCH_EVERY_S
        return None

    def _has_completed(self, run_id: str) -> bool:
        return completed_by(self.workspace.run(run_id), 1 << 30) is not None

    def _unsubmitted(self, run_id: str, grid_id: str, parent: str | None) -> Task | None:
        """Return the attempt that a run waits for, where no scheduler has been given it."""
        folder, newest = self.workspace.run(run_id), self._submissions.newest(run_id)
        grants = folder.all_grants() if newest is not None or folder.path.exists() else []
        granted, clean = grants[-1] if grants else (0, False)
        if newest is None and folder.attempts():
            return None
        if newest is not None and granted < newest.attempt and not _was_skipped(folder, newest):
            # A scheduler has it, or it has ended: then its own agent retries it.
            return None
        if folder.highest_cancel() > granted or _may_be_at_work(folder):
            return None
        return Task(
            run_id=run_id,
            attempt=max(granted, newest.attempt if newest else 0),
            grid_id=grid_id,
            clean=clean,
            micro_split=newest.micro_split if newest else 1,
            parent=parent,
        )

    def _take(self, task: Task, *, here: bool = True) -> Task | None:
        """Claim the run and write that down; None where somebody else was faster."""
        # Where its file system is away, folders would be made at its path.
        self.workspace.check()
        folder = self.workspace.run(task.run_id)
        number = next_number(folder, above=task.attempt)
        if not folder.claim(number):
            return None
        taken = changed(task, attempt=number, is_claimed=True)
        if not here:
            return taken
        content = changed(
            self.allocation,
            token=f"vtj-{secrets.token_hex(8)}",
            created_at=self.clock(),
            tasks=((taken,),),
            after=(),
            handed_on=False,
            inside=self.place,
        )
        write_new(self.workspace.allocation(content.token), to_json(content.to_dict()))
        logger.info("run %s: taken on as attempt %d", task.run_id, number)
        return taken
