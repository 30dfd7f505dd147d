"""Cells on two evaluation sets, as the journals of their runs have them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from vtjobs.analysis.findings.two_sets import TwoSets, two_sets
from vtjobs.analysis.output.figures.two_sets import scatter
from vtjobs.db.ingest import ingest_live
from vtjobs.jobs.run.selector import Selection

from ...support.ledgers import World, paper_grid

# Cell -> the scores of its two seeds on test and on v2; v2 is 10 less, but for one cell.
SCORES = [
    [(70.0, 60.0), (72.0, 62.0)],
    [(80.0, 70.0), (82.0, 72.0)],
    [(75.0, 60.0), (77.0, 64.0)],
    [(90.0, 80.0), (92.0, 82.0)],
]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Five cells of two seeds; the last cell has no score on v2."""
    found = World(tmp_path, f"sqlite:///{tmp_path / 'ledger.sqlite'}")
    runs = found.submit(paper_grid(cells=5, seeds=2))
    found.launch(*runs)
    scores = [pair for cell in SCORES for pair in cell]
    for run, (test, v2) in zip(runs[:8], scores, strict=True):
        found.start(run, 1)
        found.epoch(run, 1, 0, test)
        place = {"epoch": 0, "step": 10, "set": "v2"}
        found.write(run, 1, "evaluation", **place, metrics={"top1": v2})
        found.checkpoint(run, 1, 10)
        found.end(run, 1, "completed")
    for run in runs[8:]:
        found.train(run, 1, 99.0)
    ingest_live(found.ledger, found.workspace)
    yield found
    found.close()


def both(world: World, *, x: str = "test", y: str = "v2") -> list[TwoSets]:
    return two_sets(world.ledger, Selection(), metric="top1", x_set=x, y_set=y)


def test_each_cell_has_its_means_over_the_seeds_with_both(world: World) -> None:
    (found,) = both(world)
    assert [(cell.n, cell.x, cell.y) for cell in found.cells] == [
        (2, 71.0, 61.0),
        (2, 81.0, 71.0),
        (2, 76.0, 62.0),
        (2, 91.0, 81.0),
    ]
    assert found.cells[2].y_std == pytest.approx(8**0.5)
    assert found.without == 1


@pytest.mark.paper("RM-09", "VA-12")
def test_a_cell_that_fits_the_first_set_more_lies_below_the_line(world: World) -> None:
    (found,) = both(world)
    residuals = [cell.residual for cell in found.cells if cell.residual is not None]
    assert len(residuals) == 4
    assert min(residuals) == residuals[2] < -2
    assert sum(residuals) == pytest.approx(0), "they are those of least squares"
    assert found.line is not None
    for cell in found.cells:
        assert cell.residual == pytest.approx(cell.y - found.line.at(cell.x))


def test_a_residual_spreads_over_seeds_as_far_as_these_leave_the_line(world: World) -> None:
    (found,) = both(world)
    assert found.line is not None
    low, high = (60.0 - found.line.at(75.0), 64.0 - found.line.at(77.0))
    assert found.cells[2].residual_std == pytest.approx(abs(high - low) / 2**0.5)


def test_a_set_that_nothing_was_scored_on_has_no_cells(world: World) -> None:
    assert both(world, y="real") == []


@pytest.mark.paper("RM-09")
def test_the_figure_names_every_cell_and_its_data_have_all_numbers(world: World) -> None:
    (found,) = both(world)
    drawn = scatter([found])
    assert "v2 against test" in drawn.svg and drawn.svg == scatter([found]).svg
    assert [row[3:5] for row in drawn.rows] == [[cell.x, cell.y] for cell in found.cells]
    for row in drawn.rows:
        assert str(row[1]) in drawn.svg
