"""Grids that are deleted: with what only they have, and whole, however often it is killed."""

import shutil
from pathlib import Path

import pytest

from vtjobs.db.engine import reading
from vtjobs.db.queries import list_runs
from vtjobs.db.records import RunRow
from vtjobs.jobs.atomic_files import to_json, write_new
from vtjobs.jobs.errors import BadInput, NothingMatched
from vtjobs.jobs.run.selector import Selection, parse_selection
from vtjobs.jobs.values import changed
from vtjobs.jobs.workspace.allocation import Place, read_allocation
from vtjobs.jobs.workspace.stored_grid import FrozenGrid
from vtjobs.orchestrator.requests import deletion
from vtjobs.orchestrator.requests.actions import retry
from vtjobs.orchestrator.requests.labels import all_tagged, tag
from vtjobs.orchestrator.views.status import status

from ...support.grids import tiny_grid
from ...support.journals import ended, journal, scored, started
from ...support.lab import Lab

WIDER = tiny_grid(heads="[supervised, relvit]").replace("name: tiny", "name: wider")


def complete(lab: Lab, runs: list[str]) -> None:
    lab.tick()
    for run_id in runs:
        journal(lab, run_id, 1, started(), scored(60.0), ended("completed"))
    lab.tick(start=False)


@pytest.fixture
def done(quiet_lab: Lab) -> Lab:
    """A grid of two runs that have completed."""
    complete(quiet_lab, quiet_lab.submit(tiny_grid()))
    return quiet_lab


@pytest.fixture
def two(done: Lab) -> Lab:
    """Beside it a grid that has both of its runs, and two more."""
    runs = done.submit(WIDER)
    complete(done, [run_id for run_id in runs if done.state(run_id) != "completed"])
    return done


def grids(lab: Lab) -> list[str]:
    return [grid.name for grid in status(lab.open(), Selection()).grids]


def rows(lab: Lab) -> list[RunRow]:
    with reading(lab.context.ledger.engine) as connection:
        return list_runs(connection, Selection())


def delete(lab: Lab, *words: str) -> deletion.Deletion:
    context = lab.open()
    return deletion.delete(context, deletion.find(context, words))


def files(lab: Lab) -> set[str]:
    """Return what is in the workspace, but for the ledger and what is written for good."""
    kept = ("ledger", "workspace", "local", deletion.LOG, "tags.jsonl")
    found = (path.relative_to(lab.root) for path in lab.root.rglob("*") if path.is_file())
    return {str(path) for path in found if not path.parts[0].startswith(kept)}


def test_a_grid_goes_with_its_runs_and_leaves_no_file(done: Lab) -> None:
    found = delete(done, "tiny")
    assert found.removed and len(found.runs) == 2 and found.bytes > 0
    assert grids(done) == [] and done.states() == {}
    assert files(done) == set()


def test_nothing_of_it_comes_back_when_the_ledger_is_made_anew(done: Lab) -> None:
    delete(done, "tiny")
    done.lose_ledger()
    assert grids(done) == [] and done.states() == {}


def test_what_is_found_is_not_touched(done: Lab) -> None:
    before = files(done)
    assert not deletion.find(done.open(), ["tiny"]).removed
    assert grids(done) == ["tiny"] and files(done) == before


def test_a_run_that_another_grid_has_stays_with_the_settings_of_that_grid(two: Lab) -> None:
    found = delete(two, "wider")
    assert (len(found.runs), found.kept) == (2, 2)
    assert grids(two) == ["tiny"]
    assert {(row.state, row.grid_id.partition("-")[0]) for row in rows(two)} == {
        ("completed", "tiny")
    }


@pytest.fixture
def shared_job(quiet_lab: Lab) -> Lab:
    """Two grids of two runs, all in one allocation."""
    runs = quiet_lab.submit(tiny_grid())
    runs += quiet_lab.submit(tiny_grid(heads="[relvit]").replace("name: tiny", "name: second"))
    quiet_lab.allocate(runs)
    return quiet_lab


def end(lab: Lab, *grids: str) -> None:
    for row in rows(lab):
        if row.grid_id.startswith(grids):
            journal(lab, row.run_id, 1, started(), ended("completed"))
    lab.tick(start=False)


def test_an_allocation_keeps_the_runs_that_stay(shared_job: Lab) -> None:
    end(shared_job, "tiny", "second")
    delete(shared_job, "second")
    (path,) = shared_job.context.workspace.allocations.glob("*.json")
    left = read_allocation(path)
    assert left is not None
    assert {task.run_id for task in left.all_tasks} == set(shared_job.states())
    shared_job.lose_ledger()
    assert [row.attempts for row in rows(shared_job)] == [1, 1]


def test_a_grid_whose_job_still_trains_another_one_is_refused(shared_job: Lab) -> None:
    end(shared_job, "second")
    with pytest.raises(BadInput, match="still trains 2 runs of other grids"):
        delete(shared_job, "second")


def test_a_grid_with_runs_that_are_still_to_end_is_refused(quiet_lab: Lab) -> None:
    quiet_lab.submit(tiny_grid())
    with pytest.raises(BadInput, match="2 runs not ended yet"):
        delete(quiet_lab, "tiny")
    assert grids(quiet_lab) == ["tiny"]


def test_a_grid_that_is_not_there_is_told(done: Lab) -> None:
    with pytest.raises(NothingMatched, match="no grid is called 'other'"):
        delete(done, "other")


def test_a_grid_whose_runs_have_changed_since_they_were_found_is_not_deleted(done: Lab) -> None:
    context = done.open()
    found = deletion.find(context, ["tiny"])
    done.submit(WIDER)
    with pytest.raises(BadInput, match="have joined or left"):
        deletion.delete(context, found)
    assert set(grids(done)) == {"tiny", "wider"}


def test_a_grid_whose_folder_is_lost_can_be_deleted(done: Lab) -> None:
    (folder,) = (done.root / "grids").iterdir()
    shutil.rmtree(folder)
    delete(done, "tiny")
    assert grids(done) == [] and files(done) == set()


def test_tags_go_with_what_had_them(done: Lab) -> None:
    one, _ = done.states()
    tag(done.open(), parse_selection(["tiny"]), add=["paper"])
    tag(done.open(), parse_selection([one]), add=["odd"])
    delete(done, "tiny")
    assert all_tagged(done.open()) == []
    done.lose_ledger()
    assert all_tagged(done.open()) == []


def test_it_is_written_down_that_a_grid_was_deleted(done: Lab) -> None:
    delete(done, "tiny")
    (line,) = (done.root / deletion.LOG).read_text().splitlines()
    assert '"tiny-' in line and "@" in line


def test_no_hint_of_a_deleted_run_is_left_to_agents(done: Lab) -> None:
    runs = rows(done)
    done.run(runs[0].run_id).offer()
    delete(done, "tiny")
    assert not done.context.workspace.offered()


def test_a_grid_that_was_deleted_can_be_submitted_again(done: Lab) -> None:
    delete(done, "tiny")
    complete(done, done.submit(tiny_grid()))
    assert [(row.state, row.attempts) for row in rows(done)] == [("completed", 1)] * 2


# Beside others -----------------------------------------------------------------------------------


def test_a_grid_is_refused_while_a_job_of_its_own_trains_for_another_grid(quiet_lab: Lab) -> None:
    quiet_lab.submit(tiny_grid())
    quiet_lab.tick()
    # What was queued for the first grid reads that grid's settings when it starts.
    quiet_lab.submit(tiny_grid(name="again"))
    with pytest.raises(BadInput, match="2 runs not ended yet"):
        delete(quiet_lab, "tiny")


def test_runs_that_are_submitted_again_meanwhile_are_not_touched(done: Lab) -> None:
    context = done.open()
    found = deletion.find(context, ["tiny"])
    real = shutil.rmtree

    def submit_first(folder: Path, **options: bool) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("shutil.rmtree", real)
            complete(done, done.submit(tiny_grid()))
        real(folder, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shutil.rmtree", submit_first)
        deletion.delete(context, found)
    assert {row.state for row in rows(done)} == {"completed"}
    assert all(done.run(run_id).journal(1, 0).is_file() for run_id in done.states())


def test_a_grid_that_is_deleted_while_it_is_submitted_again_is_stored(done: Lab) -> None:
    real = done.context.ledger.add_grid

    def delete_first(frozen: FrozenGrid) -> set[str]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(done.context.ledger, "add_grid", real)
            delete(done, "tiny")
        return real(frozen)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(done.context.ledger, "add_grid", delete_first)
        runs = done.submit(tiny_grid())
    complete(done, runs)
    done.lose_ledger()
    assert [row.state for row in rows(done)] == ["completed"] * 2


def test_an_allocation_that_no_attempt_is_of_goes_too(done: Lab) -> None:
    first = next(iter(done.states()))
    (path,) = done.context.workspace.allocations.glob("*.json")
    mine = read_allocation(path)
    assert mine is not None
    taken_on = changed(
        mine,
        token="vtj-inside01",
        tasks=(tuple(task for task in mine.all_tasks if task.run_id == first),),
        inside=Place(token=mine.token, index=0),
    )
    other = done.context.workspace.allocation(taken_on.token)
    write_new(other, to_json(taken_on.to_dict()))
    done.tick(start=False)
    delete(done, "tiny")
    assert files(done) == set()
    done.submit(tiny_grid())
    done.lose_ledger()
    assert [(row.state, row.attempts) for row in rows(done)] == [("pending", 0)] * 2


# Kills --------------------------------------------------------------------------------------------


class Killed(BaseException):
    """As a kill: nothing that would follow is done."""


HERE = "vtjobs.orchestrator.requests.deletion"
BEFORE = (f"{HERE}.write_new", "os.rename")
AFTER = (
    *(f"{HERE}.append_line", f"{HERE}._forget", f"{HERE}._take_out", f"{HERE}._remove_tags"),
    *("vtjobs.db.deletion.forget", "vtjobs.db.deletion._hand_over"),
)


def kill_at(monkeypatch: pytest.MonkeyPatch, step: str, number: int) -> None:
    """Let the nth call of a function be the last thing that happens."""
    module, _, name = step.rpartition(".")
    real = getattr(__import__(module, fromlist=[name]), name)
    calls = 0

    def killing(*args: object, **kwargs: object) -> object:
        nonlocal calls
        calls += 1
        if calls == number:
            raise Killed
        return real(*args, **kwargs)

    monkeypatch.setattr(step, killing)


def killed(lab: Lab, step: str, number: int, *words: str) -> None:
    """Delete grids, and be killed in it."""
    with pytest.MonkeyPatch.context() as patch:
        kill_at(patch, step, number)
        with pytest.raises(Killed):
            delete(lab, *words)


@pytest.mark.parametrize("step", BEFORE)
def test_a_deletion_that_is_killed_before_the_grid_is_moved_has_not_happened(
    done: Lab, step: str
) -> None:
    before = files(done)
    killed(done, step, 1, "tiny")
    complete(done, done.submit(tiny_grid(name="other", heads="[relvit]")))
    assert set(grids(done)) == {"tiny", "other"}
    assert before <= files(done) and not any("deleted/" in name for name in files(done))


@pytest.mark.parametrize(
    ("step", "number"), [*((step, 1) for step in AFTER), ("os.rename", 2), ("os.rename", 3)]
)
def test_a_deletion_that_is_killed_later_is_finished(done: Lab, step: str, number: int) -> None:
    killed(done, step, number, "tiny")
    assert len(deletion.finish(done.open())) == 1
    assert grids(done) == [] and files(done) == set()
    done.lose_ledger()
    assert grids(done) == []


def test_a_deletion_that_was_killed_leaves_no_run_where_the_ledger_was_lost_too(done: Lab) -> None:
    killed(done, f"{HERE}._forget", 1, "tiny")
    done.lose_ledger()
    deletion.finish(done.open())
    assert files(done) == set()
    complete(done, done.submit(tiny_grid()))
    assert [(row.state, row.attempts) for row in rows(done)] == [("completed", 1)] * 2


def test_a_deletion_whose_note_is_damaged_is_taken_back(done: Lab) -> None:
    killed(done, f"{HERE}._forget", 1, "tiny")
    (note,) = done.root.glob("deleted/*/what.json")
    note.write_text("{")
    deletion.finish(done.open())
    done.lose_ledger()
    assert grids(done) == ["tiny"] and set(done.states().values()) == {"completed"}


def test_what_is_left_to_remove_is_removed_the_next_time(done: Lab) -> None:
    killed(done, "shutil.rmtree", 1, "tiny")
    assert grids(done) == [] and files(done) != set()
    deletion.finish(done.open())
    assert files(done) == set()


def test_a_deletion_that_was_killed_is_taken_back_where_a_run_was_started_again(done: Lab) -> None:
    killed(done, f"{HERE}._forget", 1, "tiny")
    retry(done.open(), list(done.states()), clean=True)
    assert deletion.finish(done.open()) == []
    assert grids(done) == ["tiny"]
    done.lose_ledger()
    assert grids(done) == ["tiny"]


def test_a_submission_finishes_a_deletion_of_the_same_grid(done: Lab) -> None:
    killed(done, f"{HERE}._forget", 1, "tiny")
    done.submit(tiny_grid())
    assert set(done.states().values()) == {"pending"}
    assert deletion.finish(done.open()) == []
    assert grids(done) == ["tiny"]
