"""What the ledger believes against what the scheduler says."""

from itertools import product

import pytest

from vtjobs.jobs.run.states import LIVE, AttemptState, FailureClass
from vtjobs.jobs.values import changed
from vtjobs.jobs.workspace.journal import LEASE_S
from vtjobs.orchestrator.backends.base import UNSETTLED_S, JobState, JobView
from vtjobs.orchestrator.loop.reconcile import NO_RESULT_S, Action, Decision, LiveAttempt, decide

NOW = 1000.0


def decision(
    state: AttemptState,
    job: JobState,
    *,
    accepted: bool = True,
    launching_until: float = 0.0,
    cancelled: bool = False,
) -> Action:
    attempt = LiveAttempt(
        state=state, accepted=accepted, launching_until=launching_until, is_cancelled=cancelled
    )
    return decide(attempt, JobView(state=job), now=NOW)


@pytest.mark.parametrize("state", sorted(LIVE))
@pytest.mark.parametrize("job", [JobState.QUEUED, JobState.RUNNING])
def test_what_the_scheduler_still_has_is_left_alone(state: AttemptState, job: JobState) -> None:
    assert decision(state, job).decision is Decision.NOTHING


@pytest.mark.parametrize("job", [JobState.QUEUED, JobState.RUNNING])
def test_a_lost_reply_is_made_up_for_when_the_scheduler_has_the_job(job: JobState) -> None:
    assert decision(AttemptState.SUBMITTING, job, accepted=False).decision is Decision.ACCEPTED


def test_a_submission_that_never_arrived_is_repeated_only_once_its_submitter_had_time() -> None:
    early = decision(
        AttemptState.SUBMITTING, JobState.ABSENT, accepted=False, launching_until=NOW + 1
    )
    late = decision(
        AttemptState.SUBMITTING, JobState.ABSENT, accepted=False, launching_until=NOW - 1
    )
    assert (early.decision, late.decision) == (Decision.NOTHING, Decision.RESUBMIT)


@pytest.mark.parametrize("job", [JobState.ENDED, JobState.ABSENT])
def test_an_allocation_that_is_gone_ends_its_attempts_and_says_whether_they_had_started(
    job: JobState,
) -> None:
    running = decision(AttemptState.RUNNING, job)
    queued = decision(AttemptState.QUEUED, job)
    assert (running.state, running.failure) == (AttemptState.LOST, FailureClass.AGENT_DIED)
    assert (queued.state, queued.failure) == (AttemptState.LOST, FailureClass.NOT_SUBMITTED)


def test_what_was_cancelled_and_is_gone_ends_as_cancelled_and_not_as_lost() -> None:
    assert (
        decision(AttemptState.RUNNING, JobState.ENDED, cancelled=True).state
        is AttemptState.CANCELLED
    )


def test_a_job_that_ended_is_never_submitted_again_even_where_its_acceptance_was_not_recorded() -> (
    None
):
    assert (
        decision(AttemptState.SUBMITTING, JobState.ENDED, accepted=False).decision is Decision.END
    )


def test_only_an_unrecorded_and_absent_submission_is_ever_repeated() -> None:
    for state, job, accepted, cancelled in product(
        sorted(LIVE), JobState, (True, False), (True, False)
    ):
        found = decision(state, job, accepted=accepted, cancelled=cancelled)
        assert (found.decision is Decision.RESUBMIT) == (
            job is JobState.ABSENT and not accepted and not cancelled
        )
        assert (found.state is not None) == (found.decision is Decision.END)


# Schedulers that say how a job ended --------------------------------------------------------------


def ended(
    end: AttemptState | None,
    failure: FailureClass | None,
    *,
    at: float | None = None,
    raw: str = "",
) -> JobView:
    return JobView(state=JobState.ENDED, end=end, failure=failure, ended_at=at, raw=raw)


def judged(
    state: AttemptState,
    view: JobView,
    *,
    heartbeat_at: float | None = None,
    cancelled: bool = False,
) -> Action:
    attempt = LiveAttempt(
        state=state,
        accepted=True,
        launching_until=0.0,
        is_cancelled=cancelled,
        heartbeat_at=heartbeat_at,
    )
    return decide(attempt, view, now=NOW)


COMPLETED = (AttemptState.FAILED, FailureClass.NO_RESULT)
CANCELLED = (AttemptState.CANCELLED, FailureClass.CANCELLED)


def test_a_job_that_completed_without_an_end_record_gets_time_until_its_record_is_seen() -> None:
    early = judged(AttemptState.RUNNING, ended(*COMPLETED, at=NOW - NO_RESULT_S + 1))
    late = judged(AttemptState.RUNNING, ended(*COMPLETED, at=NOW - NO_RESULT_S))
    assert early.decision is Decision.NOTHING
    assert (late.state, late.failure) == COMPLETED
    assert late.signature == "the scheduler reports completion, but there is no end record"


def test_a_job_that_completed_before_its_run_started_says_nothing_about_the_run() -> None:
    early = judged(AttemptState.QUEUED, ended(*COMPLETED, at=NOW - 1))
    late = judged(AttemptState.QUEUED, ended(*COMPLETED, at=NOW - NO_RESULT_S))
    assert early.decision is Decision.NOTHING, "its start may not be seen yet either"
    assert (late.state, late.failure) == (AttemptState.LOST, FailureClass.NOT_SUBMITTED)


@pytest.mark.parametrize("cancelled", [True, False])
def test_a_cancelled_job_whose_processes_still_show_signs_of_life_has_not_ended(
    cancelled: bool,
) -> None:
    fresh = judged(
        AttemptState.RUNNING, ended(*CANCELLED), heartbeat_at=NOW - LEASE_S + 1, cancelled=cancelled
    )
    stale = judged(
        AttemptState.RUNNING, ended(*CANCELLED), heartbeat_at=NOW - LEASE_S, cancelled=cancelled
    )
    silent = judged(AttemptState.RUNNING, ended(*CANCELLED), cancelled=cancelled)
    assert fresh.decision is Decision.NOTHING
    assert (stale.state, stale.failure) == (silent.state, silent.failure) == CANCELLED


def test_a_job_that_was_cancelled_before_it_started_has_ended_at_once() -> None:
    assert judged(AttemptState.QUEUED, ended(*CANCELLED)).state is AttemptState.CANCELLED


def test_a_cancel_says_whose_it_was() -> None:
    ours = judged(AttemptState.QUEUED, ended(*CANCELLED), cancelled=True)
    theirs = judged(AttemptState.QUEUED, ended(*CANCELLED))
    assert (ours.signature, theirs.signature) == ("cancelled", "cancelled in the scheduler")


@pytest.mark.parametrize("state", sorted(LIVE))
@pytest.mark.parametrize("job", [JobState.QUEUED, JobState.RUNNING])
def test_a_cancel_that_has_not_reached_the_scheduler_is_sent_again(
    state: AttemptState, job: JobState
) -> None:
    assert decision(state, job, cancelled=True).decision is Decision.CANCEL


def test_a_cancelled_submission_that_is_found_is_first_written_down() -> None:
    found = decision(AttemptState.SUBMITTING, JobState.QUEUED, accepted=False, cancelled=True)
    assert found.decision is Decision.ACCEPTED


@pytest.mark.parametrize(
    ("end", "failure"),
    [
        (None, None),
        (AttemptState.FAILED, FailureClass.CRASH),
        (AttemptState.LOST, FailureClass.AGENT_DIED),
    ],
)
def test_whatever_ended_a_job_before_its_run_started_the_run_is_not_to_blame(
    end: AttemptState | None, failure: FailureClass | None
) -> None:
    found = judged(AttemptState.QUEUED, ended(end, failure, raw="FAILED NonZeroExitCode exit 71:0"))
    assert (found.state, found.failure) == (AttemptState.LOST, FailureClass.NOT_SUBMITTED)
    assert (
        found.signature
        == "the allocation ended before the run started (FAILED NonZeroExitCode exit 71:0)"
    )


@pytest.mark.parametrize(
    ("end", "failure"),
    [
        (AttemptState.NODE_FAIL, FailureClass.HARDWARE),
        (AttemptState.OUT_OF_MEMORY, FailureClass.OUT_OF_MEMORY),
        (AttemptState.TIMEOUT, FailureClass.WALLTIME),
        (AttemptState.PREEMPTED, FailureClass.STOPPED),
    ],
)
@pytest.mark.parametrize("state", [AttemptState.QUEUED, AttemptState.RUNNING])
def test_an_end_that_the_scheduler_explains_is_taken_over(
    state: AttemptState, end: AttemptState, failure: FailureClass
) -> None:
    found = judged(state, ended(end, failure), heartbeat_at=NOW)
    assert (found.state, found.failure, found.signature) == (
        end,
        failure,
        f"{end} in the scheduler",
    )


def test_an_agent_that_died_is_told_with_the_schedulers_word() -> None:
    found = judged(
        AttemptState.RUNNING,
        ended(AttemptState.LOST, FailureClass.AGENT_DIED, raw="FAILED exit 9:0"),
    )
    assert (found.state, found.signature) == (
        AttemptState.LOST, "the agent died without an end record (FAILED exit 9:0)",
    )  # fmt: skip


def test_a_submission_that_never_arrived_and_was_cancelled_meanwhile_is_not_repeated() -> None:
    found = decision(AttemptState.SUBMITTING, JobState.ABSENT, accepted=False, cancelled=True)
    assert (found.decision, found.state) == (Decision.END, AttemptState.CANCELLED)


@pytest.mark.parametrize("state", [AttemptState.QUEUED, AttemptState.RUNNING])
def test_what_both_queries_lack_is_not_judged_while_news_is_under_way_but_for_an_hour_at_most(
    state: AttemptState,
) -> None:
    view = changed(ended(AttemptState.LOST, FailureClass.AGENT_DIED), is_settled=False)
    late = NOW - UNSETTLED_S - 1
    assert judged(state, view, heartbeat_at=NOW - 900).decision is Decision.NOTHING
    assert judged(state, view, heartbeat_at=late).decision is Decision.END
    settled = changed(view, is_settled=True)
    assert judged(state, settled, heartbeat_at=NOW - 900).decision is Decision.END


def test_a_waiting_job_is_not_judged_either_for_an_hour_after_its_submission() -> None:
    view = changed(ended(AttemptState.LOST, FailureClass.NOT_SUBMITTED), is_settled=False)
    # Once a submission is accepted nothing is launching any more, and a waiting job has no
    # heartbeat.
    queued = LiveAttempt(
        state=AttemptState.QUEUED, accepted=True, launching_until=0.0, submitted_at=NOW - 900
    )
    assert decide(queued, view, now=NOW).decision is Decision.NOTHING
    assert decide(queued, view, now=NOW + UNSETTLED_S).decision is Decision.END
    assert decide(queued, changed(view, is_settled=True), now=NOW).decision is Decision.END


def test_a_submission_that_nobody_has_heard_of_is_not_repeated_while_news_is_under_way() -> None:
    absent = JobView(state=JobState.ABSENT, is_settled=False)
    attempt = LiveAttempt(state=AttemptState.SUBMITTING, accepted=False, launching_until=NOW - 60)
    assert decide(attempt, absent, now=NOW).decision is Decision.NOTHING
    assert decide(attempt, changed(absent, is_settled=True), now=NOW).decision is Decision.RESUBMIT
    assert decide(attempt, absent, now=NOW + UNSETTLED_S).decision is Decision.RESUBMIT


def test_what_a_scheduler_has_forgotten_is_given_up_when_its_lease_is_over() -> None:
    view = changed(
        ended(AttemptState.LOST, FailureClass.AGENT_DIED), is_settled=False, patience_s=LEASE_S
    )
    assert (
        judged(AttemptState.RUNNING, view, heartbeat_at=NOW - LEASE_S + 1).decision
        is Decision.NOTHING
    )
    assert (
        judged(AttemptState.RUNNING, view, heartbeat_at=NOW - LEASE_S - 1).decision is Decision.END
    )


def test_a_job_that_waited_too_long_for_its_scheduler_costs_nothing() -> None:
    view = ended(AttemptState.SUPERSEDED, FailureClass.SKIPPED)
    found = judged(AttemptState.QUEUED, view)
    assert (found.decision, found.state, found.failure) == (Decision.END, "superseded", "skipped")
