"""What a user asks of runs, with a queue that nobody serves.

Tests/test_kill.py asks it of live ones.
"""

import pytest

from vtjobs.jobs.atomic_files import read_json
from vtjobs.jobs.errors import VtjobsError
from vtjobs.jobs.run.states import AttemptState
from vtjobs.jobs.workspace.allocation import Allocation
from vtjobs.jobs.workspace.journal import SILENT_S
from vtjobs.jobs.workspace.markers import held_runs
from vtjobs.orchestrator.requests import actions

from ...support.grids import tiny_grid
from ...support.journals import ended, journal, scored, started
from ...support.lab import Lab


@pytest.fixture
def runs(quiet_lab: Lab) -> list[str]:
    """Three queued runs."""
    found = quiet_lab.submit(tiny_grid(seeds="3"))
    quiet_lab.tick()
    return found


def task_of(lab: Lab, run_id: str) -> dict[str, object]:
    """Return the last attempt's task as its agent will read it."""
    content = Allocation.from_dict(
        read_json(lab.context.workspace.allocation(lab.attempts(run_id)[-1].token))
    )
    (task,) = [task for task in content.all_tasks if task.run_id == run_id]
    return {"attempt": task.attempt, "clean": task.clean}


def test_a_cancel_leaves_its_mark_in_the_workspace_before_anything_else(
    quiet_lab: Lab, runs: list[str]
) -> None:
    done = actions.cancel(quiet_lab.context, runs[:1])
    assert done.run_ids == runs[:1] and not done.passed_over
    assert quiet_lab.run(runs[0]).highest_cancel() == 2
    assert quiet_lab.run(runs[1]).highest_cancel() == 0


def test_a_run_that_is_still_being_cancelled_is_not_said_to_need_a_cancel(
    quiet_lab: Lab, runs: list[str]
) -> None:
    actions.cancel(quiet_lab.context, runs[:1])
    done = actions.retryable(quiet_lab.context, runs[:2], clean=False)
    assert done.passed_over == {
        runs[0]: "is being cancelled. Try it again once it is cancelled",
        runs[1]: "is queued; cancel it first",
    }


def test_cancelling_all_runs_of_a_queued_allocation_takes_it_out_of_the_queue(
    quiet_lab: Lab, runs: list[str]
) -> None:
    actions.cancel(quiet_lab.context, runs)
    quiet_lab.tick()
    assert set(quiet_lab.states().values()) == {"cancelled"}
    assert [attempt.state for run_id in runs for attempt in quiet_lab.attempts(run_id)] == [
        "cancelled"
    ] * 3
    assert not list(quiet_lab.context.workspace.local_queue().glob("queue/*"))


def test_an_agent_at_work_is_not_ended_with_its_run_for_it_may_have_taken_on_another_one(
    quiet_lab: Lab, runs: list[str]
) -> None:
    # The ledger has not read that it began.
    journal(quiet_lab, runs[0], 1, started())
    actions.cancel(quiet_lab.context, runs)
    waiting = {path.stem for path in quiet_lab.context.workspace.local_queue().glob("queue/*")}
    assert waiting == {quiet_lab.attempts(runs[0])[-1].token}


def test_an_agent_that_has_been_silent_is_ended_with_its_run(
    quiet_lab: Lab, runs: list[str]
) -> None:
    journal(quiet_lab, runs[0], 1, started(), at=quiet_lab.context.clock() - 2 * SILENT_S)
    actions.cancel(quiet_lab.context, runs)
    assert not list(quiet_lab.context.workspace.local_queue().glob("queue/*"))


def test_cancelling_a_run_that_never_started_keeps_it_from_starting(quiet_lab: Lab) -> None:
    runs = quiet_lab.submit(tiny_grid(seeds="2"))
    actions.cancel(quiet_lab.context, runs[:1])
    quiet_lab.tick()
    assert quiet_lab.states() == {runs[0]: "cancelled", runs[1]: "queued"}


def test_a_late_record_of_success_does_not_undo_a_cancel(quiet_lab: Lab, runs: list[str]) -> None:
    actions.cancel(quiet_lab.context, runs)
    quiet_lab.tick()
    journal(quiet_lab, runs[0], 1, started(), scored(90.0), ended("completed"))
    quiet_lab.tick()
    assert quiet_lab.state(runs[0]) == "cancelled"


def test_a_finished_run_is_passed_over_by_a_cancel(quiet_lab: Lab, runs: list[str]) -> None:
    journal(quiet_lab, runs[0], 1, started(), scored(90.0), ended("completed"))
    quiet_lab.tick()
    done = actions.cancel(quiet_lab.context, runs)
    assert done.passed_over == {runs[0]: "is already completed"}
    assert done.run_ids == runs[1:]
    assert quiet_lab.state(runs[0]) == "completed"


def test_a_retry_goes_on_from_the_last_checkpoint_and_a_rerun_starts_from_nothing(
    quiet_lab: Lab, runs: list[str]
) -> None:
    actions.cancel(quiet_lab.context, runs)
    quiet_lab.tick()
    actions.retry(quiet_lab.context, runs[:1], clean=False)
    actions.retry(quiet_lab.context, runs[1:2], clean=True)
    quiet_lab.tick()
    # Numbers 1 and 2 are taken: by the first attempt, and by the cancel that covers it.
    assert task_of(quiet_lab, runs[0]) == {"attempt": 3, "clean": False}
    assert task_of(quiet_lab, runs[1]) == {"attempt": 3, "clean": True}
    assert quiet_lab.state(runs[2]) == "cancelled"


def test_a_rerun_of_a_completed_run_is_a_new_attempt_and_the_earlier_one_is_kept(
    quiet_lab: Lab, runs: list[str]
) -> None:
    journal(quiet_lab, runs[0], 1, started(), scored(90.0), ended("completed"))
    quiet_lab.tick()
    assert (
        actions.retry(quiet_lab.context, runs[:1], clean=False)
        .passed_over[runs[0]]
        .startswith("is completed")
    )
    actions.retry(quiet_lab.context, runs[:1], clean=True)
    quiet_lab.tick()
    assert [(attempt.number, attempt.state) for attempt in quiet_lab.attempts(runs[0])] == [
        (1, "completed"),
        (2, "queued"),
    ]
    assert task_of(quiet_lab, runs[0]) == {"attempt": 2, "clean": True}


def test_what_is_live_is_not_tried_again(quiet_lab: Lab, runs: list[str]) -> None:
    done = actions.retry(quiet_lab.context, runs, clean=False)
    assert done.run_ids == [] and set(done.passed_over) == set(runs)
    assert "cancel it first" in done.passed_over[runs[0]]


def test_a_granted_try_starts_the_count_anew(quiet_lab: Lab) -> None:
    (run_id,) = quiet_lab.submit(tiny_grid(seeds="1", extra="retries: 2"))
    for number in (1, 2):
        quiet_lab.tick()
        quiet_lab.context.ledger.transition(
            run_id,
            number,
            AttemptState.FAILED,
            source="test",
            failure="crash",
            signature="rank killed by SIGKILL",
        )
    assert quiet_lab.state(run_id) == "failed"
    actions.retry(quiet_lab.context, [run_id], clean=False)
    assert quiet_lab.state(run_id) == "pending"
    quiet_lab.tick()
    quiet_lab.context.ledger.transition(
        run_id,
        3,
        AttemptState.FAILED,
        source="test",
        failure="crash",
        signature="rank killed by SIGKILL",
    )
    assert quiet_lab.state(run_id) == "pending", "one of two new tries is left"


def test_a_failed_parent_blocks_its_child_until_the_parent_is_tried_again(quiet_lab: Lab) -> None:
    stages = """\
stages:
  - {name: pretrain, heads: [relvit]}
  - {name: finetune, heads: [supervised], init_from: pretrain}
"""
    text = tiny_grid(seeds="1", extra=f"retries: 1\n{stages}").replace(
        "heads: [supervised]\n", "", 1
    )
    parent, child = quiet_lab.submit(text)
    quiet_lab.tick()
    quiet_lab.context.ledger.transition(
        parent, 1, AttemptState.FAILED, source="test", failure="crash", signature="x"
    )
    assert quiet_lab.states() == {parent: "failed", child: "blocked"}
    assert "parent" in actions.retry(quiet_lab.context, [child], clean=False).passed_over[child]
    actions.retry(quiet_lab.context, [parent], clean=False)
    assert quiet_lab.states() == {parent: "pending", child: "pending"}


def test_holding_and_releasing_leave_no_trace_and_other_runs_stay_held(quiet_lab: Lab) -> None:
    runs = quiet_lab.submit(tiny_grid(seeds="3"))
    (grid_id,) = (path.name for path in quiet_lab.context.workspace.grids.iterdir())
    actions.hold(quiet_lab.context, runs[:2])
    actions.release(quiet_lab.context, runs[:1])
    assert held_runs(quiet_lab.context.workspace, {grid_id}) == {runs[1]}
    actions.release(quiet_lab.context, runs)
    assert not quiet_lab.context.workspace.marker(grid_id, "hold").exists()


def test_an_unknown_run_is_an_error_and_nothing_is_done_to_the_others(
    quiet_lab: Lab, runs: list[str]
) -> None:
    with pytest.raises(VtjobsError, match="no run ffff"):
        actions.cancel(quiet_lab.context, [runs[0], "ffff"])
    assert quiet_lab.run(runs[0]).highest_cancel() == 0


def test_a_cancel_and_a_granted_try_survive_the_loss_of_the_ledger(
    quiet_lab: Lab, runs: list[str]
) -> None:
    actions.cancel(quiet_lab.context, runs)
    quiet_lab.tick()
    actions.retry(quiet_lab.context, runs[:1], clean=True)
    quiet_lab.lose_ledger()
    quiet_lab.tick()
    assert quiet_lab.states() == {runs[0]: "queued", runs[1]: "cancelled", runs[2]: "cancelled"}
    assert task_of(quiet_lab, runs[0]) == {"attempt": 3, "clean": True}


def test_a_held_run_stays_held_when_another_grid_takes_it_over_until_it_is_released(
    quiet_lab: Lab,
) -> None:
    first = quiet_lab.submit(tiny_grid(name="one", seeds="2"))
    actions.hold(quiet_lab.context, first[:1])
    both = quiet_lab.submit(tiny_grid(name="two", seeds="2", extra="retries: 2"))
    assert both == first
    quiet_lab.tick()
    assert quiet_lab.state(first[0]) == "pending" and quiet_lab.state(first[1]) == "queued"
    actions.release(quiet_lab.context, first[:1])
    quiet_lab.submit(tiny_grid(name="one", seeds="2"))
    quiet_lab.tick()
    assert quiet_lab.state(first[0]) == "queued"
