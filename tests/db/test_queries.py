"""The reading side: selections, counts, lists and statistics."""

from pathlib import Path

import pytest

from vtjobs.db import models as m
from vtjobs.db import pace, queries, selected
from vtjobs.db.engine import reading
from vtjobs.db.ingest import ingest_live
from vtjobs.db.scheduler_notes import set_words
from vtjobs.jobs.errors import NothingMatched
from vtjobs.jobs.run.selector import parse_selection
from vtjobs.jobs.run.states import AttemptState
from vtjobs.jobs.values import changed

from ..support.ledgers import World, an_allocation, paper_grid


@pytest.fixture
def ledger_url(tmp_path: Path) -> str:
    """SQLite alone: these tests are about numbers; test_report compares what both databases say."""
    return f"sqlite:///{tmp_path / 'ledger.sqlite'}"


@pytest.fixture
def furnished(world: World) -> World:
    """Two grids that share a cell; runs in several states."""
    first = world.submit(paper_grid("first", cells=4, seeds=3, at=10.0))
    world.submit(paper_grid("second", cells=3, seeds=3, first_cell=3, at=20.0))
    world.launch(*first[:3])
    world.train(first[0], 1, 50.0)
    world.start(first[1])
    ingest_live(world.ledger, world.workspace)
    world.cancel(first[5])
    return world


def chosen(world: World, *words: str) -> list[dict[str, object]]:
    """Return the selected runs with their cells' labels, by the query under test."""
    with reading(world.ledger.engine) as connection:
        ids = selected.select_ids(connection, parse_selection(words))
    cells = {row["cell_id"]: row for row in world.rows(m.cells)}
    runs = {row["run_id"]: {**cells[row["cell_id"]], **row} for row in world.rows(m.runs)}
    assert len(ids) == len(set(ids))
    return [runs[run_id] for run_id in ids]


def test_all_means_every_run(furnished: World) -> None:
    assert len(chosen(furnished, "all")) == 18


def test_a_grids_name_means_its_newest_submission_and_its_id_itself(furnished: World) -> None:
    assert len(chosen(furnished, "first")) == 12
    assert len(chosen(furnished, "second")) == 9
    (grid_id,) = [row["grid_id"] for row in furnished.rows(m.grids) if row["name"] == "first"]
    assert (
        chosen(furnished, grid_id) == chosen(furnished, "grid=first") == chosen(furnished, "first")
    )
    furnished.submit(paper_grid("first", cells=1, seeds=1, at=99.0))
    assert len(chosen(furnished, "first")) == 1 and len(chosen(furnished, grid_id)) == 12


def test_names_are_a_union_and_a_shared_run_is_listed_once(furnished: World) -> None:
    assert len(chosen(furnished, "first", "second")) == 18


def test_the_beginning_of_a_run_id_is_enough(furnished: World) -> None:
    run_id = furnished.rows(m.runs)[4]["run_id"]
    assert [row["run_id"] for row in chosen(furnished, run_id[:6])] == [run_id]
    assert [row["run_id"] for row in chosen(furnished, run_id)] == [run_id]


@pytest.mark.parametrize(
    ("words", "holds"),
    [
        (["backbone=net_0"], lambda row: row["backbone"] == "net_0"),
        (["backbone=net_0,net_1"], lambda row: row["backbone"] in ("net_0", "net_1")),
        (["head=drloc", "seed=1"], lambda row: row["head"] == "drloc" and row["seed"] == 1),
        (["seed!=1"], lambda row: row["seed"] != 1),
        (["seed!=0,2"], lambda row: row["seed"] == 1),
        (
            ["head!=drloc", "backbone!=net_1"],
            lambda row: row["head"] != "drloc" and row["backbone"] != "net_1",
        ),
        (["status=pending"], lambda row: row["state"] == "pending"),
        (["state=completed,running"], lambda row: row["state"] in ("completed", "running")),
        (["state!=pending"], lambda row: row["state"] != "pending"),
        (["recipe=plain", "dataset=digits"], lambda row: True),
    ],
)
def test_conditions_all_hold_and_nothing_else_is_left_out(
    furnished: World, words: list[str], holds: object
) -> None:
    every = chosen(furnished, "all")
    assert chosen(furnished, *words) == [row for row in every if holds(row)]  # type: ignore[operator]
    assert 0 < len(chosen(furnished, *words)) <= 18


def test_a_grid_may_be_excluded_and_narrowed(furnished: World) -> None:
    assert len(chosen(furnished, "grid!=first")) == 6
    assert len(chosen(furnished, "second", "head=supervised")) == 3
    assert len(chosen(furnished, "grid=first,second")) == 18


@pytest.mark.parametrize(
    "words", [["nowhere"], ["feed"], ["backbone=net_9"], ["grid=nowhere"], ["seed=99"]]
)
def test_a_selection_of_nothing_is_said(furnished: World, words: list[str]) -> None:
    with pytest.raises(NothingMatched) as caught:
        chosen(furnished, *words)
    assert caught.value.exit_code == 3


def test_counts_are_those_of_the_runs(furnished: World) -> None:
    with reading(furnished.ledger.engine) as connection:
        assert queries.status_counts(connection) == {
            "completed": 1, "running": 1, "queued": 1, "cancelled": 1, "pending": 14,
        }  # fmt: skip
        narrow = parse_selection(["second"])
        assert queries.status_counts(connection, narrow) == {"pending": 9}


def test_a_list_shows_each_run_once_in_its_grids_order_with_its_latest_attempt(
    furnished: World,
) -> None:
    run_id = paper_grid("first", cells=4, seeds=3).runs[1][0]
    furnished.end(run_id, 1, "preempted", "stopped")
    ingest_live(furnished.ledger, furnished.workspace)
    furnished.launch(run_id)
    furnished.start(run_id, 2)
    ingest_live(furnished.ledger, furnished.workspace)
    with reading(furnished.ledger.engine) as connection:
        rows = queries.list_runs(connection, parse_selection(["first"]))
        assert len(queries.list_runs(connection, parse_selection(["all"]), limit=5)) == 5
        assert len(queries.list_runs(connection, parse_selection(["all"]))) == 18
    own = [row.run_id for row in rows if row.grid_id.startswith("first")]
    assert own == [run[0] for run in paper_grid("first", cells=4, seeds=3).runs if run[0] in own]
    (row,) = [row for row in rows if row.run_id == run_id]
    assert (row.attempts, row.attempt_state, row.state) == (2, "running", "running")
    (never,) = [row for row in rows if row.state == "cancelled"]
    assert (never.attempts, never.attempt_state, never.token) == (0, None, None)


def test_details_of_a_run_are_in_their_order(furnished: World) -> None:
    run_id = paper_grid("first", cells=4, seeds=3).runs[0][0]
    with reading(furnished.ledger.engine) as connection:
        assert [row.number for row in queries.attempts_of(connection, run_id)] == [1]
        after = [row.after for row in queries.events_of(connection, run_id)]
        assert after == ["submitting", "queued", "running", "completed"]
        assert [row.step for row in queries.checkpoints_of(connection, run_id)] == [10]
        assert {row.metric for row in queries.results_of(connection, [run_id])} == {
            "top1",
            "loss",
        }
        live = {row.state for row in queries.live_attempts(connection)}
        assert live == {"running", "queued"}
        ((seconds, count),) = pace.seconds_per_run(connection).values()
    assert count == 1 and seconds > 0


# Schedulers ----------------------------------------------------------------------------------


def test_what_queued_runs_wait_for_is_told_once_per_word(world: World) -> None:
    run_ids = world.submit(paper_grid(seeds=4))
    world.launch(*run_ids)
    words = ["PENDING Priority", "PENDING Priority", "PENDING InvalidQOS"]
    set_words(
        world.ledger, [(run_id, 1, word) for run_id, word in zip(run_ids, words, strict=False)]
    )
    with reading(world.ledger.engine) as connection:
        found = {
            row.word: (row.backend, row.runs, row.run_id)
            for row in queries.waiting_words(connection)
        }
    assert found == {
        "PENDING Priority": ("local", 2, min(run_ids[:2])),
        "PENDING InvalidQOS": ("local", 1, run_ids[2]),
    }
    world.ledger.transition(run_ids[2], 1, AttemptState.RUNNING, source="journal")
    with reading(world.ledger.engine) as connection:
        assert [row.word for row in queries.waiting_words(connection)] == ["PENDING Priority"]


def test_the_place_of_a_run_names_its_element_where_there_are_several(world: World) -> None:
    first, second, third = world.submit(paper_grid(seeds=3))
    one = an_allocation([(first, 1)], token="vtj-one")
    two = an_allocation([(second, 1)], token="vtj-two")
    both = changed(two, tasks=(*two.tasks, an_allocation([(third, 1)], token="x").tasks[0]))
    for content, job in ((one, "17"), (both, "18")):
        world.ledger.open_attempts(content, launching_s=60)
        with reading(world.ledger.engine) as connection:
            assert queries.job_of(connection, content.all_tasks[0].run_id) is None, (
                "nobody has accepted it"
            )
        world.ledger.accepted(content.token, job, source="local")
    with reading(world.ledger.engine) as connection:
        places = [queries.job_of(connection, run_id) for run_id in (first, second, third)]
    assert [place and place.job for place in places] == ["17", "18_0", "18_1"]
