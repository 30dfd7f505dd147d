"""What is left to do, and what was seen: from rows to the values that estimates are made of."""

from collections import Counter
from typing import Any

import pytest

from vtjobs.db import pace
from vtjobs.db.engine import reading
from vtjobs.db.ingest import ingest_live
from vtjobs.db.scheduler_notes import set_starts
from vtjobs.jobs.run.eta import Underway, Waiting
from vtjobs.jobs.run.pace import Basis, Kind
from vtjobs.jobs.run.selector import parse_selection
from vtjobs.jobs.workspace.stored_grid import FrozenGrid

from ..support.ledgers import RECIPE, World, paper_grid

FIRST = paper_grid("first", cells=3, seeds=2)
BACKENDS = {FIRST.settings.grid_id: "local"}


def cell(number: int, grid: FrozenGrid = FIRST) -> str:
    return grid.cells[number].cell_id


def waiting(
    world: World, *words: str, held: dict[str, set[str]] | None = None, now: float = 0.0
) -> list[Waiting]:
    with reading(world.ledger.engine) as connection:
        chosen = parse_selection(list(words), default_all=True)
        return pace.waiting(connection, chosen, BACKENDS, held=held or {}, now=now)


def running(world: World, *words: str) -> list[Underway]:
    with reading(world.ledger.engine) as connection:
        chosen = parse_selection(list(words), default_all=True)
        return pace.underway(connection, chosen, BACKENDS)


def history(world: World, *cell_ids: str) -> Any:
    with reading(world.ledger.engine) as connection:
        return pace.history(
            connection, cell_ids, pace.underway(connection, parse_selection(["all"]), {})
        )


def train(world: World, run_id: str, *, step: int, steps: int = 100, end: str = "") -> None:
    """Let a run begin, come to a step with a checkpoint there, and perhaps end."""
    world.launch(run_id)
    number = world.attempts(run_id)[-1]["number"]
    world.folder(run_id).claim(number)
    world.write(run_id, number, "start", attempt=number, steps=steps)
    world.write(run_id, number, "checkpoint", epoch=1, step=step, bytes=1, trained_s=20.0)
    if end:
        failure = {"class": "storage"} if end == "failed" else {}
        world.write(run_id, number, "end", state=end, **failure)
    ingest_live(world.ledger, world.workspace)


# What is left -------------------------------------------------------------------------------------


def test_runs_of_a_cell_that_wait_come_as_one_in_the_order_of_their_grid(world: World) -> None:
    world.submit(FIRST)
    groups = waiting(world)
    assert [(one.cell_id, one.runs) for one in groups] == [(cell(number), 2) for number in range(3)]
    assert {(one.backend, one.left, one.not_before) for one in groups} == {("local", 1.0, 0.0)}


def test_a_later_submission_waits_behind_an_earlier_one(world: World) -> None:
    later = paper_grid("a-later", cells=1, first_cell=9, at=2000.0)
    world.submit(later)
    world.submit(FIRST)
    assert [one.cell_id for one in waiting(world)][-1] == cell(0, later)


def test_runs_outside_a_selection_are_there_and_marked(world: World) -> None:
    world.submit(FIRST)
    marked = {one.cell_id: one.is_selected for one in waiting(world, "first", "head=drloc")}
    assert marked == {cell(0): False, cell(1): True, cell(2): False}


def test_what_has_ended_or_runs_does_not_wait(world: World) -> None:
    runs = world.submit(FIRST)
    train(world, runs[0], step=100, end="completed")
    train(world, runs[1], step=40)
    assert [one.cell_id for one in waiting(world)] == [cell(1), cell(2)]
    (run,) = running(world)
    assert (run.run_id, run.step, run.steps, run.trained_s) == (runs[1], 40, 100, 20.0)
    assert (run.cell_id, run.backend, run.is_selected) == (cell(0), "local", True)
    assert not running(world, "first", "head=drloc")[0].is_selected


def test_a_run_that_is_tried_again_has_left_what_its_checkpoint_leaves(world: World) -> None:
    runs = world.submit(FIRST)
    train(world, runs[0], step=40, end="preempted")
    first, *_ = waiting(world)
    assert (first.cell_id, first.runs, first.left) == (cell(0), 2, pytest.approx(0.8))


def test_a_back_off_is_told_until_it_is_over(world: World) -> None:
    runs = world.submit(paper_grid("first", cells=1))
    train(world, runs[0], step=40, end="failed")
    (group,) = waiting(world)
    assert group.not_before > 0
    assert waiting(world, now=group.not_before)[0].not_before == 0


def test_a_later_stage_waits_for_its_parents_cell_until_they_have_completed(world: World) -> None:
    staged = paper_grid("first", cells=1, stages=("one", "two"))
    parent = world.submit(staged)[0]
    assert [one.parent_cell for one in waiting(world)] == [None, cell(0, staged)]
    train(world, parent, step=100, end="completed")
    assert [(one.cell_id, one.parent_cell) for one in waiting(world)] == [(cell(1, staged), None)]


def test_runs_on_hold_do_not_wait_to_start(world: World) -> None:
    runs = world.submit(FIRST)
    held = {FIRST.settings.grid_id: {*runs[:3], "f" * 16}}
    before, after = (
        Counter({one.cell_id: one.runs for one in waiting(world, held=marker)})
        for marker in ({}, held)
    )
    assert before - after == {cell(0): 2, cell(1): 1}


def test_a_place_opens_as_many_slots_as_it_hosts_runs_when_its_scheduler_says(
    world: World,
) -> None:
    runs = world.submit(FIRST)
    world.launch(*runs[:2])
    world.launch(runs[2])
    world.launch(runs[3])
    set_starts(world.ledger, [(runs[0], 1, 70.0), (runs[1], 1, 70.0), (runs[2], 1, 50.0)])
    with reading(world.ledger.engine) as connection:
        assert pace.openings(connection) == {"local": [50.0, 70.0]}


# What was seen ------------------------------------------------------------------------------------


def test_a_cell_is_known_by_its_runs_that_completed_from_nothing(world: World) -> None:
    runs = world.submit(FIRST)
    train(world, runs[0], step=100, end="completed")
    train(world, runs[1], step=40, end="preempted")
    seen = history(world, cell(0)).cells[cell(0)]
    assert seen.runs == 1 and seen.mean > 0
    with reading(world.ledger.engine) as connection:
        assert pace.seconds_per_run(connection) == {cell(0): (pytest.approx(seen.mean), 1)}


def test_what_runs_is_seen_as_far_as_it_has_come(world: World) -> None:
    runs = world.submit(FIRST)
    train(world, runs[0], step=40)
    seen = history(world, cell(0)).cells[cell(0)]
    assert seen.runs == pytest.approx(0.4) and seen.mean >= 50.0


def test_cells_alike_stand_for_one_that_was_never_seen(world: World) -> None:
    runs = world.submit(FIRST)
    train(world, runs[0], step=100, end="completed")
    known = history(world, cell(0), cell(1))
    assert known.facts[cell(1)].kind == Kind("net_0", "digits")
    assert known.facts[cell(1)].epochs == RECIPE.epochs
    paces = known.paces([cell(0), cell(1)])
    assert [paces[cell(number)].basis for number in (0, 1)] == [Basis.CELL, Basis.ALIKE]
    assert paces[cell(0)].seconds == pytest.approx(paces[cell(1)].seconds)


def test_another_backbone_says_nothing(world: World) -> None:
    other = paper_grid("other", cells=1, first_cell=3)
    world.submit(FIRST)
    train(world, world.submit(other)[0], step=100, end="completed")
    assert history(world, cell(0)).paces([cell(0)]) == {}


def test_many_cells_are_read_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = world.submit(FIRST)
    for run_id in runs:
        train(world, run_id, step=100, end="completed")
    few = history(world, cell(0), cell(1))
    monkeypatch.setattr(pace, "MANY_CELLS", 1)
    assert history(world, cell(0), cell(1)) == few
