"""Cells at a glance: runs by state, and the scores of those that completed."""

import pytest

from vtjobs.db.engine import reading
from vtjobs.db.ingest import ingest_live
from vtjobs.db.overview import CellCounts, cell_counts
from vtjobs.jobs.errors import NothingMatched
from vtjobs.jobs.run.selector import parse_selection

from ..support.ledgers import World, paper_grid


def counts(world: World, *words: str, metric: str = "top1") -> list[CellCounts]:
    with reading(world.ledger.engine) as connection:
        selection = parse_selection(list(words), default_all=True)
        return cell_counts(connection, selection, metric=metric, set_name="test")


def test_states_are_counted_and_completed_runs_bring_their_last_score(world: World) -> None:
    one, two, _ = world.submit(paper_grid(seeds=3, retries=0))
    world.launch(one, two)
    world.train(one, 1, 50.0, 60.0)
    # A run that goes on has scores of its epochs, and none that counts.
    world.start(two, 1)
    world.epoch(two, 1, 0, 99.0)
    ingest_live(world.ledger, world.workspace)
    (cell,) = counts(world)
    assert cell.states == {"completed": 1, "running": 1, "pending": 1}
    assert cell.values == [60.0]
    (cell,) = counts(world, metric="top5")
    assert sum(cell.states.values()) == 3 and cell.values == []


def test_a_selection_narrows_the_runs_that_count(world: World) -> None:
    world.submit(paper_grid(cells=3, seeds=2))
    assert len(counts(world)) == 3
    (cell,) = counts(world, "head=drloc")
    assert cell.states == {"pending": 2}
    assert counts(world, "state=failed") == []
    with pytest.raises(NothingMatched):
        counts(world, "no-such-grid")
