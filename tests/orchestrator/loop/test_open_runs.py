"""The runs that may start are those that no marker keeps back; the others are not even read."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtjobs.db.due import due_runs
from vtjobs.db.engine import reading
from vtjobs.jobs.atomic_files import to_json, write_over
from vtjobs.jobs.workspace.markers import closed
from vtjobs.orchestrator.loop import open_runs as module
from vtjobs.orchestrator.loop.open_runs import open_runs

from ...support.ledgers import World, paper_grid

GRIDS = (
    paper_grid("first", cells=2, seeds=3),
    paper_grid("second", cells=2, seeds=2, first_cell=2),
)
RUNS = [run[0] for grid in GRIDS for run in grid.runs]
FOREVER = float("inf")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Two grids of which nothing has started, in SQLite: the query is the same on PostgreSQL."""
    folder = tmp_path_factory.mktemp("world")
    made = World(folder / "runs", f"sqlite:///{folder}/ledger.sqlite")
    for grid in GRIDS:
        made.submit(grid)
    yield made
    made.close()


def marks(world: World, grid_id: str, given: dict[str, Any]) -> None:
    """Write a grid's markers: their names -> their contents; others are removed."""
    for name in ("hold", "canary", "breaker"):
        path: Path = world.workspace.marker(grid_id, name)
        path.unlink(missing_ok=True)
        if name in given:
            write_over(path, to_json(given[name]))


CHOSEN = st.lists(st.sampled_from(RUNS), unique=True)
MARKERS = st.fixed_dictionaries(
    {},
    optional={
        "hold": st.fixed_dictionaries({"runs": CHOSEN}),
        "canary": st.fixed_dictionaries({"runs": CHOSEN, "passed": st.booleans()}),
        "breaker": st.fixed_dictionaries({"runs": CHOSEN, "message": st.just("broken")}),
    },
)


@given(first=MARKERS, second=MARKERS)
def test_what_is_read_is_what_no_marker_keeps_back(
    world: World, first: dict[str, Any], second: dict[str, Any]
) -> None:
    for grid, given_ones in zip(GRIDS, (first, second), strict=True):
        marks(world, grid.grid_id, given_ones)
    with reading(world.ledger.engine) as connection:
        found = open_runs(connection, world.workspace, FOREVER)
        every = due_runs(connection, FOREVER, held={}, only={})
    assert [run.run_id for run in every] == RUNS
    assert found == [
        run for run in every if closed(world.workspace, run.grid_id)(run.run_id) is None
    ]


def test_runs_that_are_submitted_on_hold_meanwhile_are_not_started(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (grid.grid_id for grid in GRIDS)
    marks(world, first, {})
    marks(world, second, {})

    def submitted_meanwhile(*words: Any, **named: Any) -> Any:
        marks(world, first, {"hold": {"runs": RUNS}})
        return due_runs(*words, **named)

    monkeypatch.setattr(module, "due_runs", submitted_meanwhile)
    with reading(world.ledger.engine) as connection:
        found = open_runs(connection, world.workspace, FOREVER)
    assert {run.grid_id for run in found} == {second}


def test_nothing_of_a_grid_whose_marker_is_damaged_is_read(world: World) -> None:
    first, second = (grid.grid_id for grid in GRIDS)
    marks(world, first, {})
    marks(world, second, {})
    world.workspace.marker(first, "hold").write_text("{")
    with reading(world.ledger.engine) as connection:
        found = open_runs(connection, world.workspace, FOREVER)
    assert {run.grid_id for run in found} == {second}
