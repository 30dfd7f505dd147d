"""Where the simulated cluster takes the real one's place.

The calls of SLURM's commands, and nothing above them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

from sqlalchemy import Connection

from vtjobs.db import engine
from vtjobs.db.engine import _sqlite_begin
from vtjobs.jobs.atomic_files import read_json
from vtjobs.jobs.workspace.allocation import Allocation
from vtjobs.jobs.workspace.paths import Workspace
from vtjobs.orchestrator.backends.base import Submission, SubmitOutcome
from vtjobs.orchestrator.backends.slurm import (
    backend,
    cluster,
    exclude,
    limits,
    partitions,
    query,
    submission,
)
from vtjobs.orchestrator.backends.slurm.submission import outcome_of
from vtjobs.orchestrator.loop import plan
from vtjobs.workers.agent import further_work, second_service

from .cluster import Cluster, Job
from .people import Process
from .world import Tokens, World

TIMED_OUT = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation"
AWAY = (
    "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect"
    " failure)"
)
LIMIT = (
    "sbatch: error: AssocMaxSubmitJobLimit\nsbatch: error: Batch job submission failed: Job"
    " violates limits"
)
NO_QOS = "sbatch: error: Batch job submission failed: Invalid qos specification"


class Wire:
    """Between the product and the simulated cluster."""

    def __init__(self, world: World, slurm: Cluster, running: list[Process]) -> None:
        self.world = world
        self.slurm = slurm
        self.running = running

    def step(self) -> None:
        if self.running:
            self.running[-1].step()

    def begin(self, connection: Connection) -> None:
        """Take a step before each transaction of the ledger."""
        self.step()
        _sqlite_begin(connection)

    def ask(self, command: Sequence[str], *, deadline_s: float) -> str:
        """Stand in for running a command."""
        self.step()
        text = self.slurm.ask(command)
        self.step()
        return text

    def submit(self, allocation: Allocation, workspace: Workspace) -> Submission:
        """Stand in for one call of sbatch through submitit."""
        self.step()
        found = self._sbatch(allocation)
        self.step()
        return found

    def _sbatch(self, allocation: Allocation) -> Submission:
        slurm, world = self.slurm, self.world

        def take_in() -> Job:
            return slurm.sbatch(
                allocation.token,
                places=places,
                after=allocation.after,
                exclude=allocation.exclude,
                by_pass=True,
            )

        places = len(allocation.tasks)
        dice = 1.0 if slurm.calm else world.random.random()
        lost = slurm.profile.lost_reply
        if not slurm.is_up:
            if world.chance(0.5):
                # It reached the controller's socket: the job is there once the controller goes on.
                slurm.held_back.append((take_in,))
            world.run_until(world.now + 10.0)
            return outcome_of(world.random.choice([TIMED_OUT, AWAY]))
        if slurm.profile.max_jobs is not None and slurm.count() + places > slurm.profile.max_jobs:
            return outcome_of(LIMIT)
        if dice < slurm.profile.refuse:
            return outcome_of(NO_QOS)
        if dice > 1.0 - lost / 2 and not slurm.calm:
            return outcome_of(TIMED_OUT)
        job = take_in()
        if dice > 1.0 - lost and not slurm.calm:
            return outcome_of(TIMED_OUT)
        return Submission(outcome=SubmitOutcome.ACCEPTED, job_id=str(job.id))


@contextmanager
def simulated(world: World, wire: Wire) -> Iterator[None]:
    """Put the simulated cluster in place."""
    with ExitStack() as stack:
        for module in (backend, cluster, exclude, limits, partitions, query):
            stack.enter_context(patch.object(module, "ask", wire.ask))
        # What one history knows of its cluster's limits is nothing to the next one.
        stack.enter_context(patch.object(limits, "_known", None))
        stack.enter_context(patch.object(limits, "time", SimpleNamespace(monotonic=world)))
        # By the simulated time: files of one history are made within the grain of a real clock.
        stack.enter_context(patch.object(second_service, "_changed", _written_at))
        stack.enter_context(patch.object(engine, "_sqlite_begin", wire.begin))
        stack.enter_context(patch.object(submission, "submit", wire.submit))
        for module in (plan, further_work):
            stack.enter_context(patch.object(module, "secrets", Tokens(world)))
        yield


def _written_at(path: Path) -> tuple[float, str]:
    """Return when an allocation was written; of two at once, the order of their names."""
    content = read_json(path)
    assert content is not None
    return content["created_at"], path.name
