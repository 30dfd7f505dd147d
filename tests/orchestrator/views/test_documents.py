"""What the reading commands show."""

import json
from collections import Counter

import pytest

from vtjobs.commands.printing.show import lines
from vtjobs.db.scheduler_notes import note_away, set_words
from vtjobs.jobs.documents import to_plain
from vtjobs.jobs.errors import SchedulerUnreachable
from vtjobs.jobs.run.selector import Selection, parse_selection
from vtjobs.jobs.run.states import RunState
from vtjobs.jobs.workspace.journal import LEASE_S
from vtjobs.orchestrator.requests import actions
from vtjobs.orchestrator.views import documents
from vtjobs.orchestrator.views.eta import etas
from vtjobs.orchestrator.views.why import why

from ...support.grids import tiny_grid
from ...support.journals import ended, journal, scored, started
from ...support.lab import Lab

ALL = Selection()


@pytest.fixture
def runs(quiet_lab: Lab) -> list[str]:
    """Four runs: completed, failed, running, queued."""
    found = quiet_lab.submit(tiny_grid(seeds="4", extra="retries: 1"))
    quiet_lab.tick()
    journal(quiet_lab, found[0], 1, started(), scored(91.5), ended("completed"))
    failure = ended(
        "failed",
        "user_error",
        signature="ValueError: no at x.py:f",
        error='Traceback (most recent call last):\n  File "x.py", line 3, in f\nValueError: no 17\n',
        exit_code=70,
    )
    journal(quiet_lab, found[1], 1, started(host="h2"), failure)
    journal(quiet_lab, found[2], 1, started(), ("progress", {"epoch": 1, "step": 3, "steps": 16}))
    quiet_lab.tick()
    return found


def document(lab: Lab, run_id: str) -> documents.RunView:
    (found,) = [run for run in documents.runs(lab.context, ALL) if run.run_id == run_id]
    return found


def test_status_counts_every_state_and_names_each_grid(quiet_lab: Lab, runs: list[str]) -> None:
    found = documents.status(quiet_lab.context, ALL)
    assert set(found.runs) == set(RunState)
    assert {state: count for state, count in found.runs.items() if count} == {
        "completed": 1, "failed": 1, "running": 1, "queued": 1,
    }  # fmt: skip
    (grid,) = found.grids
    assert grid.name == "tiny" and grid.runs == found.runs
    assert found.schema_version == 1 and json.dumps(to_plain(found))


def test_status_says_what_could_not_be_asked_and_which_journals_are_damaged(
    quiet_lab: Lab, runs: list[str]
) -> None:
    path = quiet_lab.run(runs[2]).journal(1, 0)
    path.write_bytes(path.read_bytes() + b"00000000 {}\n00000000 {}\n")
    quiet_lab.tick()
    note_away(quiet_lab.context.ledger, "slurm", SchedulerUnreachable("no answer"))
    found = documents.status(quiet_lab.context, ALL)
    (away,) = found.unreachable
    assert (away.backend, away.reason) == ("slurm", "no answer")
    assert away.since.endswith("Z")
    (note,) = found.damaged_journals
    assert note.startswith(f"{runs[2]}/0001") and "damaged line" in note


def test_status_and_runs_say_when_what_is_left_will_have_ended(
    quiet_lab: Lab, runs: list[str]
) -> None:
    found = documents.status(quiet_lab.context, ALL)
    # One trains, at a speed that nothing is known of yet; the completed one is of the same cell.
    assert found.eta is not None and found.eta == found.grids[0].eta
    assert (found.eta.basis, found.eta.slots, found.eta.unknown) == ("cell", 1, 0)
    assert document(quiet_lab, runs[2]).eta is not None
    assert [document(quiet_lab, run_id).eta for run_id in (runs[0], runs[3])] == [None, None]


def test_runs_on_hold_are_not_waited_for_and_a_settled_grid_has_no_estimate(
    quiet_lab: Lab,
) -> None:
    found = quiet_lab.submit(tiny_grid(seeds="2"))
    assert etas(quiet_lab.context, ALL).all is not None
    actions.hold(quiet_lab.context, found)
    assert etas(quiet_lab.context, ALL).grids == {}
    assert documents.status(quiet_lab.context, ALL).eta is None


def test_an_estimate_is_of_the_runs_that_are_selected(quiet_lab: Lab, runs: list[str]) -> None:
    assert etas(quiet_lab.context, parse_selection([runs[0]])).all is None
    running = etas(quiet_lab.context, parse_selection([runs[2]])).all
    both = etas(quiet_lab.context, ALL).all
    assert running is not None and both is not None and running.high_s is not None
    assert both.high_s is not None and running.high_s <= both.high_s


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
    assert documents.status(quiet_lab.context, ALL).held == 1


def test_every_run_is_counted_under_one_shown_word_and_a_cancelled_one_is_not_held(
    quiet_lab: Lab, runs: list[str]
) -> None:
    held = quiet_lab.submit(tiny_grid(name="other", seeds="[7, 8, 9]"))
    actions.hold(quiet_lab.context, held)
    actions.cancel(quiet_lab.context, held[:1])
    found = documents.status(quiet_lab.context, ALL)
    (other,) = [grid for grid in found.grids if grid.name == "other"]
    assert (found.held, other.held, other.runs["pending"]) == (2, 2, 2)
    assert {word: count for word, count in other.shown.items() if count} == {
        "held": 2, "cancelled": 1,
    }  # fmt: skip
    shown = Counter(run.shown_state for run in documents.runs(quiet_lab.context, ALL))
    assert sum(found.shown.values()) == sum(shown.values()) == 7
    assert shown == {word: count for word, count in found.shown.items() if count}


def test_status_counts_the_selected_runs_of_each_grid(quiet_lab: Lab, runs: list[str]) -> None:
    held = quiet_lab.submit(tiny_grid(name="other", seeds="[7, 8]"))
    actions.hold(quiet_lab.context, held)
    found = documents.status(quiet_lab.context, parse_selection(["seed=0,7"]))
    assert [(grid.name, sum(grid.shown.values()), grid.held) for grid in found.grids] == [
        ("tiny", 1, 0),
        ("other", 1, 1),
    ]
    of_run = documents.status(quiet_lab.context, parse_selection([runs[0]]))
    assert [(grid.name, grid.runs["completed"]) for grid in of_run.grids] == [("tiny", 1)]


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
