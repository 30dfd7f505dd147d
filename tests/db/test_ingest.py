"""Journals -> ledger: whole, once, in any portions."""

import os
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, update

from vtjobs.db import ingest as ingest_module
from vtjobs.db import models as m
from vtjobs.db.engine import reading, writing
from vtjobs.db.ingest import ingest, ingest_evaluations, ingest_live
from vtjobs.db.queries import attempts_of, damaged_journals
from vtjobs.jobs.atomic_files import make_folder
from vtjobs.jobs.run.states import AttemptState
from vtjobs.jobs.workspace.events import Usage
from vtjobs.jobs.workspace.journal import JournalWriter

from ..support.ledgers import World, journal_bytes, measured, paper_grid


def launched(world: World, **grid: Any) -> str:
    run_id = world.submit(paper_grid(**grid))[0]
    world.launch(run_id)
    return run_id


def some_events(epochs: int = 3) -> list[dict[str, Any]]:
    """Return what a short training leaves in its journal."""
    found: list[dict[str, Any]] = [
        {"kind": "start", "at": 1.0, "attempt": 1, "host": "n", "world_size": 2, "exact": None, "software": {},
         "resumed_attempt": None, "resumed_step": None}
    ]  # fmt: skip
    for epoch in range(epochs):
        place = {"epoch": epoch, "step": 10 * epoch + 10, "at": 2.0 + epoch}
        found += [
            {"kind": "progress", **place, "steps": 10 * epochs},
            {"kind": "epoch", **place, "metrics": {"loss": 1.5}},
            {"kind": "evaluation", **place, "set": "test", "metrics": {"top1": 50.0 + epoch}},
            {"kind": "checkpoint", **place, "bytes": 99},
            {"kind": "heartbeat", "at": 2.5 + epoch},
        ]
    ended = {
        "class": None,
        "signature": "",
        "error": "",
        "exit_code": 0,
        "epoch": None,
        "step": None,
        "rank": None,
    }
    return [*found, {"kind": "end", "at": 9.0, "state": "completed", **ended}]


def put(world: World, run_id: str, data: bytes, *, number: int = 1, node: int = 0) -> Path:
    make_folder(world.folder(run_id).attempt(number))
    path = world.folder(run_id).journal(number, node)
    path.write_bytes(data)
    return path


def test_a_journal_becomes_rows_states_and_results(world: World) -> None:
    run_id = launched(world)
    world.train(run_id, 1, 51.0, 73.0, 72.0)
    assert ingest_live(world.ledger, world.workspace) == 12
    (attempt,) = world.attempts(run_id)
    wanted = {
        "state": "completed", "host": "node7", "world_size": 1, "epoch": 2, "step": 30, "steps": 100,
        "checkpoint_step": 30, "exit_code": 0, "failure": None,
    }  # fmt: skip
    assert {name: attempt[name] for name in wanted} == wanted
    assert attempt["started_at"] < attempt["heartbeat_at"] == attempt["ended_at"]
    assert world.states() == {run_id: "completed"}
    assert [row["epoch"] for row in world.rows(m.epoch_metrics)] == [0, 1, 2]
    assert [row["step"] for row in world.rows(m.evaluations)] == [10, 20, 30]
    assert [(row["step"], row["bytes"]) for row in world.rows(m.checkpoints)] == [(30, 1234)]
    names = ("last", "last_epoch", "best", "best_epoch")
    results = {row["metric"]: tuple(row[name] for name in names) for row in world.rows(m.results)}
    assert results == {
        "top1": (72.0, 2, 73.0, 1),
        "loss": (pytest.approx(1.28), 2, pytest.approx(1.27), 1),
    }


def test_the_length_of_a_run_is_known_from_its_start_on_and_where_a_resume_begins(
    world: World,
) -> None:
    run_id = launched(world)
    facts = {"attempt": 1, "resumed_attempt": None, "resumed_step": None, "steps": 400}
    world.folder(run_id).claim(1)
    world.write(run_id, 1, "start", **facts)
    ingest_live(world.ledger, world.workspace)
    (attempt,) = world.attempts(run_id)
    assert (attempt["step"], attempt["steps"]) == (None, 400)
    world.write(run_id, 1, "end", state="preempted")
    ingest_live(world.ledger, world.workspace)
    world.launch(run_id)
    world.folder(run_id).claim(2)
    world.write(run_id, 2, "start", **facts | {"resumed_attempt": 1, "resumed_step": 120})
    ingest_live(world.ledger, world.workspace)
    assert [(row["step"], row["steps"]) for row in world.attempts(run_id)] == [
        (None, 400),
        (120, 400),
    ]


@pytest.mark.parametrize("kind", ["progress", "epoch", "checkpoint"])
def test_the_seconds_that_an_attempt_has_trained_belong_to_its_newest_step(
    world: World, kind: str
) -> None:
    run_id = launched(world)
    world.start(run_id)
    world.write(run_id, 1, "progress", epoch=0, step=4, steps=40, trained_s=2.0)
    world.write(run_id, 1, kind, epoch=1, step=8, trained_s=5.5, metrics={}, bytes=1)
    ingest_live(world.ledger, world.workspace)
    (attempt,) = world.attempts(run_id)
    assert (attempt["step"], attempt["trained_s"]) == (8, 5.5)


def test_an_end_record_brings_class_signature_and_error(world: World) -> None:
    run_id = launched(world)
    world.start(run_id)
    world.write(
        run_id, 1, "end", state="failed", **{"class": "user_error"}, signature="ValueError: no", error="Traceback …",
        exit_code=70, epoch=0, step=3, rank=1,
    )  # fmt: skip
    ingest_live(world.ledger, world.workspace)
    (attempt,) = world.attempts(run_id)
    assert (attempt["failure"], attempt["signature"], attempt["exit_code"]) == (
        "user_error",
        "ValueError: no",
        70,
    )
    assert attempt["error"] == "Traceback …" and attempt["step"] == 3
    assert world.events(run_id)[-1]["source"] == "journal"


def test_a_clock_that_jumps_an_hour_to_and_fro_changes_no_outcome(world: World) -> None:
    run_id = launched(world)
    events = some_events()
    for index, event in enumerate(events):
        event["at"] += 3600.0 * (-1) ** index
    put(world, run_id, journal_bytes(events))
    ingest_live(world.ledger, world.workspace)
    assert world.states() == {run_id: "completed"}
    (top1,) = [row for row in world.rows(m.results) if row["metric"] == "top1"]
    assert (top1["last"], top1["last_epoch"]) == (52.0, 2)


def test_reading_again_finds_nothing_and_changes_nothing(world: World) -> None:
    run_id = launched(world)
    world.train(run_id, 1, 51.0, 73.0)
    assert ingest(world.ledger, world.workspace, [(run_id, 1)]) == 9
    before, events = measured(world), world.rows(m.events)
    assert ingest(world.ledger, world.workspace, [(run_id, 1)]) == 0
    assert measured(world) == before and world.rows(m.events) == events


def test_a_lost_offset_reads_everything_again_and_counts_nothing_twice(world: World) -> None:
    run_id = launched(world)
    world.train(run_id, 1, 51.0, 73.0)
    ingest(world.ledger, world.workspace, [(run_id, 1)])
    before, attempts, events = measured(world), world.rows(m.attempts), world.rows(m.events)
    with writing(world.ledger.engine) as connection:
        connection.execute(update(m.journals).values(read_bytes=0))
    assert ingest(world.ledger, world.workspace, [(run_id, 1)]) == 9
    assert measured(world) == before
    assert (world.rows(m.attempts), world.rows(m.events)) == (attempts, events)
    with writing(world.ledger.engine) as connection:
        connection.execute(delete(m.journals))
    assert ingest(world.ledger, world.workspace, [(run_id, 1)]) == 9
    assert measured(world) == before


def test_a_journal_that_is_named_twice_in_one_call_counts_once(world: World) -> None:
    run_id = launched(world)
    world.train(run_id, 1, 51.0, 73.0)
    ingest(world.ledger, world.workspace, [(run_id, 1), (run_id, 1)])
    assert len(world.rows(m.epoch_metrics)) == 2 and len(world.rows(m.checkpoints)) == 1
    assert [row["after"] for row in world.events(run_id)] == [
        "submitting",
        "queued",
        "running",
        "completed",
    ]


def test_a_copy_of_a_journal_under_another_node_moves_no_state_twice(world: World) -> None:
    run_id = launched(world)
    put(world, run_id, journal_bytes(some_events()))
    put(world, run_id, journal_bytes(some_events()), node=1)
    ingest_live(world.ledger, world.workspace)
    assert [row["after"] for row in world.events(run_id)] == [
        "submitting",
        "queued",
        "running",
        "completed",
    ]
    assert len(world.rows(m.checkpoints)) == 3
    assert {(row["metric"], row["last"], row["best"]) for row in world.rows(m.results)} == {
        ("top1", 52.0, 52.0)
    }


def test_what_other_nodes_of_an_attempt_write_is_never_adopted(world: World) -> None:
    run_id = launched(world)
    world.write(run_id, 1, "start", node=1, attempt=1, host="node8", gpus=[])
    ingest_live(world.ledger, world.workspace)
    assert world.attempts(run_id)[0]["state"] == "queued"
    world.start(run_id)
    ingest_live(world.ledger, world.workspace)
    before = world.attempts(run_id)[0]
    assert (before["state"], before["host"]) == ("running", "node7")
    ended = {"signature": "oops", "error": "", "exit_code": 70, "epoch": 9, "step": 99, "rank": 1}
    world.write(run_id, 1, "heartbeat", node=1)
    world.write(run_id, 1, "end", node=1, state="failed", **{"class": "user_error"}, **ended)
    ingest_live(world.ledger, world.workspace)
    # No state, no signature, no step, and no sign of life either: node 0 may be dead.
    assert world.attempts(run_id)[0] == before


def test_the_node_where_it_went_wrong_is_the_one_to_avoid(world: World) -> None:
    run_id = launched(world)
    world.start(run_id)
    ended = {
        "signature": "oops",
        "error": "",
        "exit_code": 77,
        "epoch": 1,
        "step": 10,
        "rank": None,
        "host": "node8",
    }
    world.write(run_id, 1, "end", state="failed", **{"class": "communication"}, **ended)
    ingest_live(world.ledger, world.workspace)
    assert world.attempts(run_id)[0]["host"] == "node8"


def test_a_stop_that_nobody_explained_leaves_the_attempt_to_the_schedulers_word(
    world: World,
) -> None:
    run_id = launched(world)
    world.start(run_id)
    ended = {
        "signature": "stopped and saved",
        "error": "",
        "exit_code": 75,
        "epoch": 1,
        "step": 10,
        "rank": None,
    }
    world.write(
        run_id, 1, "end", state="preempted", **{"class": "stopped"}, explained=False, **ended
    )
    ingest_live(world.ledger, world.workspace)
    (attempt,) = world.attempts(run_id)
    assert (attempt["state"], attempt["ended_at"], attempt["failure"]) == ("running", None, None)
    assert (attempt["signature"], attempt["step"]) == ("stopped and saved", 10)
    assert attempt["heartbeat_at"] > attempt["started_at"]
    assert world.ledger.transition(run_id, 1, AttemptState.CANCELLED, source="sacct")
    assert world.states()[run_id] == "cancelled"


def test_a_journal_may_be_read_at_every_byte_of_its_growth(world: World) -> None:
    whole, cut = world.submit(paper_grid(seeds=2))
    world.launch(whole, cut)
    data = journal_bytes(some_events(epochs=2))
    put(world, whole, data)
    ingest(world.ledger, world.workspace, [(whole, 1)])
    path = put(world, cut, b"")
    total, step = 0, 7 if world.ledger.engine.dialect.name == "sqlite" else 31
    for size in [*range(0, len(data), step), len(data)]:
        path.write_bytes(data[:size])
        total += ingest(world.ledger, world.workspace, [(cut, 1)])
    assert total == len(some_events(epochs=2))
    found = measured(world)
    for name, rows in found.items():
        split = {
            key: [{**row, "run_id": ""} for row in rows if row["run_id"] == key]
            for key in (whole, cut)
        }
        assert split[whole] == split[cut], name
    left, right = world.attempts(whole)[0], world.attempts(cut)[0]
    assert {**left, "run_id": ""} == {**right, "run_id": ""}


def test_two_readers_in_turn_lose_and_double_nothing(world: World) -> None:
    run_id = launched(world)
    other = world.open(world.url)
    data = journal_bytes(some_events(epochs=4))
    path = put(world, run_id, b"")
    total = 0
    for turn, size in enumerate(range(0, len(data) + 50, 50)):
        path.write_bytes(data[:size])
        total += ingest(world.ledger if turn % 2 else other, world.workspace, [(run_id, 1)])
    other.engine.dispose()
    assert total == len(some_events(epochs=4))
    assert len(world.rows(m.epoch_metrics)) == 4 and world.states() == {run_id: "completed"}


def used(world: World, run_id: str, kind: str, *, step: int = 20, **usage: Any) -> None:
    """Write an event that says what the attempt uses."""
    fields: dict[str, Any] = {"epoch": {"metrics": {}}, "checkpoint": {"bytes": 1}}[kind]
    world.write(run_id, 1, kind, epoch=step // 10 - 1, step=step, usage=usage, **fields)


def usage_of(world: World, run_id: str) -> Usage | None:
    with reading(world.ledger.engine) as connection:
        return attempts_of(connection, run_id)[0].usage


@pytest.mark.paper("OR-08")
def test_the_ledger_knows_which_software_and_how_many_parameters_an_attempt_trains(
    world: World,
) -> None:
    run_id = launched(world)
    with reading(world.ledger.engine) as connection:
        assert attempts_of(connection, run_id)[0].software is None
    world.start(run_id, 1)
    used(world, run_id, "epoch", parameters=5_717_416)
    ingest_live(world.ledger, world.workspace)
    with reading(world.ledger.engine) as connection:
        (attempt,) = attempts_of(connection, run_id)
    assert attempt.software == {"torch": "2.6", "vtjobs": "0.1"}
    assert attempt.usage is not None and attempt.usage.parameters == 5_717_416


@pytest.mark.paper("OR-08")
def test_an_attempts_usage_is_what_its_newest_event_says(world: World) -> None:
    run_id = launched(world)
    world.start(run_id, 1)
    world.epoch(run_id, 1, 0, 50.0)
    ingest_live(world.ledger, world.workspace)
    assert usage_of(world, run_id) is None, "an older agent says nothing of it"
    used(world, run_id, "epoch", images_per_s=900.5, host_memory_bytes=5)
    used(world, run_id, "checkpoint", images_per_s=800.0, data_wait=0.25, host_memory_bytes=6)
    ingest_live(world.ledger, world.workspace)
    assert usage_of(world, run_id) == Usage(images_per_s=800.0, data_wait=0.25, host_memory_bytes=6)
    world.write(run_id, 1, "heartbeat")
    world.end(run_id, 1, "completed")
    ingest_live(world.ledger, world.workspace)
    assert usage_of(world, run_id) == Usage(images_per_s=800.0, data_wait=0.25, host_memory_bytes=6)


def test_a_figure_of_a_newer_agent_is_passed_over(world: World) -> None:
    run_id = launched(world)
    world.start(run_id, 1)
    used(world, run_id, "epoch", cpu_cores=2.0, watts=300)
    assert ingest_live(world.ledger, world.workspace) == 2
    assert usage_of(world, run_id) == Usage(cpu_cores=2.0)


def test_a_slower_reader_does_not_set_progress_or_offset_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = launched(world)
    world.start(run_id)
    world.epoch(run_id, 1, 0, 50.0)
    used(world, run_id, "checkpoint", step=10, cpu_cores=3.0)
    faster = world.open(world.url)
    real = ingest_module._commit

    def overtaken(*arguments: Any) -> Any:
        # Between this reader's look at the file and its transaction, another one reads more and
        # commits.
        monkeypatch.setattr(ingest_module, "_commit", real)
        world.epoch(run_id, 1, 1, 60.0)
        used(world, run_id, "checkpoint", cpu_cores=1.5)
        assert ingest(faster, world.workspace, [(run_id, 1)]) == 9
        return real(*arguments)

    monkeypatch.setattr(ingest_module, "_commit", overtaken)
    assert ingest(world.ledger, world.workspace, [(run_id, 1)]) == 5
    faster.engine.dispose()
    (attempt,) = world.attempts(run_id)
    assert (attempt["epoch"], attempt["step"], attempt["checkpoint_step"]) == (1, 20, 20)
    assert (
        world.rows(m.journals)[0]["read_bytes"] == world.folder(run_id).journal(1, 0).stat().st_size
    )
    assert len(world.rows(m.checkpoints)) == 2
    assert usage_of(world, run_id) == Usage(cpu_cores=1.5)


def test_large_journals_are_read_in_portions_with_the_same_outcome(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_ids = world.submit(paper_grid(seeds=3))
    world.launch(*run_ids)
    for run_id in run_ids:
        put(world, run_id, journal_bytes(some_events(epochs=20)))
    monkeypatch.setattr(ingest_module, "BATCH_BYTES", 700)
    assert ingest_live(world.ledger, world.workspace) == 3 * len(some_events(epochs=20))
    assert len(world.rows(m.epoch_metrics)) == 60 and len(world.rows(m.checkpoints)) == 60
    assert set(world.states().values()) == {"completed"}


@pytest.mark.parametrize("tail", [b"1234", b'00000000 {"seq":99', b"\0" * 40, b"garbage\n"])
def test_a_torn_tail_is_left_until_it_is_whole(world: World, tail: bytes) -> None:
    run_id = launched(world)
    data = journal_bytes(some_events()[:6])
    path = put(world, run_id, data + tail)
    assert ingest_live(world.ledger, world.workspace) == 6
    assert world.rows(m.journals)[0]["read_bytes"] == len(data)
    assert ingest_live(world.ledger, world.workspace) == 0
    path.write_bytes(journal_bytes(some_events()))
    assert ingest_live(world.ledger, world.workspace) == len(some_events()) - 6
    assert world.states() == {run_id: "completed"}


@pytest.mark.parametrize("portions", [False, True])
def test_a_damaged_line_in_the_middle_sets_the_journal_aside_up_to_there_and_is_reported(
    world: World, portions: bool
) -> None:
    run_id = launched(world)
    lines = journal_bytes(some_events()).splitlines(keepends=True)
    damaged = bytearray(lines[7])
    damaged[20] ^= 4
    path = put(world, run_id, b"".join(lines[:4]) if portions else b"")
    ingest_live(world.ledger, world.workspace)
    path.write_bytes(b"".join([*lines[:7], bytes(damaged), *lines[8:]]))
    ingest_live(world.ledger, world.workspace)
    with reading(world.ledger.engine) as connection:
        (note,) = damaged_journals(connection)
    assert (note["run_id"], note["attempt"], note["read_bytes"]) == (
        run_id,
        1,
        len(b"".join(lines[:7])),
    )
    assert "damaged line" in note["note"]
    assert [row["epoch"] for row in world.rows(m.epoch_metrics)] == [0]
    assert world.attempts(run_id)[0]["state"] == "running", (
        "the end lies behind the damage, so it is not believed"
    )
    before = measured(world)
    assert ingest_live(world.ledger, world.workspace) == 0
    assert measured(world) == before


def test_one_damaged_journal_does_not_keep_the_others_from_being_read(world: World) -> None:
    run_ids = world.submit(paper_grid(seeds=3))
    world.launch(*run_ids)
    for run_id in run_ids:
        put(world, run_id, journal_bytes(some_events()))
    path = world.folder(run_ids[1]).journal(1, 0)
    path.write_bytes(b"x" + path.read_bytes())
    ingest_live(world.ledger, world.workspace)
    assert [world.states()[run_id] for run_id in run_ids] == ["completed", "queued", "completed"]


def test_a_journal_that_vanished_is_no_error(world: World) -> None:
    run_id = launched(world)
    world.start(run_id)
    ingest_live(world.ledger, world.workspace)
    os.unlink(world.folder(run_id).journal(1, 0))
    assert ingest_live(world.ledger, world.workspace) == 0
    assert world.states() == {run_id: "running"}


def test_a_superseded_attempts_end_is_not_adopted(world: World) -> None:
    run_id = launched(world)
    world.start(run_id)
    world.checkpoint(run_id, 1, 10)
    ingest_live(world.ledger, world.workspace)
    # Another host resubmitted the run; its attempt started before this ledger heard of it.
    world.folder(run_id).claim(2)
    world.start(run_id, 2, resumed=(1, 10))
    world.end(run_id, 1, "completed")
    ingest_live(world.ledger, world.workspace)
    (attempt,) = world.attempts(run_id)
    assert attempt["state"] == "superseded"
    assert world.events(run_id)[-1]["raw"] == "end completed, after a higher attempt had started"
    assert world.states() == {run_id: "pending"} and world.rows(m.results) == []


def test_a_lost_attempts_late_completion_after_a_higher_one_started_is_kept_and_not_adopted(
    world: World,
) -> None:
    run_id = launched(world)
    world.start(run_id)
    world.epoch(run_id, 1, 0, 50.0)
    ingest_live(world.ledger, world.workspace)
    world.ledger.transition(run_id, 1, AttemptState.LOST, source="local", failure="agent_died")
    world.launch(run_id)
    world.start(run_id, 2)
    ingest_live(world.ledger, world.workspace)
    world.epoch(run_id, 1, 1, 99.0)
    world.end(run_id, 1, "completed")
    ingest(world.ledger, world.workspace, [(run_id, 1), (run_id, 2)])
    assert [row["state"] for row in world.attempts(run_id)] == ["lost", "running"]
    assert world.states() == {run_id: "running"}
    world.epoch(run_id, 2, 0, 40.0)
    world.end(run_id, 2, "completed")
    ingest_live(world.ledger, world.workspace)
    (top1,) = [row for row in world.rows(m.results) if row["metric"] == "top1"]
    assert (top1["last"], top1["last_epoch"], top1["best"]) == (40.0, 0, 40.0)
    assert {row["attempt"] for row in world.rows(m.evaluations)} == {1, 2}, "kept"


def test_a_run_whose_lost_attempt_had_completed_is_completed_by_the_next_that_finds_it(
    world: World,
) -> None:
    run_id = launched(world)
    world.start(run_id)
    ingest_live(world.ledger, world.workspace)
    world.ledger.transition(run_id, 1, AttemptState.LOST, source="squeue", failure="agent_died")
    world.epoch(run_id, 1, 0, 77.0)
    world.end(run_id, 1, "completed")
    world.launch(run_id)
    world.folder(run_id).claim(2)
    world.end(run_id, 2, "superseded", "superseded", signature="attempt 1 completed the run")
    ingest_live(world.ledger, world.workspace)
    assert world.states() == {run_id: "completed"}, "or the run would be started for ever"
    assert world.launch(run_id) is None
    assert {row["metric"]: row["last"] for row in world.rows(m.results)}["top1"] == 77.0


def test_what_an_attempt_wrote_before_it_was_given_up_is_read_when_a_higher_one_goes_on_from_it(
    world: World,
) -> None:
    run_id = launched(world)
    world.start(run_id)
    ingest_live(world.ledger, world.workspace)
    world.epoch(run_id, 1, 0, 88.0)
    world.checkpoint(run_id, 1, 10)
    world.ledger.transition(run_id, 1, AttemptState.LOST, source="local", failure="agent_died")
    world.launch(run_id)
    world.start(run_id, 2, resumed=(1, 10))
    world.epoch(run_id, 2, 1, 60.0)
    world.end(run_id, 2, "completed")
    ingest_live(world.ledger, world.workspace)
    (top1,) = [row for row in world.rows(m.results) if row["metric"] == "top1"]
    assert (top1["last"], top1["best"], top1["best_epoch"]) == (60.0, 88.0, 0)


def test_a_reader_that_dies_between_an_attempt_and_what_it_builds_upon_loses_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = launched(world)
    world.start(run_id)
    ingest_live(world.ledger, world.workspace)
    world.epoch(run_id, 1, 0, 88.0)
    world.checkpoint(run_id, 1, 10)
    world.ledger.transition(run_id, 1, AttemptState.LOST, source="local", failure="agent_died")
    world.launch(run_id)
    world.start(run_id, 2, resumed=(1, 10))
    world.epoch(run_id, 2, 1, 60.0)
    world.end(run_id, 2, "completed")
    commit, done = ingest_module._commit, []

    def once(*arguments: Any) -> Any:
        if done:
            raise KeyboardInterrupt
        done.append(arguments)
        return commit(*arguments)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(ingest_module, "_commit", once)
        ingest_live(world.ledger, world.workspace)
    assert world.states() == {run_id: "completed"}
    ingest_live(world.ledger, world.workspace)
    (top1,) = [row for row in world.rows(m.results) if row["metric"] == "top1"]
    assert (top1["last"], top1["best"], top1["best_epoch"]) == (60.0, 88.0, 0)
    assert {row["state"] for row in world.rows(m.journals)} == {"open"}, (
        "and nothing is read for ever"
    )


def test_a_stop_that_nobody_explained_leaves_the_attempt_live(world: World) -> None:
    run_id = launched(world)
    world.start(run_id)
    ended = {"error": "", "exit_code": 75, "epoch": None, "step": None, "rank": None}
    world.write(
        run_id,
        1,
        "end",
        state="preempted",
        **{"class": "stopped"},
        signature="stopped",
        explained=False,
        **ended,
    )
    ingest_live(world.ledger, world.workspace)
    (attempt,) = world.attempts(run_id)
    assert (attempt["state"], attempt["signature"]) == ("running", "stopped")


def test_the_epochs_of_a_finished_run_are_scored_anew_by_an_evaluation(world: World) -> None:
    run_id = launched(world)
    world.train(run_id, 1, 51.0, 73.0)
    ingest_live(world.ledger, world.workspace)
    folder = make_folder(world.folder(run_id).evaluations)
    writer = JournalWriter(folder / "0001-abcdef.jsonl")
    writer.write("evaluation", at=9.0, epoch=1, step=20, set="shifted", metrics={"top1": 33.0})
    writer.close()
    assert ingest_evaluations(world.ledger, world.workspace, [run_id]) == 1
    assert ingest_evaluations(world.ledger, world.workspace, [run_id]) == 0
    found = {(row["set_name"], row["metric"]): row["last"] for row in world.rows(m.results)}
    assert found["shifted", "top1"] == 33.0 and found["test", "top1"] == 73.0
    (attempt,) = world.attempts(run_id)
    assert attempt["heartbeat_at"] != 9.0, "an evaluation is no sign of life of a training"
