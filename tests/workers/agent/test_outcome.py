"""How an attempt's end is judged from its ranks' exits alone."""

import os
import signal

import pytest

from vtjobs.jobs.config.node import UNEXPLAINED
from vtjobs.jobs.run.states import AttemptState, FailureClass
from vtjobs.workers.agent.outcome import KillCause, Killed, Outcome, judge_ranks
from vtjobs.workers.agent.rank_process import RankProcess


def ended(rank: int, status: int) -> RankProcess:
    return RankProcess(rank, str(rank), os.O_RDONLY, os.O_RDONLY, os.O_RDONLY, pid=1, status=status)


def test_a_bus_error_hints_at_shared_memory() -> None:
    outcome = judge_ranks([ended(0, -signal.SIGBUS)], [], stopping=None, killed=None)
    assert (outcome.state, outcome.failure) == (AttemptState.FAILED, FailureClass.CRASH)
    assert "SIGBUS" in outcome.signature and "/dev/shm" in outcome.signature


def test_an_attempt_without_a_single_rank_has_not_completed() -> None:
    outcome = judge_ranks(
        [], [], stopping=None, killed=Killed(KillCause.TEMPLATE, "fork server died")
    )
    assert (outcome.state, outcome.failure) == (AttemptState.FAILED, FailureClass.CRASH)


@pytest.mark.parametrize("stopping", [AttemptState.CANCELLED, AttemptState.SUPERSEDED])
def test_a_cancel_or_a_higher_attempt_outranks_a_success_that_came_too_late(
    stopping: AttemptState,
) -> None:
    assert judge_ranks([ended(0, 0)], [], stopping=stopping, killed=None).state is stopping


def test_a_failure_of_its_own_needs_no_explanation_by_the_scheduler() -> None:
    failed = Outcome(state=AttemptState.FAILED, failure=FailureClass.DATA, signature="no such file")
    assert failed.as_ruled(UNEXPLAINED) == failed
    stopped = Outcome(
        state=AttemptState.PREEMPTED, failure=FailureClass.STOPPED, signature="stopped and saved"
    )
    assert stopped.as_ruled(UNEXPLAINED).explained is False
