"""A ledger that knows fewer runs than its workspace gets them back, or is refused."""

from pathlib import Path

import pytest
from sqlalchemy import delete

from vtjobs.db import models as m
from vtjobs.db import refill as refill_module
from vtjobs.db.engine import writing
from vtjobs.db.ingest import ingest_live
from vtjobs.db.ledger import Ledger
from vtjobs.db.refill import ForgetfulLedger, keep_copy, refill, require_whole
from vtjobs.jobs.workspace.stored_grid import write_grid

from ..support.ledgers import World, paper_grid


def forget(world: World, *grid_ids: str) -> None:
    """Take grids and their runs out of the ledger, as a backup of an earlier day has it."""
    with writing(world.ledger.engine) as connection:
        mine = m.grid_runs.c.grid_id.in_(grid_ids)
        runs = [row["run_id"] for row in world.rows(m.grid_runs) if row["grid_id"] in grid_ids]
        connection.execute(delete(m.grid_runs).where(mine))
        for table in (m.events, m.results, m.attempts, m.runs):
            connection.execute(delete(table).where(table.c.run_id.in_(runs)))
        connection.execute(delete(m.grids).where(m.grids.c.grid_id.in_(grid_ids)))


def empty(world: World) -> None:
    with writing(world.ledger.engine) as connection:
        for table in reversed(m.metadata.sorted_tables):
            if table is not m.meta:
                connection.execute(delete(table))


def trained(world: World, *, seeds: int = 2) -> list[str]:
    runs = world.submit(paper_grid(seeds=seeds))
    world.launch(*runs)
    for run_id in runs:
        world.train(run_id, 1, 50.0, 60.0)
    ingest_live(world.ledger, world.workspace)
    return runs


def test_an_empty_ledger_gets_the_runs_of_its_workspace_back(world: World) -> None:
    trained(world)
    before = {table.name: world.rows(table) for table in (m.results, m.epoch_metrics, m.grids)}
    empty(world)
    require_whole(world.ledger, world.workspace, may_fill=True)
    assert set(world.states().values()) == {"completed"}
    assert {name: world.rows(m.metadata.tables[name]) for name in before} == before


def test_a_ledger_that_was_filled_goes_on_counting_its_events(world: World) -> None:
    runs = trained(world)
    empty(world)
    refill(world.ledger, world.workspace)
    world.grant(runs[0], clean=True)
    assert world.launch(runs[0]) is not None
    assert len({row["id"] for row in world.rows(m.events)}) == len(world.rows(m.events))


def test_a_ledger_that_somebody_else_filled_meanwhile_is_left_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = trained(world)
    empty(world)
    make = refill_module.make_ledger

    def slow(path: Path, *arguments: object, **options: object) -> dict[str, int]:
        monkeypatch.undo()
        refill(world.ledger, world.workspace)
        world.grant(runs[0])
        return make(path, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(refill_module, "make_ledger", slow)
    refill(world.ledger, world.workspace)
    assert [row["tries_from"] for row in world.rows(m.runs) if row["run_id"] == runs[0]] == [1]


def test_a_ledger_that_lost_a_grid_with_runs_is_refused_with_the_command(world: World) -> None:
    trained(world)
    other = paper_grid("other", seeds=1, first_cell=1)
    world.submit(other)
    forget(world, other.grid_id)
    with pytest.raises(ForgetfulLedger, match="Run: vtjobs ledger rebuild -W x") as caught:
        require_whole(world.ledger, world.workspace, may_fill=True, where=" -W x")
    assert other.grid_id in str(caught.value) and "\n" not in str(caught.value)


def test_a_grid_whose_submission_was_cut_off_is_not_missed(world: World) -> None:
    trained(world)
    write_grid(world.workspace, paper_grid("other", seeds=1, first_cell=1), b"")
    require_whole(world.ledger, world.workspace, may_fill=True)
    assert len(world.rows(m.grids)) == 1


def test_somebody_else_is_told_whose_ledger_is_empty(world: World) -> None:
    trained(world)
    empty(world)
    with pytest.raises(ForgetfulLedger, match=f"{world.workspace.owner()}, whose workspace it is"):
        require_whole(world.ledger, world.workspace, may_fill=False)
    assert world.rows(m.grids) == []


def test_a_copy_of_a_ledger_holds_its_rows(world: World, tmp_path: Path) -> None:
    trained(world)
    identity = world.workspace.check()["id"]
    path = keep_copy(world.ledger, tmp_path, workspace_id=identity)
    copy = Ledger.open(str(path), workspace_id=identity)
    assert world.states(copy) == world.states()
