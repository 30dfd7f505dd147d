"""The list of runs: each one's state, progress and shown word."""

import pytest

from vtjobs.db.scheduler_notes import set_words
from vtjobs.jobs.errors import NothingMatched
from vtjobs.jobs.run.selector import Selection, parse_selection
from vtjobs.jobs.workspace.journal import LEASE_S
from vtjobs.orchestrator.requests import actions
from vtjobs.orchestrator.views import details as view_details
from vtjobs.orchestrator.views import runs as view_runs
from vtjobs.orchestrator.views.status import status
from vtjobs.orchestrator.views.why import why

from ...support.grids import tiny_grid
from ...support.journals import ended, journal
from ...support.lab import Lab

ALL = Selection()


def document(lab: Lab, run_id: str) -> view_runs.RunView:
    (found,) = [run for run in view_runs.runs(lab.context, ALL) if run.run_id == run_id]
    return found


def test_a_run_shows_its_place_progress_and_result(quiet_lab: Lab, runs: list[str]) -> None:
    completed, running = document(quiet_lab, runs[0]), document(quiet_lab, runs[2])
    assert (completed.state, completed.top1, completed.seed) == ("completed", 91.5, 0)
    assert (running.state, running.step, running.steps, running.top1) == (
        "running",
        3,
        16,
        None,
    )
    assert str(running.started_at).endswith("Z") and running.ended_at is None


def test_a_cancelled_run_that_still_has_an_agent_is_shown_as_cancelling(
    quiet_lab: Lab, runs: list[str]
) -> None:
    actions.cancel(quiet_lab.context, runs[2:3])
    assert document(quiet_lab, runs[2]).shown_state == "cancelling"


@pytest.mark.parametrize(
    ("word", "shown"),
    [("GONE by 1000", "cancelling"), ("FROZEN", "suspended"), ("FINE", "running")],
)
def test_a_job_that_was_cancelled_in_the_scheduler_is_shown_by_the_backends_own_word(
    quiet_lab: Lab, runs: list[str], monkeypatch: pytest.MonkeyPatch, word: str, shown: str
) -> None:
    backend = quiet_lab.context.backend("local")
    words = {"GONE": "cancelling", "FROZEN": "suspended"}
    monkeypatch.setattr(backend, "shown_words", words)
    set_words(quiet_lab.context.ledger, [(runs[2], 1, word)])
    assert document(quiet_lab, runs[2]).shown_state == shown


def test_a_run_without_a_sign_of_life_for_longer_than_its_lease_is_shown_as_unknown(
    quiet_lab: Lab, runs: list[str]
) -> None:
    assert document(quiet_lab, runs[2]).shown_state == "running"
    quiet_lab.clock.ahead_s = LEASE_S + 60
    found = document(quiet_lab, runs[2])
    assert (found.state, found.shown_state) == ("running", "unknown")


def test_a_held_run_is_shown_as_held(quiet_lab: Lab) -> None:
    runs = quiet_lab.submit(tiny_grid(name="other", seeds="[7]"))
    actions.hold(quiet_lab.context, runs)
    assert document(quiet_lab, runs[0]).shown_state == "held"


def test_a_queued_run_that_is_held_is_shown_and_counted_as_held_and_why_says_so(
    quiet_lab: Lab,
) -> None:
    (run_id, other) = quiet_lab.submit(tiny_grid(name="other", seeds="[7, 8]"))
    quiet_lab.tick()
    actions.hold(quiet_lab.context, [run_id])
    assert (document(quiet_lab, run_id).state, document(quiet_lab, run_id).shown_state) == (
        "queued",
        "held",
    )
    assert document(quiet_lab, other).shown_state == "queued"
    assert status(quiet_lab.context, parse_selection(["other"])).held == 1
    found = why(quiet_lab.context, run_id)
    assert (found.sentence, found.action) == ("it is on hold", f"vtjobs release {run_id[:8]}")


def test_runs_of_a_time_are_those_of_which_an_attempt_started_or_ended_in_it(
    quiet_lab: Lab, runs: list[str]
) -> None:
    now = quiet_lab.context.clock()
    found = view_runs.runs(quiet_lab.context, ALL, since=now - 600)
    assert runs[3] not in {run.run_id for run in found} and len(found) == 3
    assert len(view_runs.runs(quiet_lab.context, ALL, since=now - 600, limit=1)) == 1
    with pytest.raises(NothingMatched, match="started or ended in this time"):
        view_runs.runs(quiet_lab.context, ALL, since=now + 3600)


def test_a_selection_chooses_what_is_listed(quiet_lab: Lab, runs: list[str]) -> None:
    chosen = view_runs.runs(quiet_lab.context, parse_selection(["status=failed,queued"]))
    assert [run.run_id for run in chosen] == [runs[1], runs[3]]
    assert len(view_runs.runs(quiet_lab.context, ALL, limit=2)) == 2


def test_a_run_that_is_tried_again_after_a_cancel_is_cancelling_no_more(quiet_lab: Lab) -> None:
    (run_id,) = quiet_lab.submit(tiny_grid(seeds="1"))
    quiet_lab.tick()
    actions.cancel(quiet_lab.context, [run_id])
    assert document(quiet_lab, run_id).shown_state == "cancelling"
    journal(quiet_lab, run_id, 1, ended("cancelled", "cancelled"))
    quiet_lab.tick()
    actions.retry(quiet_lab.context, [run_id], clean=False)
    quiet_lab.tick()
    # The number of the new attempt lies behind the cancel; there are fewer attempts than that.
    words = {
        document(quiet_lab, run_id).shown_state,
        view_details.show(quiet_lab.context, run_id).shown_state,
        why(quiet_lab.context, run_id).shown_state,
    }
    assert words == {"queued"}


def test_a_run_that_somebody_put_back_into_the_queue_is_shown_so_once_it_is_silent(
    quiet_lab: Lab, runs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = quiet_lab.context.backend("local")
    monkeypatch.setattr(backend, "shown_words", {"PENDING": "requeued"})
    set_words(quiet_lab.context.ledger, [(runs[2], 1, "PENDING Resources")])
    assert document(quiet_lab, runs[2]).shown_state == "running", "it was said before the start"
    quiet_lab.clock.ahead_s = 120
    assert document(quiet_lab, runs[2]).shown_state == "requeued"
