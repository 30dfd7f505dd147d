"""What a run's state follows from."""

import itertools

import pytest

from vtjobs.db import models as m
from vtjobs.db.machine import AttemptView, RunView, derive
from vtjobs.jobs.run.retry import STALLED_LIMIT
from vtjobs.jobs.run.states import LIVE, AttemptState, FailureClass, RunState

from ..support.ledgers import World, paper_grid

A, F, R = AttemptState, FailureClass, RunState


def tried(*ends: tuple[AttemptState, FailureClass | None]) -> list[AttemptView]:
    return [
        AttemptView(
            number=number,
            state=state,
            failure=failure,
            signature=f"end {number}",
            ended_at=float(number),
        )
        for number, (state, failure) in enumerate(ends, 1)
    ]


CRASH = (A.FAILED, F.CRASH)
LOST = (A.LOST, F.AGENT_DIED)
DONE = (A.COMPLETED, None)


def state_of(*ends: tuple[AttemptState, FailureClass | None], **run: object) -> RunState:
    return derive(RunView(**{"tries": 3, **run}), tried(*ends)).state  # type: ignore[arg-type]


def test_a_run_that_was_never_tried_is_pending() -> None:
    assert state_of() is R.PENDING


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (A.SUBMITTING, R.QUEUED),
        (A.QUEUED, R.QUEUED),
        (A.STARTING, R.RUNNING),
        (A.RUNNING, R.RUNNING),
    ],
)
def test_a_live_attempt_decides_whatever_came_before_it(
    state: AttemptState, expected: RunState
) -> None:
    assert {state} <= LIVE
    assert state_of((state, None)) is expected
    assert state_of(CRASH, CRASH, CRASH, (state, None), cancelled_through=9) is expected


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ([DONE], R.COMPLETED),
        ([CRASH], R.PENDING),
        ([CRASH, CRASH], R.PENDING),
        ([CRASH, CRASH, CRASH], R.FAILED),
        ([CRASH, LOST, CRASH, DONE], R.COMPLETED),
        ([(A.FAILED, F.DIVERGED)], R.DIVERGED),
        ([(A.FAILED, F.SETUP_ERROR)], R.FAILED),
        ([(A.FAILED, F.REFUSED)], R.FAILED),
        ([(A.CANCELLED, F.CANCELLED)], R.CANCELLED),
        ([(A.PREEMPTED, F.STOPPED), (A.TIMEOUT, F.WALLTIME)], R.PENDING),
        ([LOST] * STALLED_LIMIT, R.FAILED),
        ([(A.SUPERSEDED, F.SKIPPED)] * 9, R.PENDING),
        ([(A.LOST, F.NOT_SUBMITTED)] * 9, R.PENDING),
    ],
)
def test_an_ended_run_is_judged_by_its_ends(
    ends: list[tuple[AttemptState, FailureClass | None]], expected: RunState
) -> None:
    assert state_of(*ends) is expected


def test_a_cancel_covers_the_attempt_that_would_come_next() -> None:
    assert state_of(cancelled_through=1) is R.CANCELLED
    assert state_of(CRASH, cancelled_through=2) is R.CANCELLED
    assert state_of(CRASH, cancelled_through=1) is R.CANCELLED, (
        "it was handed on before the cancel was known"
    )
    assert state_of(CRASH, CRASH, cancelled_through=1) is R.PENDING
    assert state_of(DONE, cancelled_through=2) is R.COMPLETED, "a cancel takes no result away"


def test_a_granted_try_forgets_ends_and_cancels_up_to_it() -> None:
    assert state_of(CRASH, CRASH, CRASH, tries_from=3) is R.PENDING
    assert state_of(CRASH, CRASH, CRASH, CRASH, tries_from=3) is R.PENDING
    assert state_of(*[CRASH] * 6, tries_from=3) is R.FAILED
    assert state_of(DONE, tries_from=1) is R.PENDING
    assert state_of((A.CANCELLED, F.CANCELLED), cancelled_through=2, tries_from=2) is R.PENDING
    assert state_of((A.CANCELLED, F.CANCELLED), cancelled_through=3, tries_from=2) is R.CANCELLED


@pytest.mark.parametrize("parent", RunState)
def test_a_pending_child_is_blocked_exactly_while_its_parent_is_settled_without_weights(
    parent: RunState,
) -> None:
    expected = R.BLOCKED if parent in (R.FAILED, R.DIVERGED, R.CANCELLED, R.BLOCKED) else R.PENDING
    assert state_of(parent=parent) is expected
    assert state_of(DONE, parent=parent) is R.COMPLETED
    assert state_of(CRASH, CRASH, CRASH, parent=parent) is R.FAILED


def test_no_history_leaves_a_run_neither_settled_nor_pending_nor_live() -> None:
    ends = [
        CRASH,
        LOST,
        DONE,
        (A.CANCELLED, F.CANCELLED),
        (A.FAILED, F.STORAGE),
        (A.FAILED, F.DATA),
    ]
    for length in range(4):
        for history in itertools.product(ends, repeat=length):
            state = state_of(*history)
            assert state is R.PENDING or state.is_terminal
            if DONE in history:
                assert state is R.COMPLETED


def end(world: World, run_id: str, state: str, failure: str | None) -> None:
    world.launch(run_id)
    number = world.attempts(run_id)[-1]["number"]
    assert world.ledger.transition(
        run_id, number, AttemptState(state), source="journal", failure=failure
    )


def test_children_follow_their_parents_through_failure_and_retry(world: World) -> None:
    first, second, third = world.submit(paper_grid(stages=("a", "b", "c"), retries=1))
    end(world, first, "failed", "crash")
    assert world.states() == {first: "failed", second: "blocked", third: "blocked"}
    reasons = {row["run_id"]: row["reason"] for row in world.rows(m.runs)}
    assert (
        reasons[second] == "its parent stage is failed"
        and reasons[third] == "its parent stage is blocked"
    )
    world.grant(first)
    assert set(world.states().values()) == {"pending"}
    end(world, first, "completed", None)
    end(world, second, "completed", None)
    world.cancel(third)
    assert world.states() == {first: "completed", second: "completed", third: "cancelled"}


def test_cancelling_a_parent_blocks_its_children_and_a_retry_frees_them(world: World) -> None:
    first, second = world.submit(paper_grid(stages=("a", "b")))
    world.cancel(first)
    assert world.states() == {first: "cancelled", second: "blocked"}
    world.grant(first)
    assert world.states() == {first: "pending", second: "pending"}
    assert world.launch(first)


def test_a_retry_after_a_cancel_of_a_running_run_starts_behind_the_cancel(world: World) -> None:
    (run_id,) = world.submit(paper_grid())
    world.launch(run_id)
    world.cancel(run_id)
    assert world.states() == {run_id: "queued"}, "until its agent or scheduler says that it is gone"
    world.ledger.transition(run_id, 1, AttemptState.CANCELLED, source="local", failure="cancelled")
    assert world.states() == {run_id: "cancelled"} and world.launch(run_id) is None
    world.grant(run_id)
    assert world.launch(run_id)
    assert [row["number"] for row in world.attempts(run_id)] == [1, 3]


def test_a_higher_limit_of_tries_revives_a_failed_run(world: World) -> None:
    (run_id,) = world.submit(paper_grid(retries=1))
    end(world, run_id, "failed", "crash")
    assert world.states() == {run_id: "failed"}
    world.submit(paper_grid(retries=2, at=2000.0))
    assert world.states() == {run_id: "pending"}
