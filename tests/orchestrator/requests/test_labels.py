"""Notes and tags on grids and runs, and grids that are put away."""

import errno
from pathlib import Path
from typing import Any

import pytest

from vtjobs.jobs.errors import BadInput, NothingMatched
from vtjobs.jobs.run.selector import Selection, parse_selection
from vtjobs.jobs.workspace.notes import MOST_CHARACTERS, notes_of
from vtjobs.orchestrator.requests.labels import Tagged, all_tagged, archive, noted, tag
from vtjobs.orchestrator.views.details import show
from vtjobs.orchestrator.views.runs import runs
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


# Tags ---------------------------------------------------------------------------------------------


def put(lab: Lab, *words: str, **changes: Any) -> list[Tagged]:
    return tag(lab.open(), parse_selection(words), **changes)


def selected(lab: Lab, *words: str) -> set[str]:
    return {run.run_id for run in runs(lab.open(), parse_selection(words))}


def test_a_tag_on_a_grid_selects_all_its_runs(done: Lab) -> None:
    put(done, "tiny", add=["paper"])
    assert selected(done, "tag=paper") == set(done.states())
    assert grid_of(done).tags == ("paper",)


def test_a_tag_on_a_run_selects_it_alone(done: Lab) -> None:
    one, other = done.states()
    put(done, one[:8], add=["odd", "look-again"])
    assert selected(done, "tag=odd") == {one}
    assert selected(done, "tag!=odd") == {other}
    assert show(done.open(), one).tags == ("look-again", "odd")
    assert grid_of(done).tags == ()


def test_a_condition_tags_runs_and_not_their_grid(done: Lab) -> None:
    put(done, "tiny", "seed=1", add=["odd"])
    assert len(selected(done, "tag=odd")) == 1


def test_a_tag_that_is_taken_off_selects_nothing(done: Lab) -> None:
    put(done, "tiny", add=["paper", "keep"])
    put(done, "tiny", remove=["paper"])
    assert grid_of(done).tags == ("keep",)
    with pytest.raises(NothingMatched, match="no run has this tag"):
        selected(done, "tag=paper")


def test_a_dry_run_says_what_would_be_and_changes_nothing(done: Lab) -> None:
    (found,) = put(done, "tiny", add=["paper"], dry_run=True)
    assert found.tags == ["paper"] and grid_of(done).tags == ()


@pytest.mark.parametrize("name", ["", "-x", "two words", "a=b", "x" * 65, "\x1b[31m"])
def test_a_tag_that_is_no_name_is_refused(done: Lab, name: str) -> None:
    with pytest.raises(BadInput, match="a tag is a name"):
        put(done, "tiny", add=[name])
    assert all_tagged(done.open()) == []


def test_one_tag_is_not_put_on_and_taken_off_at_once(done: Lab) -> None:
    with pytest.raises(BadInput, match="paper is both"):
        put(done, "tiny", add=["paper"], remove=["paper"])


def test_tags_are_there_again_when_the_ledger_is_made_anew(done: Lab) -> None:
    one, _ = done.states()
    put(done, "tiny", add=["paper"])
    put(done, one, add=["odd"])
    done.lose_ledger()
    done.open()
    assert selected(done, "tag=odd") == {one}
    assert grid_of(done).tags == ("paper",)


def test_a_call_that_was_killed_before_the_ledger_knew_is_made_good_by_the_next(
    done: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("vtjobs.db.tags.keep", lambda *args: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            put(done, "tiny", add=["paper"])
    put(done, "tiny", add=["other"])
    assert grid_of(done).tags == ("other", "paper")


def test_tags_that_cannot_be_read_are_not_lost(done: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    put(done, "tiny", add=["paper"])
    real = Path.read_bytes

    def away(path: Path) -> bytes:
        if path.name == "tags.jsonl":
            raise OSError(errno.ESTALE, "stale")
        return real(path)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", away)
        with pytest.raises(OSError, match="stale"):
            put(done, "tiny", add=["other"])
    assert grid_of(done).tags == ("paper",)
