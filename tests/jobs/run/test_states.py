"""The one table of transitions, and the words around it."""

import itertools

import pytest

from vtjobs.jobs.run.states import (
    CLASS_OF_EXIT,
    EXIT_OF_CLASS,
    LIVE,
    TERMINAL,
    TRANSITIONS,
    AttemptState,
    ExitCode,
    FailureClass,
    RunState,
)


def reachable(state: AttemptState) -> set[AttemptState]:
    found: set[AttemptState] = set()
    waiting = [state]
    while waiting:
        for after in TRANSITIONS[waiting.pop()] - found:
            found.add(after)
            waiting.append(after)
    return found


def test_every_state_is_live_or_an_end() -> None:
    assert LIVE | TERMINAL == set(AttemptState)
    assert not LIVE & TERMINAL
    assert all(state.is_terminal == (state in TERMINAL) for state in AttemptState)
    assert set(TRANSITIONS) == set(AttemptState)


def test_an_end_is_final() -> None:
    assert all(not TRANSITIONS[state] for state in TERMINAL)


def test_every_end_can_be_reached_from_every_live_state_in_one_step() -> None:
    # A journal may be read late, or a scheduler be asked only after the end.
    for live, end in itertools.product(LIVE, TERMINAL):
        assert end in TRANSITIONS[live]


def test_an_attempt_only_moves_forward() -> None:
    for state in AttemptState:
        assert state not in reachable(state)


def test_every_state_but_the_first_can_be_reached() -> None:
    assert reachable(AttemptState.SUBMITTING) == set(AttemptState) - {AttemptState.SUBMITTING}


def test_exit_codes_survive_accounting_and_are_told_apart() -> None:
    assert all(0 <= code < 128 for code in ExitCode)
    assert {int(code) for code in ExitCode} == {0, *range(70, 81)}
    assert all(EXIT_OF_CLASS[failure] == code for code, failure in CLASS_OF_EXIT.items())
    assert set(CLASS_OF_EXIT) == set(ExitCode) - {ExitCode.COMPLETED}


def test_no_failure_ends_as_if_all_were_well() -> None:
    assert ExitCode.COMPLETED not in EXIT_OF_CLASS.values()


@pytest.mark.parametrize("state", RunState)
def test_a_run_that_is_over_is_settled(state: RunState) -> None:
    assert state.is_settled or not state.is_terminal
    assert state.is_settled == (
        state in ("completed", "diverged", "failed", "cancelled", "blocked")
    )


def test_words_are_stored_as_themselves() -> None:
    for word in (*AttemptState, *RunState, *FailureClass):
        assert word == word.value == word.name.lower()
