"""Which epoch of a run is its score."""

from pathlib import Path
from typing import Any

import pytest

from vtjobs.analysis.findings.cells import planned, report
from vtjobs.analysis.findings.comparisons import compare
from vtjobs.analysis.findings.plan import ComparisonPlan
from vtjobs.db.ingest import ingest_live
from vtjobs.jobs.errors import BadInput
from vtjobs.jobs.run.comparing import Select
from vtjobs.jobs.run.selector import Selection
from vtjobs.jobs.values import changed

from ...support.ledgers import World, paper_grid

EVERY = Selection(everything=True)
# Epoch -> scores on val and test.
CURVE = [(60.0, 50.0), (80.0, 71.0), (80.0, 75.0), (70.0, 74.0)]


@pytest.fixture
def world(tmp_path: Path) -> Any:
    found = World(tmp_path, f"sqlite:///{tmp_path / 'ledger.sqlite'}")
    yield found
    found.close()


def train(
    world: World, run_id: str, curve: list[tuple[float | None, float]], metric: str = "top1"
) -> None:
    """Complete a run that was scored like this."""
    world.launch(run_id)
    world.start(run_id, 1)
    for epoch, (held_out, test) in enumerate(curve):
        for name, value in (("val", held_out), ("test", test)):
            if value is not None:
                place = {"epoch": epoch, "step": 10 * epoch}
                world.write(
                    run_id,
                    1,
                    "evaluation",
                    **place,
                    set=name,
                    metrics={metric: value, f"ema_{metric}": 33.0},
                )
    world.end(run_id, 1, "completed")
    ingest_live(world.ledger, world.workspace)


def value(world: World, **options: Any) -> float | None:
    (cell,) = (one for one in report(world.ledger, EVERY, **options) if one.planned)
    found: float | None = cell.mean
    return found


@pytest.mark.paper("VA-02")
def test_the_last_epoch_counts_unless_another_rule_is_declared(world: World) -> None:
    (run_id,) = world.submit(paper_grid(cells=1, seeds=1))
    train(world, run_id, CURVE)
    assert value(world) == 74.0


def test_the_held_out_part_chooses_the_epoch_and_of_equal_ones_the_first(world: World) -> None:
    (run_id,) = world.submit(paper_grid(cells=1, seeds=1))
    train(world, run_id, CURVE)
    assert value(world, select=Select.BEST_VAL) == 71.0


def test_of_a_loss_the_held_out_part_chooses_the_smallest(world: World) -> None:
    (run_id,) = world.submit(paper_grid(cells=1, seeds=1))
    train(world, run_id, CURVE, metric="loss")
    assert value(world, metric="loss", select=Select.BEST_VAL) == 50.0


def test_averaged_weights_have_a_metric_of_their_own(world: World) -> None:
    (run_id,) = world.submit(paper_grid(cells=1, seeds=1))
    train(world, run_id, CURVE)
    (cell,) = planned(
        world.ledger, EVERY, ComparisonPlan(metric="ema_top1", select=Select.EMA_LAST)
    )
    assert (cell.metric, cell.mean) == ("ema_top1", 33.0)


@pytest.mark.paper("VA-04")
def test_what_chooses_the_epoch_is_not_reported(world: World) -> None:
    (run_id,) = world.submit(paper_grid(cells=1, seeds=1))
    train(world, run_id, CURVE)
    with pytest.raises(BadInput, match="so val cannot be reported"):
        report(world.ledger, EVERY, set_name="val", select=Select.BEST_VAL)


def test_without_a_held_out_part_nothing_can_choose(world: World) -> None:
    (run_id,) = world.submit(paper_grid(cells=1, seeds=1))
    train(world, run_id, [(None, 70.0), (None, 71.0)])
    with pytest.raises(
        BadInput, match=r"no selected run has top1 on val. Hold out .* data: \{val: 0.1\}"
    ):
        report(world.ledger, EVERY, select=Select.BEST_VAL)


@pytest.mark.paper("VA-02")
def test_cells_that_choose_among_other_numbers_of_epochs_are_not_compared(world: World) -> None:
    run_ids = world.submit(paper_grid(cells=2, seeds=2))
    for number, run_id in enumerate(run_ids):
        train(
            world,
            run_id,
            [(held, test + number / 10) for held, test in CURVE[: 4 if number < 2 else 3]],
        )
    ours, theirs = report(world.ledger, EVERY, select=Select.BEST_VAL)
    assert [one.candidates for one in (ours, theirs)] == [[4], [3]]
    ours, theirs = changed(ours, baseline=theirs.cell_id), changed(theirs, baseline=None)
    (found,) = compare([ours, theirs], ComparisonPlan(select=Select.BEST_VAL)).comparisons
    assert found.verdict == "not testable" and found.detail.startswith("best of 4 and 3 epochs")


def test_without_averaged_weights_their_score_is_asked_for_in_vain(world: World) -> None:
    (run_id,) = world.submit(paper_grid(cells=1, seeds=1))
    train(world, run_id, CURVE)
    with pytest.raises(
        BadInput, match="no selected run has ema_top5 on test with averaged weights"
    ):
        planned(world.ledger, EVERY, ComparisonPlan(metric="ema_top5", select=Select.EMA_LAST))
