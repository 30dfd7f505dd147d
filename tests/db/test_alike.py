"""Runs that stand alike are counted by the database, on SQLite and on PostgreSQL."""

from collections import Counter

import pytest

from vtjobs.db import queries
from vtjobs.db.alike import alike
from vtjobs.db.engine import reading
from vtjobs.db.ingest import ingest_live
from vtjobs.db.records import AlikeRow
from vtjobs.jobs.run.selector import Selection, parse_selection

from ..support.ledgers import World, paper_grid


@pytest.fixture
def furnished(world: World) -> World:
    """Two grids that share three runs; completed, running, queued, cancelled and pending ones."""
    first = world.submit(paper_grid("first", cells=4, seeds=3, at=10.0))
    world.submit(paper_grid("second", cells=3, seeds=3, first_cell=3, at=20.0))
    world.launch(*first[:5])
    world.train(first[0], 1, 50.0)
    world.start(first[1])
    ingest_live(world.ledger, world.workspace)
    world.cancel(first[3])
    world.cancel(first[6])
    return world


def found(world: World, *words: str, by_grid: bool = False) -> list[AlikeRow]:
    chosen = parse_selection(words) if words else Selection()
    with reading(world.ledger.engine) as connection:
        return alike(connection, chosen, by_grid=by_grid, held={})


def test_every_run_is_in_one_row_with_what_its_word_follows_from(furnished: World) -> None:
    with reading(furnished.ledger.engine) as connection:
        listed = queries.list_runs(connection, Selection())
    rows = found(furnished)
    assert sum(row.runs for row in rows) == len(listed) == 18
    for live in ("queued", "running"):
        in_rows = Counter[tuple[object, ...]]()
        for row in rows:
            if row.state == live:
                in_rows[_facts(row)] += row.runs
        assert in_rows == Counter(_facts(run) for run in listed if run.state == live)


def _facts(row: object) -> tuple[object, ...]:
    names = ("grid_id", "cancelled_through", "attempt", "attempt_state", "started_at", "backend")
    return tuple(getattr(row, name) for name in (*names, "heartbeat_at", "word"))


def test_a_run_counts_once_and_in_every_grid_that_has_it(furnished: World) -> None:
    assert sum(row.runs for row in found(furnished)) == 18
    by_grid = Counter[str | None]()
    for row in found(furnished, by_grid=True):
        by_grid[str(row.of_grid).partition("-")[0]] += row.runs
    assert by_grid == {"first": 12, "second": 9}
    assert sum(row.runs for row in found(furnished, "second", "seed=0")) == 3


def test_many_runs_that_wait_are_one_row(world: World) -> None:
    runs = world.submit(paper_grid(cells=20, seeds=5))
    assert [row.runs for row in found(world)] == [100]
    world.launch(*runs[:60])
    assert sorted(row.runs for row in found(world)) == [40, 60]


def test_pending_runs_that_are_on_hold_are_counted_apart_in_one_row(furnished: World) -> None:
    with reading(furnished.ledger.engine) as connection:
        listed = queries.list_runs(connection, Selection())
        (grid,) = {run.grid_id for run in listed if run.grid_id.startswith("second")}
        pending = {run.run_id for run in listed if (run.grid_id, run.state) == (grid, "pending")}
        (other,) = {run.grid_id for run in listed} - {grid}
        # A marker holds runs of its own grid alone, and none that has started or does not exist.
        held = {grid: {*list(pending)[:4], "f" * 16}, other: pending}
        rows = alike(connection, Selection(), held=held)
    assert [(row.grid_id, row.state, row.runs) for row in rows if row.is_held] == [
        (grid, "pending", 4)
    ]
    assert sum(row.runs for row in rows) == 18
