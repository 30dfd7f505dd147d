"""What an agent takes on when it has served what it was given."""

from pathlib import Path
from typing import Any

import pytest

from vtjobs.jobs.atomic_files import read_json
from vtjobs.jobs.config.node import OnNode
from vtjobs.jobs.run.states import AttemptState, FailureClass
from vtjobs.jobs.workspace.allocation import Allocation, Task
from vtjobs.jobs.workspace.markers import Marker, closed
from vtjobs.jobs.workspace.paths import Workspace
from vtjobs.jobs.workspace.stored_grid import read_spec, write_spec
from vtjobs.orchestrator.requests import actions
from vtjobs.workers.agent import further_work
from vtjobs.workers.agent.claim import claim_or_refuse
from vtjobs.workers.agent.further_work import FurtherWork

from ...support.grids import tiny_grid
from ...support.journals import ended, journal, scored, started
from ...support.lab import Lab
from .test_agent import start

PATIENT = type("Patient", (OnNode,), {"waits": True})()
STAGES = """\
stages:
  - {name: pretrain, heads: [relvit]}
  - {name: finetune, heads: [supervised], init_from: pretrain}
"""
CHOOSY = type("Choosy", (OnNode,), {"waits": True, "delays": True, "avoids": True})()


def further(lab: Lab, allocation: Allocation, scheduler: OnNode = PATIENT) -> FurtherWork:
    return FurtherWork(lab.context.workspace, allocation, 0, clock=lab.clock, scheduler=scheduler)


def fail(lab: Lab, work: FurtherWork, failure: FailureClass, **fields: Any) -> Task:
    """Have the first run of a place fail as its agent would; return its attempt."""
    task = work.allocation.all_tasks[0]
    lab.run(task.run_id).claim(task.attempt)
    end = ended("failed", failure, signature=fields.pop("signature", "x"))
    journal(lab, task.run_id, task.attempt, started(attempt=task.attempt, **fields), end)
    work.after(task, AttemptState.FAILED, failure)
    return task


def test_a_run_that_failed_is_tried_again_at_once(quiet_lab: Lab) -> None:
    (run_id,) = quiet_lab.submit(tiny_grid(seeds="1"))
    work = further(quiet_lab, quiet_lab.allocate([run_id]))
    fail(quiet_lab, work, FailureClass.CRASH)
    again = work.next()
    assert again is not None
    assert (again.run_id, again.attempt, again.is_claimed) == (run_id, 2, True)
    assert quiet_lab.run(run_id).highest_claim() == 2
    assert work.next() is None


def test_nothing_is_claimed_or_made_while_the_workspace_is_away(quiet_lab: Lab) -> None:
    (run_id,) = quiet_lab.submit(tiny_grid(seeds="1"))
    work = further(quiet_lab, quiet_lab.allocate([run_id]))
    fail(quiet_lab, work, FailureClass.CRASH)
    root = quiet_lab.context.workspace.root
    root.rename(root.with_name("away"))
    assert work.next() is None
    assert not root.exists()
    root.with_name("away").rename(root)


def test_a_run_without_tries_left_is_not(quiet_lab: Lab) -> None:
    (run_id,) = quiet_lab.submit(tiny_grid(seeds="1", extra="retries: 1"))
    work = further(quiet_lab, quiet_lab.allocate([run_id]))
    fail(quiet_lab, work, FailureClass.CRASH)
    assert work.next() is None


def test_a_back_off_is_waited_for_where_nobody_else_would(quiet_lab: Lab) -> None:
    (run_id,) = quiet_lab.submit(tiny_grid(seeds="1"))
    work = further(quiet_lab, quiet_lab.allocate([run_id]))
    fail(quiet_lab, work, FailureClass.STORAGE)
    assert work.next() is None and [task.run_id for task in work.pending] == [run_id]
    quiet_lab.clock.ahead_s = 121
    assert work.next() is not None


def test_a_back_off_is_left_to_the_queue_where_it_makes_the_passes(quiet_lab: Lab) -> None:
    (run_id,) = quiet_lab.submit(tiny_grid(seeds="1"))
    work = further(quiet_lab, quiet_lab.allocate([run_id]), OnNode())
    fail(quiet_lab, work, FailureClass.STORAGE)
    assert not work.pending


@pytest.mark.parametrize(
    ("failure", "delay_s", "avoids"),
    [(FailureClass.HARDWARE, 0, True), (FailureClass.STORAGE, 120, False)],
)
def test_another_allocation_serves_what_this_node_should_not(
    quiet_lab: Lab, failure: FailureClass, delay_s: float, avoids: bool
) -> None:
    (run_id,) = quiet_lab.submit(tiny_grid(seeds="1"))
    work = further(quiet_lab, quiet_lab.allocate([run_id], argv=("true", "{token}")), CHOOSY)
    fail(quiet_lab, work, failure)
    (retry,) = work.elsewhere
    assert (retry.delay_s, retry.avoids_node) == (delay_s, avoids)
    assert work.next() is None


@pytest.mark.parametrize("action", ["cancel", "hold"])
def test_what_the_user_stopped_meanwhile_is_not_tried_again(quiet_lab: Lab, action: str) -> None:
    (run_id,) = quiet_lab.submit(tiny_grid(seeds="1"))
    work = further(quiet_lab, quiet_lab.allocate([run_id]))
    fail(quiet_lab, work, FailureClass.CRASH)
    getattr(actions, action)(quiet_lab.context, [run_id])
    assert work.next() is None


def test_runs_that_nobody_has_submitted_are_taken_on_in_the_grids_order(quiet_lab: Lab) -> None:
    runs = quiet_lab.submit(tiny_grid(seeds="4"))
    work = further(quiet_lab, quiet_lab.allocate(runs[:1]))
    quiet_lab.allocate(runs[1:2])
    taken = [work.next(), work.next()]
    assert [task.run_id for task in taken if task] == runs[2:]
    assert work.next() is None, "what a scheduler has is left to it"


def test_a_look_reads_no_whole_journal_of_a_run_that_has_begun(
    quiet_lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = quiet_lab.submit(tiny_grid(seeds="3"))
    work = further(quiet_lab, quiet_lab.allocate(runs[:1]))
    quiet_lab.allocate(runs[1:])
    for run_id, ends in zip(runs, ([ended("completed")], [ended("completed")], []), strict=True):
        quiet_lab.run(run_id).claim(1)
        quiet_lab.run(run_id).offer()
        journal(quiet_lab, run_id, 1, started(), scored(50.0), *ends)
    read: list[str] = []
    monkeypatch.setattr(further_work, "read_attempt", lambda folder, _: read.append(folder))
    assert work.next() is None
    assert not read


def test_a_run_that_a_marker_kept_from_starting_is_offered_to_who_looks(quiet_lab: Lab) -> None:
    runs = quiet_lab.submit(tiny_grid(seeds="2"))
    work = further(quiet_lab, quiet_lab.allocate(runs[:1]))
    (task,) = quiet_lab.allocate(runs[1:]).all_tasks
    actions.hold(quiet_lab.context, runs[1:])
    workspace, folder = quiet_lab.context.workspace, quiet_lab.run(runs[1])
    write_spec(workspace, task.grid_id, runs[1])
    refusal = claim_or_refuse(workspace, task, read_spec(folder))
    assert refusal is not None and refusal.failure is FailureClass.SKIPPED
    journal(quiet_lab, runs[1], 1, ended("superseded", "skipped"))
    assert workspace.offered() == {runs[1]}
    assert work.next() is None, "it is held"
    actions.release(quiet_lab.context, runs[1:])
    work._search_at = 0.0
    taken = work.next()
    assert taken is not None and (taken.run_id, taken.attempt) == (runs[1], 2)


@pytest.mark.parametrize("seeds", ["3", "30"])
def test_to_look_for_work_asks_no_file_of_a_run_that_a_scheduler_was_given(
    quiet_lab: Lab, monkeypatch: pytest.MonkeyPatch, seeds: str
) -> None:
    runs = quiet_lab.submit(tiny_grid(seeds=seeds))
    work = further(quiet_lab, quiet_lab.allocate(runs[:1]))
    quiet_lab.allocate(runs[1:])
    asked: list[str] = []
    monkeypatch.setattr(work.workspace.__class__, "run", lambda _, run_id: asked.append(run_id))
    assert work.next() is None
    assert not asked


def test_a_parent_with_several_children_is_asked_once_in_a_look(
    quiet_lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = tiny_grid(seeds="1", extra=STAGES).replace("heads: [supervised]\n", "", 1)
    text = text.replace("heads: [supervised], init", "heads: [supervised, relvit], init")
    parent, *children = quiet_lab.submit(text)
    work = further(quiet_lab, quiet_lab.allocate([parent]))
    asked: list[Path] = []
    monkeypatch.setattr(further_work, "completed_by", lambda folder, _: asked.append(folder.path))
    assert work.next() is None
    assert (len(children), asked) == (2, [quiet_lab.run(parent).path])


def test_a_workspace_of_an_older_version_has_hints_too(quiet_lab: Lab) -> None:
    (run_id,) = quiet_lab.submit(tiny_grid(seeds="1"))
    workspace = quiet_lab.context.workspace
    assert not workspace.offers.exists()
    quiet_lab.run(run_id).offer()
    assert workspace.offered() == {run_id}


def test_a_workspace_that_is_away_gets_no_hint_and_no_folder(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "away")
    workspace.run("0123456789abcdef").offer()
    assert not workspace.root.exists() and not workspace.offered()


def test_hints_that_cannot_be_listed_keep_no_new_run_from_being_taken_on(quiet_lab: Lab) -> None:
    runs = quiet_lab.submit(tiny_grid(seeds="2"))
    work = further(quiet_lab, quiet_lab.allocate(runs[:1]))
    quiet_lab.context.workspace.offers.write_text("no folder")
    task = work.next()
    assert task is not None and task.run_id == runs[1]


def test_a_cancel_takes_the_hint_back(quiet_lab: Lab) -> None:
    (run_id,) = quiet_lab.submit(tiny_grid(seeds="1"))
    quiet_lab.run(run_id).offer()
    quiet_lab.run(run_id).cancel(1)
    assert not quiet_lab.context.workspace.offered()


def test_a_hint_that_is_lost_leaves_a_granted_try_to_a_pass(quiet_lab: Lab) -> None:
    runs = quiet_lab.submit(tiny_grid(seeds="2", extra="retries: 0"))
    work = further(quiet_lab, quiet_lab.allocate(runs[:1]))
    quiet_lab.allocate(runs[1:])
    quiet_lab.run(runs[1]).claim(1)
    journal(quiet_lab, runs[1], 1, started(), ended("failed", FailureClass.CRASH))
    quiet_lab.tick(start=False)
    actions.retry(quiet_lab.context, runs[1:], clean=False)
    offer = quiet_lab.context.workspace.offers / runs[1]
    offer.unlink()
    assert work.next() is None
    quiet_lab.run(runs[1]).offer()
    work._search_at = 0.0
    task = work.next()
    assert task is not None and (task.run_id, task.attempt) == (runs[1], 2)
    assert not offer.exists(), "a claim ends it"


def test_two_agents_never_take_on_the_same_run(quiet_lab: Lab) -> None:
    runs = quiet_lab.submit(tiny_grid(seeds="4"))
    workers = [further(quiet_lab, quiet_lab.allocate([run_id])) for run_id in runs[:2]]
    for work in workers:
        # Both have looked before either claims.
        work._submissions.refresh()
    taken = [task.run_id for work in workers * 2 if (task := work.next())]
    assert sorted(taken) == sorted(runs[2:])


def test_a_run_that_a_scheduler_did_not_take_is_taken_on(quiet_lab: Lab) -> None:
    runs = quiet_lab.submit(tiny_grid(seeds="2"))
    work = further(quiet_lab, quiet_lab.allocate(runs[:1]))
    refused = quiet_lab.allocate(runs[1:])
    work._submissions.refresh()
    quiet_lab.context.workspace.allocation(refused.token).unlink()
    task = work.next()
    assert task is not None and task.run_id == runs[1]


def test_a_stage_follows_once_its_parent_has_completed(quiet_lab: Lab) -> None:
    text = tiny_grid(seeds="1", extra=STAGES).replace("heads: [supervised]\n", "", 1)
    parent, child = quiet_lab.submit(text)
    work = further(quiet_lab, quiet_lab.allocate([parent]))
    assert work.next() is None
    quiet_lab.run(parent).claim(1)
    journal(quiet_lab, parent, 1, started(), ended("completed"))
    work.after(work.allocation.all_tasks[0], AttemptState.COMPLETED, None)
    task = work.next()
    assert task is not None and (task.run_id, task.parent) == (child, parent)


def test_a_stage_that_started_too_early_is_taken_on_once_its_parent_has_completed(
    quiet_lab: Lab,
) -> None:
    text = tiny_grid(seeds="1", extra=STAGES).replace("heads: [supervised]\n", "", 1)
    parent, child = quiet_lab.submit(text)
    work = further(quiet_lab, quiet_lab.allocate([parent]))
    quiet_lab.allocate([child])
    journal(quiet_lab, child, 1, ended("superseded", "skipped"))
    quiet_lab.run(child).offer()
    quiet_lab.run(parent).claim(1)
    journal(quiet_lab, parent, 1, started(), ended("completed"))
    work.after(work.allocation.all_tasks[0], AttemptState.COMPLETED, None)
    task = work.next()
    assert task is not None and (task.run_id, task.attempt) == (child, 2)


def test_the_ledger_has_what_was_taken_on_at_the_agents_place(quiet_lab: Lab) -> None:
    runs = quiet_lab.submit(tiny_grid(seeds="2"))
    allocation = quiet_lab.allocate(runs[:1])
    quiet_lab.context.backend("local").submit(allocation)
    task = further(quiet_lab, allocation).next()
    assert task is not None
    quiet_lab.tick(start=False)
    (attempt,) = quiet_lab.attempts(runs[1])
    assert (attempt.token, attempt.state, attempt.number) == (allocation.token, "queued", 1)


def test_what_was_taken_on_moves_there_from_an_allocation_of_its_own(quiet_lab: Lab) -> None:
    runs = quiet_lab.submit(tiny_grid(seeds="2"))
    allocation = quiet_lab.allocate(runs[:1])
    task = further(quiet_lab, allocation).next()
    # Somebody had opened the very attempt before the agent's file could be seen.
    taken = next(
        path
        for path in quiet_lab.context.workspace.allocations.glob("vtj-*.json")
        if read_json(path)["inside"]
    )
    content = taken.read_bytes()
    taken.unlink()
    quiet_lab.run(runs[1]).claims.joinpath("0001").unlink()
    other = quiet_lab.allocate(runs[1:])
    assert task is not None and other.all_tasks[0].attempt == task.attempt
    taken.write_bytes(content)
    quiet_lab.tick(start=False)
    (attempt,) = quiet_lab.attempts(runs[1])
    assert attempt.token == allocation.token


def test_an_agent_trains_the_whole_grid_that_it_got_one_run_of(lab: Lab) -> None:
    runs = lab.submit(tiny_grid(seeds="3"))
    agent = start(lab, lab.allocate(runs[:1], lanes=1))
    assert agent.wait(timeout=120) == 0
    lab.tick(start=False)
    assert set(lab.states().values()) == {"completed"}
    assert [len(lab.attempts(run_id)) for run_id in runs] == [1, 1, 1]


def test_with_too_little_walltime_left_it_takes_on_nothing(lab: Lab) -> None:
    runs = lab.submit(tiny_grid(seeds="2"))
    agent = start(lab, lab.allocate(runs[:1], walltime_s=600, lead_s=500))
    assert agent.wait(timeout=120) == 0
    lab.tick(start=False)
    assert [lab.state(run_id) for run_id in runs] == ["completed", "pending"]


def test_after_three_runs_that_failed_alike_no_further_one_is_taken_on(quiet_lab: Lab) -> None:
    runs = quiet_lab.submit(tiny_grid(seeds="5", extra="retries: 1"))
    allocation = quiet_lab.allocate(runs[:3])
    work = further(quiet_lab, allocation)
    for task in allocation.all_tasks:
        journal(quiet_lab, task.run_id, 1, ended("failed", FailureClass.SETUP_ERROR))
        work.after(task, AttemptState.FAILED, FailureClass.SETUP_ERROR)
    assert work.next() is None


ALONE = type("Alone", (OnNode,), {"waits": True, "one_machine": True})()


def _all_fail(lab: Lab, work: FurtherWork, failure: FailureClass, *signatures: str) -> None:
    for task, signature in zip(work.allocation.all_tasks, signatures, strict=True):
        end = ended("failed", failure, signature=signature)
        journal(lab, task.run_id, 1, started(), end)
        work.after(task, AttemptState.FAILED, failure, signature=signature, error=f"{signature}\n")


@pytest.mark.parametrize(
    ("failure", "signatures", "scheduler", "stops"),
    [
        (FailureClass.DATA_MISSING, "xxx", ALONE, True),
        (FailureClass.SETUP_ERROR, "xxx", ALONE, True),
        (FailureClass.SETUP_ERROR, "xxy", ALONE, False),
        (FailureClass.DATA_MISSING, "xx", ALONE, False),
        (FailureClass.CRASH, "xxx", ALONE, False),
        # Another node may have what this one lacks.
        (FailureClass.DATA_MISSING, "xxx", CHOOSY, False),
    ],
)
def test_the_only_machine_stops_a_grid_whose_runs_fail_alike(
    quiet_lab: Lab, failure: FailureClass, signatures: str, scheduler: OnNode, stops: bool
) -> None:
    runs = quiet_lab.submit(tiny_grid(seeds="5", extra="retries: 3"))
    work = further(quiet_lab, quiet_lab.allocate(runs[: len(signatures)]), scheduler)
    _all_fail(quiet_lab, work, failure, *signatures)
    why = closed(quiet_lab.context.workspace, work.allocation.all_tasks[0].grid_id)(runs[-1])
    assert (why is not None) is stops
    if why is not None:
        assert (why.marker, why.text) == (Marker.BREAKER, "circuit breaker: x")


def test_a_grid_that_was_released_is_stopped_after_as_many_failures_again(quiet_lab: Lab) -> None:
    runs = quiet_lab.submit(tiny_grid(seeds="6", extra="retries: 3"))
    work = further(quiet_lab, quiet_lab.allocate(runs), ALONE)
    _all_fail(quiet_lab, work, FailureClass.DATA_MISSING, "x", "x", "x", "y", "y", "z")
    actions.release(quiet_lab.context, runs)
    workspace, tasks = quiet_lab.context.workspace, work.allocation.all_tasks
    work.after(tasks[5], AttemptState.FAILED, FailureClass.DATA_MISSING, signature="x")
    assert closed(workspace, tasks[0].grid_id)(runs[0]) is None


@pytest.mark.parametrize("change", ["resources: {gpus_per_node: 0, threads: 2}", "nothing"])
def test_runs_that_ask_for_another_place_by_now_are_left_to_a_pass(
    quiet_lab: Lab, change: str
) -> None:
    text = tiny_grid(seeds="2")
    runs = quiet_lab.submit(text)
    work = further(quiet_lab, quiet_lab.allocate(runs[:1]))
    if change != "nothing":
        quiet_lab.submit(text.replace("resources: {gpus_per_node: 0}", change))
    assert (work.next() is None) is (change != "nothing")


def test_a_rerun_of_what_another_agent_trains_is_not_taken_on(quiet_lab: Lab) -> None:
    runs = quiet_lab.submit(tiny_grid(seeds="2"))
    work = further(quiet_lab, quiet_lab.allocate(runs[:1]))
    quiet_lab.allocate(runs[1:])
    quiet_lab.run(runs[1]).claim(1)
    journal(quiet_lab, runs[1], 1, started())
    grants = quiet_lab.run(runs[1]).grants
    grants.mkdir()
    (grants / "0001-clean").touch()
    assert work.next() is None
