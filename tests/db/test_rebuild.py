"""A ledger that was made anew from the workspace equals the one that was lost."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from vtjobs.db import models as m
from vtjobs.db import rebuild as rebuild_module
from vtjobs.db.engine import open_engine, parse_url, writing
from vtjobs.db.ingest import ingest_evaluations, ingest_live
from vtjobs.db.ledger import Ledger
from vtjobs.db.models import metadata
from vtjobs.db.rebuild import adopt_allocations, make_ledger, rebuild
from vtjobs.jobs.atomic_files import make_folder, to_json, write_new
from vtjobs.jobs.run.spec import canonical, digest, seeds_of
from vtjobs.jobs.run.states import AttemptState, FailureClass
from vtjobs.jobs.values import changed
from vtjobs.jobs.workspace.journal import JournalWriter
from vtjobs.jobs.workspace.stored_grid import write_spec

from ..support.ledgers import World, an_allocation, measured, paper_grid

# When a ledger noticed something is not in the workspace. tests/test_rebuild.py has the whole list.
OWN_TIMES = {"changed_at"}


def emptied(world: World) -> Ledger:
    """Return the ledger after a loss: a database without a table."""
    world.ledger.engine.dispose()
    engine = open_engine(parse_url(world.url))
    with writing(engine) as connection:
        metadata.drop_all(connection)
        connection.execute(text("DROP TABLE alembic_version"))
    engine.dispose()
    return world.open(world.url)


def everything(world: World) -> dict[str, Any]:
    """Return what a rebuilt ledger must have in common with the lost one."""
    tables = {
        table.name: world.rows(table)
        for table in (m.runs, m.attempts, m.cells, m.grids, m.grid_runs)
    }
    kept = {
        name: [{key: row[key] for key in row.keys() - OWN_TIMES} for row in rows]
        for name, rows in tables.items()
    }
    kept["grids"] = tables["grids"]
    for row in kept["attempts"]:
        if row["state"] == "lost":
            # When and how it was noticed is not in the workspace.
            row |= {"ended_at": None, "signature": ""}
    # That a job was accepted, and how one ended without a word, is the scheduler's to tell.
    told = [
        (row["run_id"], row["attempt"], row["after"])
        for row in world.rows(m.events)
        if row["after"] not in ("queued", "lost")
    ]
    return {**kept, **measured(world), "told": sorted(told)}


@pytest.fixture
def lose_and_rebuild(world: World) -> Iterator[Callable[[], None]]:
    def check() -> None:
        before = everything(world)
        world.ledger = emptied(world)
        rebuild(world.ledger, world.workspace)
        after = everything(world)
        for name in before:
            assert after[name] == before[name], name

    yield check


def fail(
    world: World,
    run_id: str,
    number: int,
    failure: str,
    *,
    state: str = "failed",
    signature: str = "no",
) -> None:
    world.start(run_id, number)
    world.end(run_id, number, state, failure, signature=signature)
    ingest_live(world.ledger, world.workspace)


def test_finished_runs_and_their_numbers_come_back(
    world: World, lose_and_rebuild: Callable[[], None]
) -> None:
    run_ids = world.submit(paper_grid(cells=2, seeds=2))
    world.launch(*run_ids)
    for number, run_id in enumerate(run_ids):
        world.train(run_id, 1, 50.0 + number, 60.0 + number)
    ingest_live(world.ledger, world.workspace)
    lose_and_rebuild()
    assert set(world.states().values()) == {"completed"}


def test_what_attempts_used_comes_back(world: World, lose_and_rebuild: Callable[[], None]) -> None:
    run_ids = world.submit(paper_grid(seeds=2))
    world.launch(*run_ids)
    for run_id in run_ids:
        world.start(run_id, 1)
        usage = {"images_per_s": 812.5, "host_memory_bytes": 5 << 30}
        world.write(run_id, 1, "epoch", epoch=0, step=10, metrics={}, usage=usage)
    world.end(run_ids[0], 1, "preempted", "stopped")
    ingest_live(world.ledger, world.workspace)
    lose_and_rebuild()
    assert all(
        json.loads(row["usage"])["host_memory_bytes"] == 5 << 30 for row in world.rows(m.attempts)
    )


def test_what_was_found_is_counted(world: World) -> None:
    run_ids = world.submit(paper_grid(seeds=2))
    world.launch(*run_ids)
    world.train(run_ids[0], 1, 50.0)
    fail(world, run_ids[1], 1, "crash")
    world.launch(run_ids[1])
    world.train(run_ids[1], 2, 50.0)
    world.ledger = emptied(world)
    assert rebuild(world.ledger, world.workspace) == {
        "grids": 1,
        "runs": 2,
        "allocations": 2,
        "events": 14,
    }


def test_rebuilding_twice_adds_nothing(world: World) -> None:
    run_ids = world.submit(paper_grid(seeds=2))
    world.launch(*run_ids)
    world.train(run_ids[0], 1, 50.0)
    world.ledger = emptied(world)
    rebuild(world.ledger, world.workspace)
    before = everything(world)
    assert rebuild(world.ledger, world.workspace) == {
        "grids": 1,
        "runs": 0,
        "allocations": 0,
        "events": 0,
    }
    assert everything(world) == before


def test_streams_that_vary_apart_come_back_and_where_they_agree_it_is_the_seed(
    world: World, lose_and_rebuild: Callable[[], None]
) -> None:
    streams = {0: seeds_of(7), 1: seeds_of(0) | {"init": 1}}
    plain = paper_grid(seeds=2)
    texts = [
        plain.cells[0].spec.text(seeds=canonical(streams[place]), init_from=None)
        for place in streams
    ]
    runs = [(digest(text), 0, place, None) for place, text in enumerate(texts)]
    run_ids = world.submit(changed(plain, runs=runs, streams=streams))
    for run_id, spec in zip(run_ids, texts, strict=True):
        write_spec(world.workspace, plain.grid_id, run_id)
        assert world.folder(run_id).spec.read_text() == spec
    rows = {row["run_id"]: (row["seed"], row["streams"]) for row in world.rows(m.runs)}
    assert rows == {run_ids[0]: (7, ""), run_ids[1]: (1, canonical(streams[1]))}
    lose_and_rebuild()


def test_tries_that_were_spent_stay_spent(
    world: World, lose_and_rebuild: Callable[[], None]
) -> None:
    first, second = world.submit(paper_grid(seeds=2, retries=2))
    for number in (1, 2):
        world.launch(first)
        fail(world, first, number, "crash", signature=f"signal {number}")
    world.launch(second)
    fail(world, second, 1, "crash")
    lose_and_rebuild()
    assert world.states() == {first: "failed", second: "pending"}
    assert [row["failure"] for row in world.attempts(first)] == ["crash", "crash"]


def test_a_run_that_was_tried_again_keeps_how_each_attempt_ended(
    world: World, lose_and_rebuild: Callable[[], None]
) -> None:
    (run_id,) = world.submit(paper_grid())
    world.launch(run_id)
    world.start(run_id)
    world.epoch(run_id, 1, 0, 44.0)
    world.checkpoint(run_id, 1, 10)
    world.end(run_id, 1, "preempted", "stopped")
    ingest_live(world.ledger, world.workspace)
    world.launch(run_id)
    world.start(run_id, 2, resumed=(1, 10))
    world.epoch(run_id, 2, 1, 55.0)
    world.end(run_id, 2, "completed")
    ingest_live(world.ledger, world.workspace)
    lose_and_rebuild()
    assert [row["state"] for row in world.attempts(run_id)] == ["preempted", "completed"]
    assert [row["started_at"] is not None for row in world.attempts(run_id)] == [True, True]


def test_attempts_that_went_without_a_word_are_lost_again(
    world: World, lose_and_rebuild: Callable[[], None]
) -> None:
    (run_id,) = world.submit(paper_grid())
    for number, failure in ((1, "agent_died"), (2, "not_submitted")):
        world.launch(run_id)
        if failure == "agent_died":
            world.start(run_id, number)
            ingest_live(world.ledger, world.workspace)
        world.ledger.transition(run_id, number, AttemptState.LOST, source="local", failure=failure)
    world.launch(run_id, accept=False)
    lose_and_rebuild()
    assert [row["failure"] for row in world.attempts(run_id)] == [
        "agent_died",
        "not_submitted",
        None,
    ]


def test_an_attempt_that_was_lost_before_the_run_was_cancelled_stays_lost(
    world: World, lose_and_rebuild: Callable[[], None]
) -> None:
    (run_id,) = world.submit(paper_grid())
    world.launch(run_id)
    world.start(run_id)
    ingest_live(world.ledger, world.workspace)
    world.ledger.transition(
        run_id, 1, AttemptState.LOST, source="local", failure=FailureClass.AGENT_DIED
    )
    world.launch(run_id)
    world.start(run_id, 2)
    world.cancel(run_id)
    world.end(run_id, 2, "cancelled", "cancelled")
    ingest_live(world.ledger, world.workspace)
    lose_and_rebuild()
    assert [row["state"] for row in world.attempts(run_id)] == ["lost", "cancelled"]


def test_an_attempt_that_was_cancelled_and_left_no_end_record_is_cancelled_again(
    world: World, lose_and_rebuild: Callable[[], None]
) -> None:
    (run_id,) = world.submit(paper_grid())
    world.launch(run_id)
    world.start(run_id)
    world.cancel(run_id)
    ingest_live(world.ledger, world.workspace)
    found = {"failure": FailureClass.CANCELLED, "signature": "cancelled"}
    at = world.now
    world.ledger.transition(run_id, 1, AttemptState.CANCELLED, source="local", at=at, **found)
    world.grant(run_id)
    # The next one is written down at the moment when this one was seen to have ended.
    world.now = at - 1.0
    world.launch(run_id, accept=False)
    lose_and_rebuild()
    assert [row["state"] for row in world.attempts(run_id)] == ["cancelled", "submitting"]


def test_queued_work_comes_back_as_submitted_and_unanswered(
    world: World, lose_and_rebuild: Callable[[], None]
) -> None:
    run_ids = world.submit(paper_grid(seeds=3))
    world.launch(*run_ids[:2], accept=False)
    lose_and_rebuild()
    assert sorted(world.states().values()) == ["pending", "queued", "queued"]
    (allocation,) = world.rows(m.allocations)
    assert allocation["job_id"] is None, "the scheduler is asked before anything is submitted again"
    assert world.launch(run_ids[0]) is None


def test_a_running_attempt_comes_back_running(
    world: World, lose_and_rebuild: Callable[[], None]
) -> None:
    (run_id,) = world.submit(paper_grid())
    world.launch(run_id)
    world.start(run_id)
    world.epoch(run_id, 1, 0, 44.0)
    ingest_live(world.ledger, world.workspace)
    lose_and_rebuild()
    assert world.states() == {run_id: "running"}


def test_cancels_come_back(world: World, lose_and_rebuild: Callable[[], None]) -> None:
    never, once = world.submit(paper_grid(seeds=2))
    world.cancel(never)
    world.launch(once)
    world.start(once)
    world.cancel(once)
    world.end(once, 1, "cancelled", "cancelled")
    ingest_live(world.ledger, world.workspace)
    lose_and_rebuild()
    assert world.states() == {never: "cancelled", once: "cancelled"}


def test_a_try_that_was_granted_after_a_cancel_comes_back(
    world: World, lose_and_rebuild: Callable[[], None]
) -> None:
    waiting, done = world.submit(paper_grid(seeds=2))
    for run_id in (waiting, done):
        world.launch(run_id)
        world.start(run_id)
        world.cancel(run_id)
        world.end(run_id, 1, "cancelled", "cancelled")
        ingest_live(world.ledger, world.workspace)
        world.grant(run_id)
    world.launch(done)
    world.train(done, 3, 50.0)
    ingest_live(world.ledger, world.workspace)
    lose_and_rebuild()
    assert world.states() == {waiting: "pending", done: "completed"}


@pytest.mark.parametrize("again", [False, True])
def test_a_rerun_starts_clean_once(
    world: World, lose_and_rebuild: Callable[[], None], again: bool
) -> None:
    asked, begun = world.submit(paper_grid(seeds=2))
    world.launch(asked, begun)
    for run_id in (asked, begun):
        world.train(run_id, 1, 90.0, 91.0)
        ingest_live(world.ledger, world.workspace)
        world.grant(run_id, clean=True)
    if again:
        world.grant(asked)
    world.launch(begun)
    world.start(begun, 2)
    world.epoch(begun, 2, 0, 10.0)
    world.end(begun, 2, "preempted", "stopped")
    ingest_live(world.ledger, world.workspace)
    lose_and_rebuild()
    assert {row["run_id"]: row["clean_next"] for row in world.rows(m.runs)} == {
        asked: True,
        begun: False,
    }
    assert world.states() == {asked: "pending", begun: "pending"}


def test_a_halved_micro_batch_stays_halved(
    world: World, lose_and_rebuild: Callable[[], None]
) -> None:
    waiting, tried = world.submit(paper_grid(seeds=2, halve_micro_batch=True))
    world.launch(waiting, tried)
    for run_id in (waiting, tried):
        fail(world, run_id, 1, "out_of_memory", state="out_of_memory")
    world.launch(tried)
    fail(world, tried, 2, "crash")
    assert {row["micro_split"] for row in world.rows(m.runs)} == {2}
    lose_and_rebuild()


def test_a_halving_before_a_granted_try_stays(
    world: World, lose_and_rebuild: Callable[[], None]
) -> None:
    (run_id,) = world.submit(paper_grid(halve_micro_batch=True))
    for number in (1, 2):
        world.launch(run_id)
        fail(world, run_id, number, "out_of_memory", state="out_of_memory")
    assert world.states() == {run_id: "failed"}
    world.grant(run_id)
    world.launch(run_id)
    fail(world, run_id, 3, "out_of_memory", state="out_of_memory")
    assert world.rows(m.runs)[0]["micro_split"] == 4
    lose_and_rebuild()


def test_a_wait_before_the_next_try_comes_back(
    world: World, lose_and_rebuild: Callable[[], None]
) -> None:
    (run_id,) = world.submit(paper_grid())
    world.launch(run_id)
    fail(world, run_id, 1, "storage")
    assert world.rows(m.runs)[0]["not_before"] > world.now
    lose_and_rebuild()


def test_stages_come_back_with_what_blocks_them(
    world: World, lose_and_rebuild: Callable[[], None]
) -> None:
    runs = world.submit(paper_grid(seeds=2, stages=("pretrain", "finetune")))
    good, bad = runs[:2]
    world.launch(good, bad)
    world.train(good, 1, 50.0)
    fail(world, bad, 1, "setup_error")
    assert sorted(world.states().values()) == ["blocked", "completed", "failed", "pending"]
    lose_and_rebuild()


def test_several_grids_come_back_in_the_order_of_their_submission(
    world: World, lose_and_rebuild: Callable[[], None]
) -> None:
    world.submit(paper_grid("zeta", cells=2, retries=1, at=10.0))
    world.submit(paper_grid("alpha", cells=3, retries=9, at=20.0))
    world.submit(paper_grid("zeta", cells=2, retries=5, at=30.0))
    lose_and_rebuild()
    assert sorted(row["tries"] for row in world.rows(m.runs)) == [5, 5, 9]


def test_damaged_journals_are_reported_again(
    world: World, lose_and_rebuild: Callable[[], None]
) -> None:
    (run_id,) = world.submit(paper_grid())
    world.launch(run_id)
    world.start(run_id)
    world.epoch(run_id, 1, 0, 44.0)
    ingest_live(world.ledger, world.workspace)
    path = world.folder(run_id).journal(1, 0)
    path.write_bytes(path.read_bytes() + b"00000000 {}\n")
    world.epoch(run_id, 1, 1, 45.0)
    ingest_live(world.ledger, world.workspace)
    assert world.rows(m.journals)[0]["state"] == "damaged"
    lose_and_rebuild()


def test_evaluations_of_finished_runs_come_back(
    world: World, lose_and_rebuild: Callable[[], None]
) -> None:
    (run_id,) = world.submit(paper_grid())
    world.launch(run_id)
    world.train(run_id, 1, 50.0)
    writer = JournalWriter(make_folder(world.folder(run_id).evaluations) / "0001-abc.jsonl")
    writer.write("evaluation", at=9.0, epoch=0, step=10, set="shifted", metrics={"top1": 33.0})
    writer.close()
    ingest_live(world.ledger, world.workspace)
    ingest_evaluations(world.ledger, world.workspace, [run_id])
    lose_and_rebuild()
    assert {row["set_name"] for row in world.rows(m.results)} == {"test", "shifted"}


def test_a_grid_whose_submission_was_cut_off_counts_for_nothing(
    world: World, tmp_path: Path
) -> None:
    whole = paper_grid("whole")
    cut = paper_grid("cut", first_cell=1)
    world.submit(whole)
    world.submit(cut)
    (world.workspace.grid(cut.grid_id) / "grid.json").unlink()
    world.ledger = emptied(world)
    assert rebuild(world.ledger, world.workspace)["grids"] == 1
    assert list(world.states()) == [whole.runs[0][0]]


def test_a_successor_that_an_agent_submitted_is_found_after_the_end_before_it(world: World) -> None:
    (run_id,) = world.submit(paper_grid())
    world.launch(run_id)
    world.start(run_id)
    ingest_live(world.ledger, world.workspace)
    # Between the ledger's last look and this one: the end record, then the successor's file.
    world.end(run_id, 1, "timeout", "walltime")
    other = World(world.workspace.root, world.url)
    other.tokens = 7
    ingest_live(other.ledger, other.workspace)
    token = other.launch(run_id)
    assert token is not None
    other.close()
    content = world.workspace.allocation(token).read_bytes()
    world.workspace.allocation(token).unlink()
    world.ledger = emptied(world)
    rebuild(world.ledger, world.workspace)
    world.workspace.allocation(token).write_bytes(content)
    assert adopt_allocations(world.ledger, world.workspace, {"vtj-000001"}) == 1
    assert [row["state"] for row in world.attempts(run_id)] == ["timeout", "submitting"]


def test_an_allocation_that_is_found_late_leaves_a_row_that_later_attempts_build_upon(
    world: World,
) -> None:
    (run_id,) = world.submit(paper_grid(seeds=1))
    world.launch(run_id)
    fail(world, run_id, 1, "walltime", state="timeout")
    # Handed on by an agent as attempt 2; before that was seen, somebody started attempt 3.
    found = an_allocation([(run_id, 2)], token="vtj-found", at=world.clock())
    world.folder(run_id).claim(2)
    world.launch(run_id)
    world.start(run_id, 2)
    world.epoch(run_id, 2, 0, 77.0)
    world.end(run_id, 2, "completed")
    world.end(run_id, 3, "superseded", "superseded", signature="attempt 2 completed the run")
    ingest_live(world.ledger, world.workspace)
    write_new(world.workspace.allocation(found.token), to_json(found.to_dict()))
    assert adopt_allocations(world.ledger, world.workspace, {"vtj-000001", "vtj-000002"}) == 1
    ingest_live(world.ledger, world.workspace)
    assert [(row["number"], row["state"]) for row in world.attempts(run_id)] == [
        (1, "timeout"), (2, "superseded"), (3, "completed"),
    ]  # fmt: skip
    assert {row["metric"]: row["last"] for row in world.rows(m.results)}["top1"] == 77.0


def test_a_ledger_that_is_made_anew_appears_whole_or_not_at_all(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.submit(paper_grid(seeds=2))
    place = tmp_path / "anew" / "ledger.sqlite"
    identity = world.workspace.check()["id"]

    def dies(*_: Any) -> None:
        assert not place.exists()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(rebuild_module, "_adopt", dies)
        make_ledger(place, world.workspace, workspace_id=identity)
    assert list(place.parent.iterdir()) == []
    assert make_ledger(place, world.workspace, workspace_id=identity)["runs"] == 2
    assert [path.name for path in place.parent.iterdir()] == [place.name]
    assert set(world.states(Ledger.open(str(place), workspace_id=identity)).values()) == {"pending"}


def test_of_two_ledgers_that_are_made_at_once_the_first_holds(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.submit(paper_grid(seeds=1))
    place, identity = tmp_path / "anew.sqlite", world.workspace.check()["id"]
    other, make = [], rebuild_module.rebuild

    def slow(*arguments: Any) -> dict[str, int]:
        if not other:
            other.append(place)
            make_ledger(place, world.workspace, workspace_id=identity)
            other.append(place.stat().st_ino)
        return make(*arguments)

    monkeypatch.setattr(rebuild_module, "rebuild", slow)
    make_ledger(place, world.workspace, workspace_id=identity)
    assert place.stat().st_ino == other[1]
