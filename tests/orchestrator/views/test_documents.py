"""What the reading commands show."""

import json

import pytest

from vtjobs.commands.printing.show import lines
from vtjobs.db.scheduler_notes import set_words
from vtjobs.jobs.documents import to_plain
from vtjobs.jobs.run.selector import Selection, parse_selection
from vtjobs.jobs.workspace.journal import LEASE_S
from vtjobs.orchestrator.requests import actions
from vtjobs.orchestrator.views import documents
from vtjobs.orchestrator.views.why import why

from ...support.grids import tiny_grid
from ...support.journals import ended, journal
from ...support.lab import Lab

ALL = Selection()


def document(lab: Lab, run_id: str) -> documents.RunView:
    (found,) = [run for run in documents.runs(lab.context, ALL) if run.run_id == run_id]
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


def test_show_tells_all_of_a_run(quiet_lab: Lab, runs: list[str]) -> None:
    found = documents.show(quiet_lab.context, runs[1])
    assert found.spec["dataset"]["name"] == "digits"
    (attempt,) = found.attempts
    assert (attempt.state, attempt.failure, attempt.exit_code) == (
        "failed",
        "user_error",
        70,
    )
    steps = [(event.before, event.after, event.source) for event in found.history]
    assert ("queued", "running", "journal") in steps and ("running", "failed", "journal") in steps
    assert json.dumps(to_plain(found))


def test_show_lists_every_grid_that_has_a_run(quiet_lab: Lab, runs: list[str]) -> None:
    quiet_lab.submit(tiny_grid(name="edit", seeds="1"))
    found = documents.show(quiet_lab.context, runs[0])
    assert [grid_id.rpartition("-")[0] for grid_id in found.grids] == ["edit", "tiny"]
    assert found.grids[0] == found.grid_id
    assert lines(found)[0] == f"run      {runs[0]}  ({found.grids[0]}, also in {found.grids[1]})"


def test_failures_are_grouped_by_cause(quiet_lab: Lab, runs: list[str]) -> None:
    (group,) = documents.failures(quiet_lab.context, ALL)
    assert (group.failure, group.signature) == ("user_error", "ValueError: no at x.py:f")
    assert (group.run_ids, group.hosts, group.common["seed"]) == ([runs[1]], ["h2"], 1)
    assert group.next == f"vtjobs logs {runs[1][:8]}"
    assert group.message == "ValueError: no 17"
    assert group.place == "x.py:3"
    assert group.remedy == f"Fix x.py:3, then run: vtjobs retry {runs[1][:8]}"


def test_a_selection_chooses_what_is_listed(quiet_lab: Lab, runs: list[str]) -> None:
    chosen = documents.runs(quiet_lab.context, parse_selection(["status=failed,queued"]))
    assert [run.run_id for run in chosen] == [runs[1], runs[3]]
    assert len(documents.runs(quiet_lab.context, ALL, limit=2)) == 2


def test_logs_are_those_of_the_last_attempt_that_left_any(quiet_lab: Lab, runs: list[str]) -> None:
    assert documents.logs_of(quiet_lab.context, runs[0]) == []
    folder = quiet_lab.run(runs[0]).logs(1)
    folder.mkdir()
    (folder / "rank-0.log").write_text("hello")
    quiet_lab.run(runs[0]).attempt(2).mkdir()
    assert [path.name for path in documents.logs_of(quiet_lab.context, runs[0])] == ["rank-0.log"]


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
        documents.show(quiet_lab.context, run_id).shown_state,
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
