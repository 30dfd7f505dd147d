"""How many runs there are of each state and word: the numbers of `vtjobs status`."""

import json

import pytest

from vtjobs.commands import watch
from vtjobs.db.scheduler_notes import note_answer, note_away, set_words
from vtjobs.jobs.documents import to_plain
from vtjobs.jobs.errors import SchedulerSlow, SchedulerUnreachable
from vtjobs.jobs.run.selector import parse_selection
from vtjobs.jobs.run.states import RunState
from vtjobs.jobs.workspace.journal import LEASE_S
from vtjobs.orchestrator.requests import actions
from vtjobs.orchestrator.views import runs as view_runs
from vtjobs.orchestrator.views.status import status

from ...support.grids import tiny_grid
from ...support.lab import Lab
from ...support.views import ALL, check_counts, check_run


def check_views(lab: Lab) -> dict[str, str]:
    """Check that all views agree; return run -> word."""
    found = view_runs.runs(lab.context, ALL)
    check_counts(lab.context, found, [grid.grid_id for grid in status(lab.context, ALL).grids])
    for run in found:
        check_run(lab.context, run)
    return {run.run_id: run.shown_state for run in found}


def test_status_counts_every_state_and_names_each_grid(quiet_lab: Lab, runs: list[str]) -> None:
    found = status(quiet_lab.context, ALL)
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
    found = status(quiet_lab.context, ALL)
    (away,) = found.unreachable
    assert (away.backend, away.reason) == ("slurm", "no answer")
    assert away.since.endswith("Z")
    (note,) = found.damaged_journals
    assert note.startswith(f"{runs[2]}/0001") and "damaged line" in note


def test_status_tells_a_slow_scheduler_from_one_that_is_away(
    quiet_lab: Lab, runs: list[str]
) -> None:
    ledger = quiet_lab.context.ledger
    note_answer(ledger, "slurm", every_s=30)
    note_away(ledger, "slurm", SchedulerSlow("squeue did not answer within 2 s"))
    found = status(quiet_lab.context, ALL)
    assert found.unreachable == []
    (slow,) = found.slow
    assert (slow.backend, slow.reason) == ("slurm", "squeue did not answer within 2 s")
    assert slow.answered and slow.since and slow.answered <= slow.since


def test_every_run_is_counted_under_one_shown_word_and_a_cancelled_one_is_not_held(
    quiet_lab: Lab, runs: list[str]
) -> None:
    held = quiet_lab.submit(tiny_grid(name="other", seeds="[7, 8, 9]"))
    actions.hold(quiet_lab.context, held)
    actions.cancel(quiet_lab.context, held[:1])
    found = status(quiet_lab.context, ALL)
    (other,) = [grid for grid in found.grids if grid.name == "other"]
    assert (found.held, other.held, other.runs["pending"]) == (2, 2, 2)
    assert {word: count for word, count in other.shown.items() if count} == {
        "held": 2, "cancelled": 1,
    }  # fmt: skip
    check_views(quiet_lab)


def test_status_counts_the_selected_runs_of_each_grid(quiet_lab: Lab, runs: list[str]) -> None:
    held = quiet_lab.submit(tiny_grid(name="other", seeds="[7, 8]"))
    actions.hold(quiet_lab.context, held)
    found = status(quiet_lab.context, parse_selection(["seed=0,7"]))
    assert [(grid.name, sum(grid.shown.values()), grid.held) for grid in found.grids] == [
        ("tiny", 1, 0),
        ("other", 1, 1),
    ]
    of_run = status(quiet_lab.context, parse_selection([runs[0]]))
    assert [(grid.name, grid.runs["completed"]) for grid in of_run.grids] == [("tiny", 1)]


def test_a_run_on_hold_is_held_by_the_grid_whose_settings_hold(quiet_lab: Lab) -> None:
    runs = quiet_lab.submit(tiny_grid(name="older", seeds="2"))
    actions.hold(quiet_lab.context, runs)
    quiet_lab.submit(tiny_grid(name="newer", seeds="1"))
    # The newer grid's markers say whether its runs may start; this one was taken over as held.
    actions.release(quiet_lab.context, runs[:1])
    assert check_views(quiet_lab) == {runs[0]: "pending", runs[1]: "held"}
    actions.mark_held(quiet_lab.context, _older(quiet_lab), {runs[0]}, held=True)
    assert check_views(quiet_lab) == {runs[0]: "pending", runs[1]: "held"}


def _older(lab: Lab) -> str:
    return next(grid.grid_id for grid in status(lab.context, ALL).grids if grid.name == "older")


def test_status_counts_runs_by_the_words_that_are_only_shown(
    quiet_lab: Lab, runs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = quiet_lab.context.backend("local")
    monkeypatch.setattr(backend, "shown_words", {"FROZEN": "suspended", "PAUSED": "paused"})
    context = quiet_lab.context
    queued, running = runs[3], runs[2]
    assert check_views(quiet_lab)[running] == "running"
    set_words(context.ledger, [(running, 1, "FROZEN")])
    assert check_views(quiet_lab)[running] == "suspended"
    set_words(context.ledger, [(running, 1, "PAUSED")])
    assert check_views(quiet_lab)[running] == "paused", "a lab's own backend has words of its own"
    set_words(context.ledger, [(running, 1, "")])
    quiet_lab.clock.ahead_s = LEASE_S + 60
    assert check_views(quiet_lab)[running] == "unknown"
    actions.cancel(context, [queued, running])
    found = status(context, ALL)
    assert check_views(quiet_lab)[running] == "cancelling"
    assert found.shown["running"] == found.shown["unknown"] == 0


def test_the_table_has_a_column_for_a_word_that_is_only_shown_where_there_is_any(
    quiet_lab: Lab, runs: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    watch.status(workspace=str(quiet_lab.root))
    states = "GRID PENDING BLOCKED QUEUED RUNNING COMPLETED DIVERGED FAILED CANCELLED ETA"
    assert capsys.readouterr().out.split("\n")[0].split() == states.split()
    actions.cancel(quiet_lab.context, runs[2:3])
    watch.status(workspace=str(quiet_lab.root))
    heading, row = capsys.readouterr().out.split("\n")[:2]
    # The last column, when they will have ended, may be empty or two words.
    counts = dict(zip(heading.split(), row.split(), strict=False))
    assert (counts["RUNNING"], counts["CANCELLING"], counts["COMPLETED"]) == ("0", "1", "1")
