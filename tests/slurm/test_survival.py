"""Runs on a real cluster outlive what happens to their jobs, nodes and controller, and lose at most
a checkpoint.
"""

import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from vtjobs.jobs.workspace.lineage import candidates

from ..conftest import end_processes
from ..support.cli import Cli
from ..support.grids import ENDLESS
from ..support.lab import wait_for, weights_of
from ..support.site import (
    OneRun,
    agents,
    attempts,
    family,
    gone,
    kill,
    partition_with,
    run_of,
    slurm_grid,
    user_of,
)
from ..support.slurm import SlurmCluster, until, with_accounting
from ..support.training import image_folder

pytestmark = pytest.mark.xdist_group("slurm-survival")


@pytest.fixture
def user(slurm: SlurmCluster, tmp_path: Path, cache: Path) -> Iterator[Cli]:
    """A user of the cluster; what they left running is ended afterwards."""
    made = user_of(slurm, tmp_path, cache)
    yield made
    slurm.run("scancel", "--full", "--signal=KILL", "--user=root")
    end_processes(made.workspace)


def submit(user: Cli, text: str, **env: str) -> OneRun:
    user.ok("submit", user.write("grid.yaml", text), **env)
    return run_of(user)


def finish(user: Cli, run: OneRun) -> dict[str, object]:
    """Go on with the grid to its end, as `submit --wait` does; return the run's story."""
    done = user("submit", "grid.yaml", "--wait", timeout=280)
    assert done.returncode == 0, done.stderr
    document = run.show()
    assert document["state"] == "completed"
    return document


def state_of(document: dict[str, object], attempt: int) -> object:
    return attempts(document)[attempt - 1]["state"]


def newest_checkpoint(run: OneRun, attempt: int) -> int:
    """Return the step of the checkpoint that the next attempt has to go on from."""
    return candidates(run.folder, attempt + 1)[0].step


def sources(document: dict[str, object], attempt: int, state: str) -> list[str]:
    """Return who said that an attempt ended so."""
    history = document["history"]
    assert isinstance(history, list)
    return [
        event["source"]
        for event in history
        if event["attempt"] == attempt and event["after"] == state
    ]


# Walltime -----------------------------------------------------------------------------------------


# Its steps take a while and no CPU, however busy the machine is.
SLOW = """\
import time

import torch

class Slow(torch.nn.Module):
    def __init__(self, grids):
        super().__init__()

    def forward(self, grids, generator, places=None):
        time.sleep(0.1 * self.training)
        return grids[-1].sum() * 0.0, {}
"""
# Of eight steps each: more than two jobs have time for.
SLOW_EPOCHS = 300


@pytest.mark.paper("OR-07")
@pytest.mark.long
@pytest.mark.timeout(2400)
def test_nodes_hand_a_run_on_twice_without_any_command_and_its_weights_are_those_of_an_uninterrupted_one(
    user: Cli, slurm: SlurmCluster, tmp_path: Path, cache: Path
) -> None:
    other = user_of(slurm, tmp_path / "other", cache)
    for one in (user, other):
        one.write("slow.py", SLOW)
    slow = partial(slurm_grid, epochs=SLOW_EPOCHS, heads='[{"slow.py:Slow": {weight: 0.1}}]')
    straight = submit(other, slow())
    # Of two minutes SLURM's signal leaves a run between 80 and 110 s.
    run = submit(user, slow(resources="walltime: 2m", slurm="lead: 10s"))
    wait_for(lambda: run.folder.highest_claim() >= 3, 1200)
    ended = wait_for(lambda: run.record(run.folder.highest_claim()).end, 300)
    while ended.state == "timeout":
        number = run.folder.highest_claim()
        wait_for(lambda number=number: run.folder.highest_claim() > number, 120)
        ended = wait_for(lambda: run.record(run.folder.highest_claim()).end, 300)
    straight.ends(1, 1200)
    user.ok("status")
    document = run.show()
    found = attempts(document)
    assert document["state"] == "completed"
    assert len(found) >= 3
    assert [attempt["state"] for attempt in found] == ["timeout"] * (len(found) - 1) + ["completed"]
    assert all(attempt["exact"] for attempt in found[1:])
    assert [attempt["resumed_step"] for attempt in found[1:]] == [
        attempt["step"] for attempt in found[:-1]
    ]
    assert weights_of(user.workspace, run.run_id) == weights_of(other.workspace, straight.run_id)


# Preemption ---------------------------------------------------------------------------------------


def preempt(slurm: SlurmCluster, seconds: int = 1) -> None:
    """Have somebody more important take the whole cluster for a moment."""
    nodes = len(slurm.nodes())
    slurm.submit(f"sleep {seconds}", "--partition=high", f"--nodes={nodes}", "--exclusive")


def test_a_preempted_run_with_grace_saves_and_goes_on_by_itself(
    user: Cli, slurm: SlurmCluster
) -> None:
    with partition_with(slurm, "low", GraceTime=20):
        run = submit(user, slurm_grid(epochs=40, slow=True, slurm="partition: low"))
        run.trains(1, epochs=3)
        preempt(slurm)
        end = run.ends(1)
        assert (end.state, end.failure) == ("preempted", "stopped")
        assert run.record(1).announced[-1] == end.step
        run.trains(2)
    document = finish(user, run)
    assert state_of(document, 1) == "preempted"
    assert attempts(document)[1]["resumed_step"] == end.step
    assert attempts(document)[1]["exact"] is True
    assert sources(document, 1, "preempted") == ["journal"]


def test_a_run_preempted_without_grace_goes_on_from_its_last_periodic_checkpoint(
    user: Cli, slurm: SlurmCluster
) -> None:
    images = image_folder(user.folder / "images", train=16, test=4)
    on_images = slurm_grid(
        epochs=ENDLESS, dataset="./images", train="pipeline: pil, batch_size: 8", slurm="partition: low",
        extra="checkpoint_every: 1s",
    )  # fmt: skip
    run = submit(user, on_images)
    wait_for(lambda: run.events(1, "checkpoint"))
    with unreadable(images / "train" / "class-0" / "0.png"):
        wait_for(lambda: stands_still(run))
        preempt(slurm)
        wait_for(lambda: gone(agents(user)), 90)
    assert run.record(1).end is None, "there was no time to say how it ended"
    saved = newest_checkpoint(run, 1)
    wait_for(lambda: (user.ok("supervise", "--once"), run.record(2).start)[1], 120)
    document = run.show()
    assert state_of(document, 1) == "preempted"
    assert sources(document, 1, "preempted")[0] in ("squeue", "sacct")
    assert attempts(document)[1]["resumed_step"] == saved
    user.ok("cancel", run.run_id)


@contextmanager
def unreadable(path: Path) -> Iterator[None]:
    """Have whoever reads a file wait for ever.

    Ranks that do can neither go on nor stop and save.
    """
    aside, pipe = path.with_suffix(".aside"), path.with_suffix(".pipe")
    os.link(path, aside)
    os.mkfifo(pipe)
    pipe.rename(path)
    yield
    aside.rename(path)


def stands_still(run: OneRun) -> bool:
    before = len(run.events(1, "epoch"))
    time.sleep(2)
    return len(run.events(1, "epoch")) == before


# Nodes --------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_run_goes_on_elsewhere_when_its_node_dies_with_everything_on_it(
    user: Cli, slurm: SlurmCluster
) -> None:
    run = submit(user, slurm_grid(epochs=60, slow=True, extra="checkpoint_every: 1s"))
    node = run.trains(1, epochs=10)
    slurm.kill(node, steps=True)
    saved = newest_checkpoint(run, 1)
    document = finish(user, run)
    assert state_of(document, 1) == "node_fail"
    assert sources(document, 1, "node_fail")[0] in ("squeue", "sacct")
    second = attempts(document)[1]
    assert second["state"] == "completed"
    assert second["host"] != node
    assert second["resumed_step"] == saved


@pytest.mark.long
def test_the_zombie_of_a_node_whose_daemon_died_fences_itself_and_nothing_more_of_it_is_adopted(
    slurm: SlurmCluster, user: Cli
) -> None:
    # A run looks at its claims as often as it does in earnest.
    user.env["VTJOBS_FENCE_S"] = "10"
    run = submit(user, slurm_grid(epochs=ENDLESS, extra="checkpoint_every: 1s"))
    node = run.trains(1, epochs=3)
    zombie = [process for pid in agents(user) for process in family(pid)]
    slurm.kill(node)
    wait_for(lambda: (user.ok("supervise", "--once"), run.record(2).start)[1], 180)
    claimed_at = time.monotonic()
    assert not gone(zombie), "the agent is not a zombie"
    wait_for(lambda: gone(zombie), 30)
    assert time.monotonic() - claimed_at < 30
    assert run.ends(1).state == "superseded"
    run.trains(2, epochs=3)
    start = run.record(2).start
    assert start is not None and start.host != node
    step = start.resumed_step
    assert run.events(1, "epoch")[-1]["step"] > step, "the zombie wrote on after it was superseded"
    assert all(found.attempt == 2 or found.step <= step for found in candidates(run.folder, 3))
    document = run.show()
    assert (document["state"], state_of(document, 1)) == ("running", "node_fail")
    assert [attempt["number"] for attempt in attempts(document)] == [1, 2]
    user.ok("cancel", run.run_id)


def test_a_run_on_a_node_that_an_administrator_sets_down_goes_on_elsewhere(
    user: Cli, slurm: SlurmCluster
) -> None:
    run = submit(user, slurm_grid(epochs=30, slow=True))
    node = run.trains(1, epochs=3)
    slurm.node_down(node)
    document = finish(user, run)
    assert state_of(document, 1) == "node_fail"
    assert attempts(document)[1]["host"] != node
    assert attempts(document)[1]["state"] == "completed"


def test_a_run_on_a_node_that_is_drained_finishes_there(user: Cli, slurm: SlurmCluster) -> None:
    run = submit(user, slurm_grid(epochs=25, slow=True))
    node = run.trains(1, epochs=3)
    slurm.ask("scontrol", "update", f"nodename={node}", "state=drain", "reason=test")
    document = finish(user, run)
    assert [attempt["host"] for attempt in attempts(document)] == [node]


def test_after_a_killed_agent_the_run_goes_on_from_its_last_checkpoint(
    user: Cli, slurm: SlurmCluster
) -> None:
    run = submit(user, slurm_grid(epochs=40, slow=True, extra="checkpoint_every: 1s"))
    wait_for(lambda: run.events(1, "checkpoint"))
    (agent,) = agents(user)
    processes = family(agent)
    kill([agent])
    wait_for(lambda: gone(processes), 20)
    saved = newest_checkpoint(run, 1)
    document = finish(user, run)
    first, second = attempts(document)
    assert (first["state"], first["failure"]) == ("lost", "agent_died")
    assert sources(document, 1, "lost")[0] in ("squeue", "sacct")
    assert second["resumed_step"] == saved


@pytest.mark.long
@with_accounting
def test_a_run_whose_host_ran_out_of_memory_is_told_as_such(user: Cli, slurm: SlurmCluster) -> None:
    run = submit(user, slurm_grid(epochs=ENDLESS))
    run.trains(1)
    job = run.job(slurm)
    kill(agents(user))
    # Nodes without cgroups cannot notice it, so accounting is told in their place.
    until(lambda: not slurm.job(job), "the controller has forgotten the job", 180)
    books = (
        "mariadb",
        "--no-defaults",
        f"--socket={slurm.folder}/run/mariadb.socket",
        "--user=root",
        "slurm",
    )
    slurm.ask(*books, "-e", f"UPDATE dev_job_table SET state = 11 WHERE id_job = {job}")
    assert slurm.ask("sacct", "-nXPD", "-j", job, "-o", "State") == "OUT_OF_MEMORY"
    user.ok("status")
    (attempt,) = attempts(run.show())
    assert (attempt["state"], attempt["failure"]) == ("out_of_memory", "out_of_memory")
    assert sources(run.show(), 1, "out_of_memory") == ["sacct"]
    (group,) = user.json("failures")
    assert (group["class"], group["runs"]) == ("out_of_memory", 1)


def test_a_job_that_is_suspended_and_resumed_stays_one_attempt(
    user: Cli, slurm: SlurmCluster
) -> None:
    run = submit(user, slurm_grid(epochs=40, slow=True))
    run.trains(1, epochs=3)
    job = run.job(slurm)
    slurm.ask("scontrol", "suspend", job)
    slurm.wait_state(job, "SUSPENDED")
    until(lambda: user.json("status")["runs"]["running"] == 1, "it is running", 20)
    time.sleep(2)
    before = len(run.events(1, "epoch"))
    until(lambda: run.show()["shown_state"] == "suspended", "it is shown as suspended", 20)
    assert len(run.events(1, "epoch")) == before, "it is not suspended"
    told = user.json("why", run.run_id)
    assert (told["verdict"], told["reason"]) == ("act", "SUSPENDED")
    assert "suspended by an administrator" in told["sentence"]
    slurm.ask("scontrol", "resume", job)
    document = finish(user, run)
    assert [attempt["state"] for attempt in attempts(document)] == ["completed"]


def test_cancelling_one_queued_run_leaves_the_rest_of_its_array_in_the_queue(
    user: Cli, slurm: SlurmCluster
) -> None:
    grid = slurm_grid(
        seeds="4", epochs=ENDLESS, slurm="array_parallelism: 1", resources="walltime: 5m"
    )
    user.ok("submit", user.write("grid.yaml", grid))
    runs = [OneRun(user, run["run_id"]) for run in user.json("runs", "all")]
    runs[0].trains(1)
    user.ok("cancel", runs[2].run_id)
    waiting = slurm.ask("squeue", "-h", "-r", "-t", "pending", "-o", "%K").split()
    assert waiting == ["1", "3"]
    user.ok("cancel", runs[0].run_id)
    runs[1].trains(1)
    # What was cancelled while it waited is gone from the queue, which alone proves nothing.
    wait_for(lambda: user.json("status")["runs"]["cancelled"] == 2, 120)
    counts = user.json("status")["runs"]
    assert (counts["running"], counts["queued"]) == (1, 1)
    user.ok("cancel", "all")


# Controller ---------------------------------------------------------------------------------------


def test_a_controller_that_is_killed_and_comes_back_changes_nothing_for_a_running_grid(
    user: Cli, slurm: SlurmCluster
) -> None:
    user.write("grid.yaml", slurm_grid(seeds="3", epochs=60, slow=True))
    user.ok("submit", "grid.yaml")
    runs = [OneRun(user, run["run_id"]) for run in user.json("runs", "all")]
    for run in runs:
        run.trains(1)
    slurm.save()
    slurm.kill("slurmctld")
    done = user("status", "--json")
    assert done.returncode == 5
    assert "slurm unreachable since" in done.stderr
    counts = json.loads(done.stdout)["runs"]
    assert counts["running"] + counts["completed"] == 3
    slurm.up()
    done = user("submit", "grid.yaml", "--wait", timeout=280)
    assert done.returncode == 0, done.stderr
    for run in runs:
        assert [attempt["state"] for attempt in attempts(run.show())] == ["completed"]


@pytest.mark.long
@with_accounting
def test_a_scancel_while_accounting_was_away_is_never_taken_for_a_lost_job(
    user: Cli, slurm: SlurmCluster
) -> None:
    run = submit(user, slurm_grid(epochs=ENDLESS))
    node = run.trains(1)
    job = run.job(slurm)
    slurm.kill("slurmdbd")
    # An agent that lives says by itself that it was cancelled.
    slurm.kill(node, steps=True)
    slurm.ask("scancel", job)
    until(lambda: not slurm.job(job), "the controller has forgotten the job", 180)
    assert run.show()["shown_state"] == "running", "nobody can say yet how it ended"
    slurm.up()
    seen = []

    def is_booked() -> bool:
        seen.append(attempts(run.show())[0]["state"])
        return slurm.ask("sacct", "-nXP", "-j", job, "-o", "State").startswith("CANCELLED")

    wait_for(is_booked, 120)
    wait_for(lambda: run.show()["shown_state"] in ("cancelling", "cancelled"), 60)
    assert set(seen) <= {"running", "cancelled"}
    assert len(attempts(run.show())) == 1


@pytest.mark.long
@with_accounting
def test_an_array_that_the_crashed_controller_forgot_is_submitted_again_and_who_has_its_id_now_is_left_alone(
    user: Cli, slurm: SlurmCluster
) -> None:
    state, copy = slurm.folder / "state", slurm.folder / "state.before"
    slurm.save()
    # The controller writes its state every few seconds; one that is killed before has not heard of
    # what came after.
    shutil.copytree(state, copy)
    grid = slurm_grid(
        seeds="2", epochs=ENDLESS, slurm="array_parallelism: 1", extra="checkpoint_every: 1s"
    )
    user.ok("submit", user.write("grid.yaml", grid))
    first, second = (OneRun(user, run["run_id"]) for run in user.json("runs", "all"))
    first.trains(1, epochs=3)
    job = slurm.ask("squeue", "-h", "-t", "running", "-o", "%F")
    until(
        lambda: first.show()["attempts"][0]["token"] in slurm.ask("sacct", "-nXP", "-o", "JobName"),
        "it is booked",
    )
    slurm.kill("slurmctld")
    shutil.copytree(copy, state, dirs_exist_ok=True)
    shutil.rmtree(copy)
    slurm.up()
    assert slurm.job(job) == {}
    while (stranger := slurm.submit("sleep 200", "--job-name=stranger")) != job:
        assert int(stranger) < int(job), "the controller gives ids away again"
        slurm.ask("scancel", stranger)
    wait_for(lambda: gone(agents(user)), 60)
    wait_for(
        lambda: (user.ok("supervise", "--once"), first.record(2).start or second.record(2).start)[
            1
        ],
        180,
    )
    # The one that waited is not judged in the first two minutes: it might have been cancelled this
    # very moment.
    wait_for(
        lambda: (user.ok("supervise", "--once"), attempts(second.show())[0]["state"] == "lost")[1],
        180,
    )
    ends = [
        (attempts(run.show())[0]["state"], attempts(run.show())[0]["failure"])
        for run in (first, second)
    ]
    assert ends == [("lost", "agent_died"), ("lost", "not_submitted")]
    assert user.json("status")["runs"]["cancelled"] == 0
    user.ok("cancel", "all")
    assert slurm.job(stranger)["JobState"] in ("PENDING", "RUNNING")
