"""Why a run is where it is."""

from typing import Any

import pytest

from vtjobs.db import scheduler_notes
from vtjobs.jobs.atomic_files import to_json, write_over
from vtjobs.jobs.errors import SchedulerSlow, SchedulerUnreachable
from vtjobs.jobs.run.states import AttemptState
from vtjobs.orchestrator.backends.base import Submission, SubmitOutcome, Waiting
from vtjobs.orchestrator.backends.slurm.pending import explain
from vtjobs.orchestrator.requests import actions
from vtjobs.orchestrator.views.why import Explanation, why

from ...support.grids import tiny_grid
from ...support.journals import ended, journal, scored, started
from ...support.lab import Lab, SleepingBackend

TRACEBACK = """\
Traceback (most recent call last):
  File "/home/me/helper.py", line 12, in f
    raise ValueError("3 of 17")
ValueError: 3 of 17
"""
STAGES = """\
stages:
  - {name: pretrain, heads: [relvit]}
  - {name: finetune, heads: [supervised], init_from: pretrain}
"""


class Speaking(SleepingBackend):
    """A queue that explains its words as SLURM does."""

    def explain(self, word: str, *, job: str = "", token: str = "") -> Waiting | None:
        return explain(word, job=job)


@pytest.fixture
def run(quiet_lab: Lab) -> str:
    """One run that nothing keeps."""
    (found,) = quiet_lab.submit(tiny_grid(seeds="1", extra="retries: 1"))
    return found


def told(lab: Lab, run_id: str) -> Explanation:
    found = why(lab.context, run_id)
    assert found.run_id == run_id and found.sentence
    return found


def mark(lab: Lab, name: str, **content: Any) -> None:
    (folder,) = lab.context.workspace.grids.glob("tiny-*")
    write_over(folder / f"{name}.json", to_json(content))


# Pending ------------------------------------------------------------------------------------------


def test_a_run_that_nothing_keeps_starts_with_the_next_pass(quiet_lab: Lab, run: str) -> None:
    found = told(quiet_lab, run)
    assert (found.state, found.verdict, found.job) == ("pending", "wait", None)
    assert found.sentence.startswith("it is ready")


def test_a_held_run_waits_for_its_user(quiet_lab: Lab, run: str) -> None:
    actions.hold(quiet_lab.context, [run])
    found = told(quiet_lab, run)
    assert (found.verdict, found.action) == ("act", f"vtjobs release {run[:8]}")


def test_a_stopped_grid_is_told_with_what_failed(quiet_lab: Lab, run: str) -> None:
    mark(quiet_lab, "breaker", signature="ValueError: no", runs=[])
    found = told(quiet_lab, run)
    assert found.verdict == "act" and "ValueError: no" in found.sentence
    assert found.action.startswith("Fix the cause, then run: vtjobs retry tiny-")


def test_a_run_behind_the_canary_goes_on_by_itself(quiet_lab: Lab, run: str) -> None:
    mark(quiet_lab, "canary", runs=["f" * 16], passed=False)
    found = told(quiet_lab, run)
    assert found.verdict == "wait" and "canary" in found.sentence


def test_a_run_that_is_tried_again_later_says_when(quiet_lab: Lab) -> None:
    (run_id,) = quiet_lab.submit(tiny_grid(seeds="1"))
    quiet_lab.tick()
    journal(quiet_lab, run_id, 1, started(), ended("failed", "storage", signature="OSError: disk"))
    quiet_lab.tick()
    found = told(quiet_lab, run_id)
    assert found.verdict == "wait"
    assert (
        found.sentence.startswith("next attempt in 1")
        and "ended with storage: OSError: disk" in found.sentence
    )


def test_a_scheduler_that_is_away_is_told_of_the_runs_that_go_there(
    quiet_lab: Lab, run: str
) -> None:
    scheduler_notes.note_away(quiet_lab.context.ledger, "slurm", SchedulerUnreachable("no answer"))
    assert told(quiet_lab, run).sentence.startswith("it is ready")
    scheduler_notes.note_away(quiet_lab.context.ledger, "local", SchedulerSlow("no answer yet"))
    assert told(quiet_lab, run).sentence.startswith("it is ready"), "the next pass waits longer"
    scheduler_notes.note_away(quiet_lab.context.ledger, "local", SchedulerUnreachable("disk gone"))
    found = told(quiet_lab, run)
    assert (found.verdict, found.reason) == ("wait", "disk gone")
    assert found.sentence.startswith("local cannot be reached (disk gone)")


def test_a_submission_that_the_site_put_off_is_told_with_its_limit(
    quiet_lab: Lab, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    no = Submission(outcome=SubmitOutcome.LATER, reason="AssocMaxSubmitJobLimit")
    monkeypatch.setattr(quiet_lab.context.backend("local"), "submit", lambda _: no)
    quiet_lab.tick()
    found = told(quiet_lab, run)
    assert found.verdict == "wait"
    assert found.reason == "AssocMaxSubmitJobLimit" and found.reason in found.sentence


def test_a_later_stage_waits_for_its_parent_and_is_blocked_by_its_failure(quiet_lab: Lab) -> None:
    text = tiny_grid(seeds="1", extra=STAGES + "retries: 1").replace("heads: [supervised]\n", "", 1)
    parent, child = quiet_lab.submit(text)
    found = told(quiet_lab, child)
    assert (found.verdict, found.action) == ("wait", f"vtjobs why {parent[:8]}")
    quiet_lab.tick()
    journal(quiet_lab, parent, 1, started(), ended("failed", "setup_error", signature="no data"))
    quiet_lab.tick()
    found = told(quiet_lab, child)
    assert (found.state, found.verdict, found.action) == (
        "blocked",
        "act",
        f"vtjobs why {parent[:8]}",
    )


# Queued and running -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "verdict", "says", "action"),
    [
        (
            "PENDING Priority",
            "wait",
            "jobs with higher priority are ahead of it",
            "See: squeue --start -j {job}",
        ),
        ("PENDING JobHeldUser", "act", "held by its user in SLURM", "scontrol release {job}"),
        (
            "PENDING BadConstraints",
            "never",
            "; as requested it can",
            "Change slurm.constraint or resources",
        ),
        ("RUNNING", "wait", "submitted to local (RUNNING)", ""),
        ("", "wait", "submitted to local", ""),
    ],
)
def test_a_queued_run_is_told_with_the_schedulers_reason(
    quiet_lab: Lab, run: str, word: str, verdict: str, says: str, action: str
) -> None:
    quiet_lab.tick()
    quiet_lab.context._backends["local"] = Speaking(quiet_lab.context.workspace)
    scheduler_notes.set_words(quiet_lab.context.ledger, [(run, 1, word)])
    found = told(quiet_lab, run)
    job = quiet_lab.attempts(run)[0].token
    assert (found.state, found.verdict, found.job) == ("queued", verdict, job)
    assert says in found.sentence
    assert found.action == action.replace("{job}", job)


def test_a_submission_without_an_answer_is_looked_up_first(quiet_lab: Lab, run: str) -> None:
    class Silent(SleepingBackend):
        def submit(self, allocation: Any) -> Any:
            raise SchedulerUnreachable("no answer")

    quiet_lab.context._backends["local"] = Silent(quiet_lab.context.workspace)
    quiet_lab.tick()
    found = told(quiet_lab, run)
    assert (found.state, found.verdict) == ("queued", "wait")
    assert "is not confirmed yet" in found.sentence


def test_a_running_run_says_where(quiet_lab: Lab, run: str) -> None:
    quiet_lab.tick()
    journal(quiet_lab, run, 1, started(host="gpu7"))
    quiet_lab.tick()
    found = told(quiet_lab, run)
    assert (found.verdict, found.sentence) == ("running", "attempt 1 on gpu7")


# Ended --------------------------------------------------------------------------------------------


def test_a_completed_run_needs_nothing(quiet_lab: Lab, run: str) -> None:
    quiet_lab.tick()
    journal(quiet_lab, run, 1, started(), scored(90.0), ended("completed"))
    quiet_lab.tick()
    found = told(quiet_lab, run)
    assert (found.verdict, found.action) == ("ended", "")
    assert found.sentence == "attempt 1 finished after epoch 1, in 0s"


@pytest.mark.parametrize(
    ("failure", "state", "says"),
    [
        ("user_error", "failed", "then run: vtjobs retry {run}"),
        ("diverged", "diverged", "Lower train.lr"),
        ("hardware", "failed", "vtjobs retry {run}"),
        ("no_checkpoint", "failed", "vtjobs rerun {run}"),
    ],
)
def test_a_run_that_ended_badly_says_why_and_what_helps(
    quiet_lab: Lab, run: str, failure: str, state: str, says: str
) -> None:
    quiet_lab.tick()
    scheduler_notes.set_words(quiet_lab.context.ledger, [(run, 1, "FAILED exit 70:0")])
    journal(quiet_lab, run, 1, started(), ended("failed", failure, signature="ValueError: no"))
    quiet_lab.tick()
    found = told(quiet_lab, run)
    assert (found.verdict, found.state, found.reason) == ("ended", state, "ValueError: no")
    assert found.sentence == "ValueError: no [FAILED exit 70:0]"
    assert says.format(run=run[:8]) in found.action


def test_the_error_is_told_in_full_with_its_numbers_and_where_it_was_raised(
    quiet_lab: Lab, run: str
) -> None:
    quiet_lab.tick()
    end = ended("failed", "user_error", signature="ValueError: # of # at x.py:f", error=TRACEBACK)
    journal(quiet_lab, run, 1, started(), end)
    quiet_lab.tick()
    found = told(quiet_lab, run)
    assert (found.message, found.place) == ("ValueError: 3 of 17", "helper.py:12")
    assert found.sentence == "ValueError: 3 of 17 (helper.py:12)"
    assert found.action == f"Fix helper.py:12, then run: vtjobs retry {run[:8]}"


def test_a_cancelled_run_is_told_as_such(quiet_lab: Lab, run: str) -> None:
    actions.cancel(quiet_lab.context, [run])
    found = told(quiet_lab, run)
    assert (found.verdict, found.state) == ("ended", "cancelled")
    assert found.sentence == "it was cancelled before it started"
    assert found.action == f"vtjobs retry {run[:8]}"


def test_a_refused_run_is_told_in_the_schedulers_words(quiet_lab: Lab, run: str) -> None:
    quiet_lab.tick()
    quiet_lab.context.ledger.transition(
        run,
        1,
        AttemptState.FAILED,
        source="slurm",
        failure="refused",
        signature="Invalid qos specification",
    )
    assert "Invalid qos specification" in told(quiet_lab, run).sentence


def test_a_cancelled_attempt_says_how_far_it_came(quiet_lab: Lab, run: str) -> None:
    quiet_lab.tick()
    actions.cancel(quiet_lab.context, [run])
    journal(quiet_lab, run, 1, started(), ended("cancelled", "cancelled", signature="cancelled"))
    quiet_lab.tick()
    assert told(quiet_lab, run).sentence == "attempt 1 was stopped in epoch 1"


def test_a_try_that_was_cancelled_before_it_started_does_not_hide_an_earlier_one(
    quiet_lab: Lab, run: str
) -> None:
    quiet_lab.tick()
    journal(quiet_lab, run, 1, started(), ended("cancelled", "cancelled", signature="cancelled"))
    quiet_lab.tick()
    actions.retry(quiet_lab.context, [run], clean=False)
    quiet_lab.tick()
    actions.cancel(quiet_lab.context, [run])
    quiet_lab.tick()
    assert told(quiet_lab, run).sentence == (
        "attempt 2 was cancelled before it started; attempt 1 had trained before"
    )
