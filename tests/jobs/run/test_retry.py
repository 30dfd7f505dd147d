"""Who gets another try."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtjobs.jobs.run.retry import (
    NEVER_STARTED_LIMIT,
    STALLED_LIMIT,
    STORAGE_BACKOFF_S,
    Ended,
    Verdict,
    judge,
)
from vtjobs.jobs.run.states import TERMINAL, AttemptState, FailureClass, RunState

F, S = FailureClass, AttemptState
INFRASTRUCTURE = [state for state in TERMINAL if state.is_infrastructure]
COUNTED = [
    F.USER_ERROR, F.SETUP_ERROR, F.DATA, F.DATA_MISSING, F.STORAGE, F.COMMUNICATION, F.HARDWARE, F.CRASH, F.HANG, F.NO_CHECKPOINT,
    F.NO_RESULT, F.AGENT_DIED,
]  # fmt: skip


def failed(failure: FailureClass, signature: str = "", *, steps: int = 0) -> Ended:
    state = S.OUT_OF_MEMORY if failure is F.OUT_OF_MEMORY else S.FAILED
    return Ended(
        state=state, failure=failure, signature=signature or failure, checkpoint_step=steps
    )


def taken(state: AttemptState = S.PREEMPTED, *, start: int = 0, saved: int | None = None) -> Ended:
    """An end that says nothing about the run, with or without a new checkpoint."""
    return Ended(
        state=state,
        failure=F.STOPPED,
        started_step=start,
        checkpoint_step=start if saved is None else saved,
    )


def tries_until_given_up(failure: FailureClass, *, tries: int, may_halve: bool = False) -> int:
    history: list[Ended] = []
    while judge(history, tries=tries, may_halve=may_halve).state is RunState.PENDING:
        history.append(failed(failure))
        assert len(history) < 50
    return len(history)


def test_a_run_that_never_ran_is_pending() -> None:
    assert judge([], tries=3) == Verdict(state=RunState.PENDING)


@pytest.mark.parametrize(
    ("failure", "tries"),
    [
        (F.SETUP_ERROR, 1),  # an import error does not go away
        (F.NO_CHECKPOINT, 1),  # nor does a checkpoint come back
        (F.USER_ERROR, 2),  # the same traceback twice is a bug
        (F.DATA, 1),  # a damaged image stays damaged
        (F.DATA_MISSING, 2),  # a file system that was away comes back
        (F.NO_RESULT, 2),
        (F.OUT_OF_MEMORY, 1),
        (F.COMMUNICATION, 5),
        (F.HARDWARE, 5),
        (F.CRASH, 5),
        (F.HANG, 5),
        (F.STORAGE, 5),
    ],
)
def test_each_kind_of_failure_gets_its_tries_out_of_five(failure: FailureClass, tries: int) -> None:
    assert tries_until_given_up(failure, tries=5) == tries


def test_out_of_memory_is_tried_once_more_with_half_the_micro_batch_where_the_grid_allows_it() -> (
    None
):
    first = judge([failed(F.OUT_OF_MEMORY)], tries=5, may_halve=True)
    assert first == Verdict(state=RunState.PENDING, halve_micro_batch=True)
    assert tries_until_given_up(F.OUT_OF_MEMORY, tries=5, may_halve=True) == 2


def test_user_errors_that_differ_are_no_proof_of_a_bug() -> None:
    history = [failed(F.USER_ERROR, "KeyError: a"), failed(F.USER_ERROR, "KeyError: b")]
    assert judge(history, tries=5).state is RunState.PENDING
    assert judge([*history, failed(F.USER_ERROR, "KeyError: b")], tries=5).state is RunState.FAILED


def test_storage_is_waited_for_longer_each_time() -> None:
    waits = [judge([failed(F.STORAGE)] * count, tries=9).wait_s for count in range(1, 6)]
    assert waits == [*STORAGE_BACKOFF_S, STORAGE_BACKOFF_S[-1], STORAGE_BACKOFF_S[-1]]
    assert judge([failed(F.COMMUNICATION)], tries=9).wait_s == 0


@pytest.mark.parametrize(
    ("last", "state"),
    [
        (Ended(state=S.COMPLETED, failure=None), RunState.COMPLETED),
        (Ended(state=S.CANCELLED, failure=F.CANCELLED), RunState.CANCELLED),
        (failed(F.DIVERGED), RunState.DIVERGED),
        (failed(F.REFUSED), RunState.FAILED),
    ],
)
def test_an_outcome_is_final_whatever_went_before(last: Ended, state: RunState) -> None:
    for before in ([], [failed(F.CRASH)], [taken()] * 2):
        assert judge([*before, last], tries=100).state is state


@given(st.lists(st.sampled_from(INFRASTRUCTURE), max_size=30))
def test_an_infrastructure_end_that_left_a_checkpoint_costs_no_try(
    states: list[AttemptState],
) -> None:
    history = [taken(state, start=step, saved=step + 1) for step, state in enumerate(states)]
    assert judge(history, tries=1).state is RunState.PENDING
    assert judge([*history, failed(F.COMMUNICATION)], tries=2).state is RunState.PENDING


def test_three_in_a_row_without_a_new_checkpoint_stop_the_run() -> None:
    assert STALLED_LIMIT == 3
    assert judge([taken()] * 2, tries=3).state is RunState.PENDING
    verdict = judge([taken()] * 3, tries=3)
    assert verdict.state is RunState.FAILED
    assert verdict.reason == "3 attempts in a row brought no new checkpoint"


def test_a_checkpoint_in_between_begins_the_count_anew() -> None:
    history = [taken(), taken(), taken(saved=10), taken(start=10), taken(start=10)]
    assert judge(history, tries=3).state is RunState.PENDING
    assert judge([*history, taken(start=10)], tries=3).state is RunState.FAILED


@pytest.mark.parametrize("failure", [F.SKIPPED, F.NOT_SUBMITTED, F.SUPERSEDED])
def test_what_never_started_is_no_stall(failure: FailureClass) -> None:
    never = Ended(state=S.SUPERSEDED if failure is not F.NOT_SUBMITTED else S.LOST, failure=failure)
    assert judge([never] * (NEVER_STARTED_LIMIT - 1), tries=1).state is RunState.PENDING
    # Nor does it hide one.
    assert judge([taken(), never, taken(), never, taken()], tries=1).state is RunState.FAILED


def test_an_agent_that_can_never_start_is_waited_for_and_then_given_up() -> None:
    never = Ended(state=S.LOST, failure=F.NOT_SUBMITTED)
    waits = [judge([never] * count, tries=1).wait_s for count in range(1, NEVER_STARTED_LIMIT)]
    assert waits == [0, 2, 4, 8, 16, 32, 60, 60, 60]
    verdict = judge([never] * NEVER_STARTED_LIMIT, tries=1)
    assert (verdict.state, verdict.reason) == (
        RunState.FAILED,
        "10 allocations in a row ended before the run started",
    )
    assert judge([never] * 9 + [taken(saved=1)] + [never] * 9, tries=1).state is RunState.PENDING


ENDED = st.builds(
    Ended,
    state=st.sampled_from(sorted(TERMINAL)),
    failure=st.none() | st.sampled_from(list(F)),
    signature=st.sampled_from(["", "a", "b"]),
    started_step=st.just(0),
    checkpoint_step=st.integers(0, 1),
)


@given(st.lists(ENDED, max_size=8), st.integers(0, 5), st.booleans())
def test_no_run_is_tried_more_often_than_allowed(
    history: list[Ended], tries: int, may_halve: bool
) -> None:
    verdict = judge(history, tries=tries, may_halve=may_halve)
    counted = [ended for ended in history if not ended.state.is_infrastructure]
    if history and verdict.state is RunState.PENDING and history[-1] in counted:
        assert len(counted) < tries


@given(st.lists(ENDED, max_size=8), st.integers(0, 5), st.booleans())
def test_a_verdict_says_why_and_waits_only_where_something_may_come(
    history: list[Ended], tries: int, may_halve: bool
) -> None:
    verdict = judge(history, tries=tries, may_halve=may_halve)
    assert verdict == judge(tuple(history), tries=tries, may_halve=may_halve)
    assert verdict.state in (
        RunState.PENDING,
        RunState.COMPLETED,
        RunState.FAILED,
        RunState.CANCELLED,
        RunState.DIVERGED,
    )
    if verdict.wait_s or verdict.halve_micro_batch:
        assert verdict.state is RunState.PENDING
    if verdict.halve_micro_batch:
        assert may_halve and history[-1].failure is F.OUT_OF_MEMORY


@given(
    st.lists(ENDED.filter(lambda ended: ended.state is not S.COMPLETED), max_size=6),
    st.integers(0, 3),
)
def test_a_completion_is_a_completion(history: list[Ended], tries: int) -> None:
    assert (
        judge([*history, Ended(state=S.COMPLETED, failure=None)], tries=tries).state
        is RunState.COMPLETED
    )


@pytest.mark.parametrize("failure", COUNTED)
def test_without_tries_the_first_failure_is_the_last(failure: FailureClass) -> None:
    for tries in (0, 1):
        assert tries_until_given_up(failure, tries=tries) == 1


def test_more_tries_never_turn_a_try_into_a_refusal() -> None:
    kinds = [failed(F.STORAGE), failed(F.USER_ERROR), failed(F.CRASH), taken(), taken(saved=1)]
    for history in itertools.product(kinds, repeat=3):
        allowed = [judge(history, tries=tries).state is RunState.PENDING for tries in range(6)]
        assert allowed == sorted(allowed)
