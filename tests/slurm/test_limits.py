"""A site lets a user have only so many jobs in the queue."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

import pytest

from vtjobs.jobs.workspace.lineage import completed_by, read_attempt
from vtjobs.jobs.workspace.paths import RunFolder, Workspace

from ..support import unattended
from ..support.grids import ENDLESS
from ..support.lab import wait_for as wait_as_long
from ..support.slurm import SlurmCluster, with_accounting
from ..support.slurm_user import LATER, SlurmUser, slurm_grid, wait_for

pytestmark = with_accounting

# Trains until it is told to stop.
# Of a walltime of two minutes, and a job's second start, on a machine that does much else.
PATIENCE_S = 400.0


@contextmanager
def at_most(slurm: SlurmCluster, jobs: int) -> Iterator[None]:
    """Let this user have so many jobs in the queue."""
    limit = ("sacctmgr", "-i", "modify", "user", slurm.ask("id", "-un"), "set")
    before = slurm.association("MaxSubmitJobs") or "-1"
    slurm.ask(*limit, f"MaxSubmitJobs={jobs}")
    try:
        yield
    finally:
        slurm.ask(*limit, f"MaxSubmitJobs={before}")


@pytest.fixture
def three_at_most(slurm: SlurmCluster) -> Iterator[None]:
    with at_most(slurm, 3):
        yield


@pytest.fixture
def five_at_most(slurm: SlurmCluster) -> Iterator[None]:
    with at_most(slurm, unattended.PLACES):
        yield


def test_what_a_limit_keeps_out_waits_says_so_and_goes_later(
    user: SlurmUser, three_at_most: None
) -> None:
    user.submit(slurm_grid(seeds="5", site=LATER))
    assert user.states() == {"queued": 3, "pending": 2}
    waiting = [run["run_id"] for run in user.runs() if run["state"] == "pending"]
    answer = user.why(waiting[0])
    assert answer["verdict"] == "wait"
    assert "limit" in answer["sentence"]
    for job in user.queue():
        user.cluster.ask("scancel", job)
    user.wait_states({"queued": 2, "cancelled": 3})
    assert {run["attempts"] for run in user.runs()} == {1}


def test_a_grid_beyond_a_limit_ends_with_no_command_after_its_submission(
    user: SlurmUser, three_at_most: None
) -> None:
    user.submit(slurm_grid(seeds="8"))
    assert sum(user.states().get(state, 0) for state in ("queued", "running")) <= 3
    # Journals alone: nobody makes a pass, and nobody looks.
    runs = [user.workspace / run["run_id"][:2] / run["run_id"] for run in user.runs()]
    wait_for(lambda: all(_has_completed(RunFolder(run)) for run in runs))
    assert user.states() == {"completed": 8}
    assert {run["attempts"] for run in user.runs()} == {1}


def _has_completed(run: RunFolder) -> bool:
    return completed_by(run, 1 << 30) is not None


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_where_a_walltime_ends_all_jobs_at_a_limit_they_go_on_with_no_command(
    user: SlurmUser, three_at_most: None
) -> None:
    user.submit(slurm_grid(seeds="3", epochs=ENDLESS, walltime="2m", site="lead: 10s"))
    workspace = Workspace(user.workspace)
    runs = [workspace.run(run["run_id"]) for run in user.runs()]
    jobs = user.queue()

    def second_starts() -> bool:
        return all(read_attempt(run, 2).start is not None for run in runs)

    wait_as_long(second_starts, PATIENCE_S)
    for run in runs:
        first, second = read_attempt(run, 1), read_attempt(run, 2)
        assert first.end is not None and second.start is not None
        assert (first.end.state, second.start.resumed_step) == ("timeout", first.end.step)
    # All the same: jobs that were put back keep their array and its number.
    assert user.queue() == jobs
    user.ok("cancel", "all")
    user.wait_states({"cancelled": 3})
    wait_for(lambda: user.queue() == [])


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_sixty_runs_with_faults_stages_and_a_back_off_end_by_themselves_at_a_limit_of_five(
    user: SlurmUser, five_at_most: None
) -> None:
    site = "{slurm: {partition: gpu}}"
    unattended.submit(user, backend=site, resources="gpus_per_node: 1, walltime: 10m")
    unattended.check(user)
    spans = [
        (_seconds(start), _seconds(end))
        for start, end in (line.split("|") for line in user.accounted("Start,End"))
    ]
    assert unattended.most_at_once(spans) <= unattended.PLACES


def _seconds(moment: str) -> float:
    return time.time() if moment == "Unknown" else datetime.fromisoformat(moment).timestamp()
