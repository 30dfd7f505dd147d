"""The ledger's writing verbs."""

import multiprocessing
import os
from collections import Counter
from pathlib import Path

import pytest
from sqlalchemy import insert
from sqlalchemy.exc import IntegrityError

from vtjobs.db import models as m
from vtjobs.db import scheduler_notes
from vtjobs.db.adopt_allocations import adopt_allocation
from vtjobs.db.engine import reading, writing
from vtjobs.db.ledger import Ledger
from vtjobs.db.queries import status_counts
from vtjobs.jobs.errors import BadInput
from vtjobs.jobs.run.states import LIVE, TRANSITIONS, AttemptState, RunState
from vtjobs.jobs.values import changed

from ..support.ledgers import World, an_allocation, paper_grid

PARALLEL = multiprocessing.get_context("spawn")


def test_adding_a_grid_gives_its_runs_and_adding_it_again_gives_nothing_new(world: World) -> None:
    grid = paper_grid(cells=3, seeds=2)
    assert world.ledger.add_grid(grid) == {run[0] for run in grid.runs}
    before = world.rows(m.runs)
    assert world.ledger.add_grid(grid) == set()
    assert world.rows(m.runs) == before
    assert set(world.states().values()) == {"pending"}


def test_two_grids_share_their_common_runs_and_the_newest_settings_hold(world: World) -> None:
    world.ledger.add_grid(paper_grid("one", cells=2, retries=3))
    wide = paper_grid("two", cells=3, retries=7, at=2000.0)
    assert world.ledger.add_grid(wide) == {wide.runs[2][0]}
    assert {(row["tries"], row["grid_id"]) for row in world.rows(m.runs)} == {(7, wide.grid_id)}
    assert len(world.rows(m.grid_runs)) == 5


def test_a_new_run_whose_parent_failed_before_it_was_submitted_is_blocked(world: World) -> None:
    first = paper_grid(stages=("pretrain",), retries=1)
    (parent,) = world.submit(first)
    world.launch(parent)
    assert world.ledger.transition(
        parent, 1, AttemptState.FAILED, source="local", failure="setup_error"
    )
    both = world.submit(paper_grid("both", stages=("pretrain", "finetune"), retries=1))
    assert both[0] == parent
    assert world.states() == {parent: "failed", both[1]: "blocked"}


def test_attempts_are_opened_before_the_scheduler_is_called(world: World) -> None:
    (run_id,) = world.submit(paper_grid())
    assert world.launch(run_id, accept=False)
    assert [(row["number"], row["state"]) for row in world.attempts(run_id)] == [(1, "submitting")]
    assert world.states() == {run_id: "queued"}
    (allocation,) = world.rows(m.allocations)
    assert allocation["job_id"] is None and allocation["launching_until"] > world.now


def test_runs_that_somebody_else_took_are_left_out(world: World) -> None:
    first, second, third = world.submit(paper_grid(seeds=3))
    world.launch(second)
    opened = world.ledger.open_attempts(
        an_allocation([(first, 1), (second, 1), (third, 1)], token="vtj-aaaa"), launching_s=60
    )
    assert opened is not None
    assert [task.run_id for task in opened.all_tasks] == [first, third]
    assert (
        world.ledger.open_attempts(an_allocation([(second, 1)], token="vtj-bbbb"), launching_s=60)
        is None
    )
    assert len(world.rows(m.allocations)) == 2


def test_a_stale_attempt_number_is_left_out_and_is_no_error(world: World) -> None:
    (run_id,) = world.submit(paper_grid())
    world.launch(run_id)
    world.ledger.transition(run_id, 1, AttemptState.PREEMPTED, source="local", failure="stopped")
    assert world.states()[run_id] == "pending"
    assert (
        world.ledger.open_attempts(an_allocation([(run_id, 1)], token="vtj-late"), launching_s=60)
        is None
    )
    assert len(world.attempts(run_id)) == 1


def test_the_database_itself_refuses_a_second_live_attempt(world: World) -> None:
    (run_id,) = world.submit(paper_grid())
    world.launch(run_id)
    row = {
        "run_id": run_id,
        "number": 2,
        "token": "vtj-x",
        "state": AttemptState.QUEUED,
        "submitted_at": 1.0,
    }
    with pytest.raises(IntegrityError), writing(world.ledger.engine) as connection:
        connection.execute(insert(m.attempts), row)


def _open_many(url: str, workspace_id: str, run_ids: list[str], barrier: object) -> None:
    ledger = Ledger.open(url, workspace_id=workspace_id)
    barrier.wait()  # type: ignore[attr-defined]
    for number, run_id in enumerate(run_ids):
        tasks = [(run_id, 1), (run_ids[-1 - number], 1)]
        tasks = tasks if tasks[0] != tasks[1] else tasks[:1]
        ledger.open_attempts(
            an_allocation(tasks, token=f"vtj-{os.getpid()}x{number}"), launching_s=60
        )
    os._exit(0)


def test_two_submitters_at_once_never_give_a_run_two_attempts(world: World) -> None:
    run_ids = world.submit(paper_grid(cells=10, seeds=4))
    barrier = PARALLEL.Barrier(2)
    arguments = (world.url, world.workspace.check()["id"], run_ids, barrier)
    submitters = [PARALLEL.Process(target=_open_many, args=arguments) for _ in range(2)]
    for process in submitters:
        process.start()
    for process in submitters:
        process.join(60)
    assert [process.exitcode for process in submitters] == [0, 0]
    assert Counter(row["run_id"] for row in world.rows(m.attempts)) == dict.fromkeys(run_ids, 1)
    hosted = {row["token"] for row in world.rows(m.attempts)}
    assert {row["token"] for row in world.rows(m.allocations)} == hosted


def _add(url: str, workspace_id: str, backwards: bool, barrier: object) -> None:
    ledger = Ledger.open(url, workspace_id=workspace_id)
    grids = [paper_grid(f"grid{number}", cells=40, seeds=3) for number in range(3)]
    for grid in grids if not backwards else grids[::-1]:
        if backwards:
            grid.runs.reverse()
        barrier.wait()  # type: ignore[attr-defined]
        ledger.add_grid(grid)
    os._exit(0)


def test_two_submissions_of_overlapping_grids_at_once_both_succeed(world: World) -> None:
    barrier = PARALLEL.Barrier(2)
    workspace_id = world.workspace.check()["id"]
    both = [
        PARALLEL.Process(target=_add, args=(world.url, workspace_id, back, barrier))
        for back in (False, True)
    ]
    for process in both:
        process.start()
    for process in both:
        process.join(60)
    assert [process.exitcode for process in both] == [0, 0]
    assert len(world.rows(m.runs)) == 120 and len(world.rows(m.grid_runs)) == 360


def test_acceptance_queues_the_attempts_and_keeps_the_schedulers_name(world: World) -> None:
    run_ids = world.submit(paper_grid(seeds=2))
    token = world.launch(*run_ids)
    (allocation,) = world.rows(m.allocations)
    assert (allocation["job_id"], allocation["launching_until"]) == (f"job-{token}", 0.0)
    assert {row["state"] for row in world.rows(m.attempts)} == {"queued"}
    events = [(row["before"], row["after"], row["source"]) for row in world.events(run_ids[0])]
    assert events == [(None, "submitting", "vtjobs"), ("submitting", "queued", "local")]


def test_a_late_acceptance_does_not_set_a_running_attempt_back(world: World) -> None:
    (run_id,) = world.submit(paper_grid())
    token = world.launch(run_id, accept=False)
    assert token is not None
    world.ledger.transition(run_id, 1, AttemptState.RUNNING, source="journal")
    world.ledger.accepted(token, "17", source="local")
    assert world.attempts(run_id)[0]["state"] == "running"
    assert world.rows(m.allocations)[0]["job_id"] == "17"


def test_a_refusal_fails_the_runs_with_the_schedulers_words(world: World) -> None:
    run_ids = world.submit(paper_grid(seeds=2))
    token = world.launch(*run_ids, accept=False)
    assert token is not None
    world.ledger.refused(token, "invalid partition", source="local")
    assert set(world.states().values()) == {"failed"}
    assert {row["reason"] for row in world.rows(m.runs)} == {"invalid partition"}
    assert not world.ledger.take_launch(token, for_s=60)


def test_the_one_who_submits_an_allocation_is_one(world: World) -> None:
    (run_id,) = world.submit(paper_grid())
    token = world.launch(run_id, accept=False)
    assert token is not None
    assert not world.ledger.take_launch(token, for_s=60), "its writer still has a minute"
    world.now += 120
    assert [world.ledger.take_launch(token, for_s=60) for _ in range(3)] == [True, False, False]
    world.ledger.accepted(token, "17", source="local")
    world.now += 120
    assert not world.ledger.take_launch(token, for_s=60)


@pytest.mark.parametrize("before", AttemptState)
def test_a_transition_happens_exactly_where_the_table_allows_it(
    ledger_url: str, tmp_path: Path, before: AttemptState
) -> None:
    world = World(tmp_path / "runs", ledger_url)
    run_ids = world.submit(paper_grid(seeds=len(AttemptState)))
    world.launch(*run_ids, accept=False)
    for run_id, after in zip(run_ids, AttemptState, strict=True):
        if before is not AttemptState.SUBMITTING:
            assert world.ledger.transition(run_id, 1, before, source="local", raw="to begin with")
        events = len(world.events(run_id))
        allowed = after in TRANSITIONS[before]
        assert (
            world.ledger.transition(run_id, 1, after, source="squeue", raw="NODE_FAIL") is allowed
        )
        assert world.attempts(run_id)[0]["state"] == (after if allowed else before)
        new = [
            (row["before"], row["after"], row["source"], row["raw"])
            for row in world.events(run_id)[events:]
        ]
        assert new == ([(before, after, "squeue", "NODE_FAIL")] if allowed else [])
    world.close()


def test_a_transition_of_an_unknown_attempt_changes_nothing(world: World) -> None:
    (run_id,) = world.submit(paper_grid())
    assert not world.ledger.transition(run_id, 1, AttemptState.RUNNING, source="journal")
    assert world.rows(m.events) == []


def _end_all(url: str, workspace_id: str, run_ids: list[str], state: str, barrier: object) -> None:
    ledger = Ledger.open(url, workspace_id=workspace_id)
    barrier.wait()  # type: ignore[attr-defined]
    for run_id in run_ids if state != "lost" else run_ids[::-1]:
        ledger.transition(run_id, 1, AttemptState(state), source=state)
    os._exit(0)


def test_of_two_who_end_an_attempt_at_once_one_wins(world: World) -> None:
    run_ids = world.submit(paper_grid(seeds=20))
    world.launch(*run_ids)
    barrier = PARALLEL.Barrier(2)
    workspace_id = world.workspace.check()["id"]
    both = [
        PARALLEL.Process(target=_end_all, args=(world.url, workspace_id, run_ids, state, barrier))
        for state in ("completed", "lost")
    ]
    for process in both:
        process.start()
    for process in both:
        process.join(60)
    assert [process.exitcode for process in both] == [0, 0]
    ends = [row for row in world.rows(m.events) if row["after"] not in LIVE]
    assert Counter(row["run_id"] for row in ends) == dict.fromkeys(run_ids, 1)
    assert {row["run_id"]: row["after"] for row in ends} == {
        row["run_id"]: row["state"] for row in world.rows(m.attempts)
    }
    wanted = {
        row["run_id"]: "completed" if row["after"] == "completed" else "pending" for row in ends
    }
    assert world.states() == wanted


def _cancel_all(url: str, workspace_id: str, run_ids: list[str], barrier: object) -> None:
    ledger = Ledger.open(url, workspace_id=workspace_id)
    barrier.wait()  # type: ignore[attr-defined]
    for run_id in run_ids:
        ledger.set_cancelled({run_id: 2})
    os._exit(0)


def test_a_cancel_holds_when_the_attempt_ends_at_the_same_moment(world: World) -> None:
    run_ids = world.submit(paper_grid(seeds=40))
    world.launch(*run_ids)
    barrier = PARALLEL.Barrier(2)
    workspace_id = world.workspace.check()["id"]
    both = [
        PARALLEL.Process(
            target=_end_all, args=(world.url, workspace_id, run_ids, "preempted", barrier)
        ),
        PARALLEL.Process(target=_cancel_all, args=(world.url, workspace_id, run_ids, barrier)),
    ]
    for process in both:
        process.start()
    for process in both:
        process.join(60)
    assert [process.exitcode for process in both] == [0, 0]
    with reading(world.ledger.engine) as connection:
        assert status_counts(connection) == {RunState.CANCELLED: 40}


def test_an_allocation_that_was_found_on_disk_ends_the_live_attempt_below(world: World) -> None:
    (run_id,) = world.submit(paper_grid())
    world.launch(run_id)
    world.ledger.transition(run_id, 1, AttemptState.RUNNING, source="journal")
    successor = an_allocation([(run_id, 2)], token="vtj-next")
    assert adopt_allocation(world.ledger, successor)
    assert not adopt_allocation(world.ledger, successor)
    first, second = world.attempts(run_id)
    assert AttemptState(first["state"]).is_terminal
    assert second["state"] == "submitting"
    assert world.states() == {run_id: "queued"}


def test_a_run_that_is_handed_on_before_it_started_has_not_failed(world: World) -> None:
    (run_id,) = world.submit(paper_grid())
    world.launch(run_id)
    successor = changed(an_allocation([(run_id, 2)], token="vtj-next"), handed_on=True)
    assert adopt_allocation(world.ledger, successor)
    first, second = world.attempts(run_id)
    assert (first["state"], first["failure"]) == ("superseded", "superseded")
    assert first["signature"] == "handed on before the run started"
    assert second["state"] == "submitting"


def test_an_allocation_of_runs_that_the_ledger_lacks_is_taken_in_without_them(world: World) -> None:
    (run_id,) = world.submit(paper_grid())
    assert adopt_allocation(
        world.ledger, an_allocation([("f" * 16, 1), (run_id, 1)], token="vtj-both")
    )
    assert [row["run_id"] for row in world.rows(m.attempts)] == [run_id]


def test_a_ledger_of_another_workspace_is_refused(world: World) -> None:
    with pytest.raises(BadInput, match="belongs to another workspace"):
        Ledger.open(world.url, workspace_id="somebody-else")


# Schedulers ---------------------------------------------------------------------------------------


def test_a_refusal_for_now_costs_no_try_and_leaves_the_runs_pending(world: World) -> None:
    run_ids = world.submit(paper_grid(seeds=2, retries=1))
    for number in range(1, 13):
        token = world.launch(*run_ids, accept=False)
        assert token is not None
        world.ledger.refused(token, "AssocMaxSubmitJobLimit", source="slurm", later=True)
        assert not world.rows(m.attempts), "what was not taken is no attempt"
        assert set(world.states().values()) == {"pending"}, number
    assert {row["reason"] for row in world.rows(m.runs)} == {"AssocMaxSubmitJobLimit"}
    assert not world.ledger.take_launch(token, for_s=60), "what was refused is not submitted again"


def test_a_turn_is_taken_by_one_and_comes_again(world: World) -> None:
    other = world.open(world.url)
    assert scheduler_notes.take_turn(world.ledger, "asked.slurm", every_s=30)
    assert not scheduler_notes.take_turn(world.ledger, "asked.slurm", every_s=30)
    assert not scheduler_notes.take_turn(other, "asked.slurm", every_s=30), (
        "the turns are the workspace's"
    )
    assert scheduler_notes.take_turn(world.ledger, "asked.local", every_s=30), (
        "each scheduler has its own"
    )
    world.now += 30
    assert scheduler_notes.take_turn(other, "asked.slurm", every_s=30)
    assert not scheduler_notes.take_turn(world.ledger, "asked.slurm", every_s=30)
    other.engine.dispose()


def test_what_may_be_done_at_any_time_is_everybodys_turn(world: World) -> None:
    assert [
        scheduler_notes.take_turn(world.ledger, "asked.local", every_s=0) for _ in range(3)
    ] == [True] * 3


def test_a_clock_that_was_set_back_does_not_keep_a_turn_for_ever(world: World) -> None:
    assert scheduler_notes.take_turn(world.ledger, "asked.slurm", every_s=30)
    world.now -= 10_000
    assert scheduler_notes.take_turn(world.ledger, "asked.slurm", every_s=30)


def test_the_schedulers_words_are_kept_per_attempt(world: World) -> None:
    first, second = world.submit(paper_grid(seeds=2))
    world.launch(first, second)
    events = len(world.rows(m.events))
    scheduler_notes.set_words(
        world.ledger, [(first, 1, "PENDING Priority"), ("f" * 16, 1, "PENDING Resources")]
    )
    scheduler_notes.set_words(world.ledger, [])
    assert [world.attempts(run_id)[0]["word"] for run_id in (first, second)] == [
        "PENDING Priority",
        "",
    ]
    scheduler_notes.set_words(world.ledger, [(first, 1, "RUNNING")])
    assert world.attempts(first)[0]["word"] == "RUNNING"
    assert len(world.rows(m.events)) == events, "a word is no change of state"


def test_an_expected_start_is_kept_per_attempt(world: World) -> None:
    first, second = world.submit(paper_grid(seeds=2))
    world.launch(first, second)
    scheduler_notes.set_starts(world.ledger, [(first, 1, 1795.0)])
    scheduler_notes.set_starts(world.ledger, [])
    assert [world.attempts(run_id)[0]["starts_at"] for run_id in (first, second)] == [1795.0, None]


def test_many_ends_are_one_transaction_and_each_is_checked(world: World) -> None:
    run_ids = world.submit(paper_grid(seeds=4, retries=1))
    world.launch(*run_ids)
    assert world.ledger.transition(run_ids[0], 1, AttemptState.COMPLETED, source="journal")
    told = {
        "number": 1,
        "to": AttemptState.LOST,
        "source": "squeue",
        "raw": "gone",
        "failure": "agent_died",
    }
    moves = [{"run_id": run_id, **told} for run_id in [*run_ids, "f" * 16]]
    assert world.ledger.transitions(moves) == 3
    assert world.ledger.transitions(moves) == 0
    assert world.ledger.transitions([]) == 0
    assert [world.states()[run_id] for run_id in run_ids] == [
        "completed",
        "pending",
        "pending",
        "pending",
    ]
    assert [row["source"] for row in world.events(run_ids[1])][-1] == "squeue"
