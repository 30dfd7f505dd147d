"""When nothing more comes from a run's attempt."""

import pytest

from vtjobs.jobs.run.states import AttemptState, RunState
from vtjobs.orchestrator.requests import actions
from vtjobs.orchestrator.views.standing import Standing, standings

from ...support.grids import tiny_grid
from ...support.lab import Lab


@pytest.mark.parametrize(
    ("state", "attempts", "number", "is_over"),
    [
        (RunState.RUNNING, {1: AttemptState.RUNNING}, 1, False),
        (RunState.PENDING, {1: AttemptState.FAILED}, 1, True),
        (RunState.RUNNING, {1: AttemptState.RUNNING}, 2, False),
        (RunState.COMPLETED, {1: AttemptState.COMPLETED}, 2, True),
        # Its number was spent without a submission.
        (RunState.RUNNING, {3: AttemptState.RUNNING}, 2, True),
        (RunState.BLOCKED, {}, 1, True),
    ],
)
def test_an_attempt_is_over_if_it_ended_or_can_no_longer_come(
    state: RunState, attempts: dict[int, AttemptState], number: int, is_over: bool
) -> None:
    found = Standing(state=state, is_held=False, attempts=attempts)
    assert found.is_over(number) is is_over


def test_a_run_stands_where_ledger_and_markers_have_it(quiet_lab: Lab) -> None:
    (run_id,) = quiet_lab.submit(tiny_grid(seeds="1"))
    fresh = standings(quiet_lab.context, [run_id])[run_id]
    assert (fresh.state, fresh.is_held, fresh.attempts) == (RunState.PENDING, False, {})
    actions.hold(quiet_lab.context, [run_id])
    assert standings(quiet_lab.context, [run_id])[run_id].is_held
    actions.release(quiet_lab.context, [run_id])
    quiet_lab.tick()
    queued = standings(quiet_lab.context, [run_id])[run_id]
    assert (queued.waits, queued.attempts) == (True, {1: AttemptState.QUEUED})
