"""Notes on grids and runs, and grids that are put away."""

import pytest

from vtjobs.jobs.errors import BadInput, NothingMatched
from vtjobs.jobs.run.selector import Selection
from vtjobs.jobs.workspace.notes import MOST_CHARACTERS, notes_of
from vtjobs.orchestrator.requests.labels import archive, noted
from vtjobs.orchestrator.views.details import show
from vtjobs.orchestrator.views.status import GridCounts, status

from ...support.grids import tiny_grid
from ...support.journals import ended, journal, scored, started
from ...support.lab import Lab


@pytest.fixture
def done(quiet_lab: Lab) -> Lab:
    """A grid of two runs that have completed."""
    runs = quiet_lab.submit(tiny_grid())
    quiet_lab.tick()
    for run_id in runs:
        journal(quiet_lab, run_id, 1, started(), scored(60.0), ended("completed"))
    quiet_lab.tick(start=False)
    return quiet_lab


def grid_of(lab: Lab) -> GridCounts:
    (grid,) = status(lab.open(), Selection()).grids
    return grid


def test_notes_on_a_grid_stay_in_their_order(done: Lab) -> None:
    noted(done.open(), "tiny", "first")
    noted(done.open(), grid_of(done).grid_id, " second ")
    assert [note.text for note in noted(done.open(), "tiny", None).notes] == ["first", "second"]
    assert [note.text for note in grid_of(done).notes] == ["first", "second"]


def test_a_note_on_a_run_is_shown_with_it(done: Lab) -> None:
    run_id = next(iter(done.states()))
    noted(done.open(), run_id[:8], "odd loss at epoch 1")
    (note,) = show(done.open(), run_id).notes
    assert note.text == "odd loss at epoch 1" and "@" in note.by and note.at.endswith("Z")


def test_a_run_that_has_not_started_can_have_a_note(quiet_lab: Lab) -> None:
    run_id, _ = quiet_lab.submit(tiny_grid())
    noted(quiet_lab.open(), run_id, "watch this one")
    assert [note.text for note in show(quiet_lab.open(), run_id).notes] == ["watch this one"]
    assert set(quiet_lab.states().values()) == {"pending"}


@pytest.mark.parametrize("text", ["", "  ", "x" * (MOST_CHARACTERS + 1)])
def test_an_empty_or_endless_note_is_refused(done: Lab, text: str) -> None:
    with pytest.raises(BadInput, match="characters"):
        noted(done.open(), "tiny", text)
    assert noted(done.open(), "tiny", None).notes == []


def test_what_is_there_not_has_no_notes(done: Lab) -> None:
    with pytest.raises(NothingMatched):
        noted(done.open(), "nothing", "x")


def test_a_line_that_was_cut_short_costs_no_other_note(done: Lab) -> None:
    noted(done.open(), "tiny", "before")
    folder = done.open().workspace.grid(grid_of(done).grid_id)
    with (folder / "notes.jsonl").open("ab") as file:
        file.write(b'{"at": "2026')
    noted(done.open(), "tiny", "after")
    assert [note.text for note in notes_of(folder)] == ["before", "after"]


def test_notes_and_archives_outlive_the_ledger(done: Lab) -> None:
    run_id = next(iter(done.states()))
    noted(done.open(), "tiny", "kept")
    noted(done.open(), run_id, "kept too")
    archive(done.open(), ["tiny"])
    done.lose_ledger()
    grid = grid_of(done)
    assert grid.archived and [note.text for note in grid.notes] == ["kept"]
    assert [note.text for note in show(done.open(), run_id).notes] == ["kept too"]


def test_an_archived_grid_can_be_brought_back(done: Lab) -> None:
    grid_id = grid_of(done).grid_id
    assert archive(done.open(), ["tiny"]).grids == [grid_id] and grid_of(done).archived
    assert archive(done.open(), ["tiny"]).grids == []
    assert archive(done.open(), [grid_id], undo=True).grids == [grid_id]
    assert not grid_of(done).archived


def test_a_preview_archives_nothing(done: Lab) -> None:
    assert archive(done.open(), ["tiny"], dry_run=True).grids and not grid_of(done).archived


def test_a_grid_with_runs_to_come_is_not_archived(quiet_lab: Lab) -> None:
    quiet_lab.submit(tiny_grid())
    with pytest.raises(BadInput, match=r"2 runs still to end\. First: vtjobs cancel tiny-"):
        archive(quiet_lab.open(), ["tiny"])
    assert not grid_of(quiet_lab).archived


def test_of_several_grids_none_is_archived_where_one_cannot_be(done: Lab) -> None:
    with pytest.raises(NothingMatched):
        archive(done.open(), ["tiny", "other"])
    assert not grid_of(done).archived


def test_a_grid_that_is_submitted_again_is_listed_again(done: Lab) -> None:
    archive(done.open(), ["tiny"])
    done.submit(tiny_grid())
    assert not grid_of(done).archived
