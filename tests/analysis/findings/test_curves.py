"""Learning curves over seeds, as the journals of their runs have them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from vtjobs.analysis.findings.curves import CellCurve, learning_curves
from vtjobs.db.ingest import ingest_live
from vtjobs.jobs.errors import BadInput
from vtjobs.jobs.run.selector import Selection

from ...support.ledgers import World, paper_grid


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Two cells with two seeds each; the last run of the second has not started."""
    found = World(tmp_path, f"sqlite:///{tmp_path / 'ledger.sqlite'}")
    runs = found.submit(paper_grid(cells=2, seeds=2))
    found.launch(*runs[:3])
    found.train(runs[0], 1, 10.0, 20.0, 30.0)
    found.start(runs[1])
    found.epoch(runs[1], 1, 0, 14.0)
    found.train(runs[2], 1, 50.0)
    ingest_live(found.ledger, found.workspace)
    yield found
    found.close()


def curves(world: World, **of: str) -> list[CellCurve]:
    return learning_curves(world.ledger, Selection(), **of)


@pytest.mark.paper("DR-60")
def test_each_epoch_has_the_mean_and_deviation_of_the_seeds_that_have_reached_it(
    world: World,
) -> None:
    first, second = curves(world)
    assert [(point.epoch, point.n, point.mean) for point in first.points] == [
        (0, 2, 12.0),
        (1, 1, 20.0),
        (2, 1, 30.0),
    ]
    assert first.points[0].std == pytest.approx(8**0.5)
    assert [(point.epoch, point.n) for point in second.points] == [(0, 1)]
    assert (first.planned, second.planned) == (2, 2)


def test_a_curve_names_the_run_of_each_seed(world: World) -> None:
    first, _ = curves(world)
    assert first.seeds == {"0": {0: 10.0, 1: 20.0, 2: 30.0}, "1": {0: 14.0}}
    assert set(first.runs) == {"0", "1"}


@pytest.mark.paper("DR-76", "RV-33")
def test_metrics_of_training_are_a_set_of_their_own(world: World) -> None:
    first, _ = curves(world, set_name="training", metric="loss")
    assert [point.mean for point in first.points] == [1.0, 0.5, pytest.approx(1 / 3)]


def test_a_resumed_run_has_the_epochs_of_its_lineage_alone(world: World) -> None:
    (run_id,) = world.submit(paper_grid("other", cells=1, seeds=1, first_cell=5))
    world.launch(run_id)
    world.start(run_id)
    for epoch, score in enumerate((1.0, 2.0, 99.0)):
        world.epoch(run_id, 1, epoch, score)
    world.end(run_id, 1, "failed", "user_error")
    ingest_live(world.ledger, world.workspace)
    world.launch(run_id)
    # Two epochs of ten steps were kept, and the third is trained again.
    world.start(run_id, 2, resumed=(1, 20))
    world.epoch(run_id, 2, 2, 3.0)
    ingest_live(world.ledger, world.workspace)
    (found,) = [curve for curve in curves(world) if run_id in curve.runs.values()]
    assert [point.mean for point in found.points] == [1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    ("of", "message"),
    [
        ({"metric": "top5"}, "--metric top5: no value of it on test. Did you mean 'top1'?"),
        ({"set_name": "tset"}, "--set tset: nothing was scored on it. Did you mean 'test'?"),
        ({"set_name": "training"}, "--metric top1: no value of it on training. Allowed: loss"),
    ],
)
def test_what_does_not_exist_is_answered_with_what_there_is(
    world: World, of: dict[str, str], message: str
) -> None:
    with pytest.raises(BadInput) as refused:
        curves(world, **of)
    assert str(refused.value).startswith(message)


def test_before_the_first_score_it_says_so(tmp_path: Path) -> None:
    empty = World(tmp_path, f"sqlite:///{tmp_path / 'ledger.sqlite'}")
    empty.submit(paper_grid())
    with pytest.raises(BadInput, match="no epoch of these runs has been scored yet"):
        curves(empty)
    empty.close()
