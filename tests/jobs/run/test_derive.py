"""What a run's state follows from."""

import itertools

import pytest

from vtjobs.jobs.run.derive import AttemptView, RunView, derive
from vtjobs.jobs.run.retry import STALLED_LIMIT
from vtjobs.jobs.run.states import LIVE, AttemptState, FailureClass, RunState

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


@pytest.mark.paper("OR-03")
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
