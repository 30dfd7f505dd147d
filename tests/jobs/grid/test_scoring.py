"""Which scores an evaluation can give, and which a grid may declare to compare by."""

from pathlib import Path

import pytest

from vtjobs.jobs.errors import BadInput
from vtjobs.jobs.grid.load import take_in
from vtjobs.jobs.grid.scoring import can_be_scored, evaluation
from vtjobs.jobs.run.settings import CellSettings

GRID = """\
name: finer
backbones: [resnet18_cifar]
datasets: [DATASETS]
heads: [HEADS]
seeds: 3
recipe: grafit
"""
CLASSIFIES = "{grafit: {labels: true, projector: none, losses: [instance]}}"


def _cells(folder: Path, datasets: str, heads: str, more: str = "") -> list[CellSettings]:
    path = folder / "grid.yaml"
    path.write_text(GRID.replace("DATASETS", datasets).replace("HEADS", heads) + more)
    return [cell.spec.settings for cell in take_in(str(path)).expansion.cells]


@pytest.mark.parametrize(
    ("dataset", "metric", "set_name", "is_so"),
    [
        ("cifar100_coarse", "knn20", "test", True),
        ("cifar100_coarse", "knn20", "test@cifar100", True),
        # Stored as `test`: these are its own classes.
        ("cifar100", "knn20", "test@cifar100", False),
        ("cifar10", "knn20", "test@cifar100", False),
        ("cifar10", "knn50000", "test", True),
        ("cifar10", "knn50001", "test", False),
        ("cifar10", "knn0", "test", False),
        ("cifar10", "map_oracle", "test", False),
        ("cifar100_coarse", "map_oracle", "test@cifar100", True),
        ("cifar10", "map", "nowhere", False),
        ("cifar10", "map", "train", False),
        ("cifar10", "map", "test@288px-crop1", True),
    ],
)
def test_neighbours_score_where_there_are_such_classes_and_as_many_images(
    tmp_path: Path, dataset: str, metric: str, set_name: str, is_so: bool
) -> None:
    (cell,) = _cells(tmp_path, dataset, "grafit")
    assert can_be_scored(cell, metric, set_name) is is_so


@pytest.mark.parametrize(
    ("head", "is_so"),
    [("grafit", True), ("{grafit: {losses: [instance]}}", False), (CLASSIFIES, True)],
)
def test_conditioned_precision_needs_classes_from_a_classifier_or_from_neighbours(
    tmp_path: Path, head: str, is_so: bool
) -> None:
    (cell,) = _cells(tmp_path, "cifar10", head)
    assert can_be_scored(cell, "map_conditioned", "test") is is_so


@pytest.mark.parametrize(
    ("metric", "set_name", "is_own", "is_so"),
    [
        # Every run has it from training.
        ("top1", "test", False, False),
        ("top1", "test@288px-crop1", False, True),
        ("top1", "test@cifar100", False, False),
        ("ema_top1", "test@288px-crop1", False, False),
        ("balanced", "test", True, True),
        ("train_accuracy", "test", False, False),
    ],
)
def test_a_classifier_is_scored_afterwards_by_what_training_did_not_know(
    tmp_path: Path, metric: str, set_name: str, is_own: bool, is_so: bool
) -> None:
    (cell,) = _cells(tmp_path, "cifar100_coarse", CLASSIFIES)
    assert can_be_scored(cell, metric, set_name, is_own=is_own) is is_so


@pytest.mark.paper("PC-09")
def test_the_options_of_an_evaluation_follow_from_the_score() -> None:
    assert evaluation("knn10", "test@cifar100") == "evaluate --knn 10 --labels cifar100"
    assert evaluation("map", "v2") == "evaluate --knn 20 --sets v2"
    assert evaluation("balanced", "test") == "evaluate"
    assert evaluation("top1", "v2@crop0.875") == "evaluate --sets v2 --crop-pct 0.875"
    assert evaluation("top1", "test@288px-crop1") == "evaluate --image-size 288 --crop-pct 1"
    assert evaluation("top1", "test@class-token") == "evaluate --token class"


@pytest.mark.parametrize("metric", ["knn20", "map"])
def test_a_grid_may_declare_a_score_that_some_of_its_runs_can_have(
    tmp_path: Path, metric: str
) -> None:
    both = "cifar100_coarse, cifar100"
    compare = f"compare: {{metric: {metric}, set: test@cifar100, baseline: each}}"
    assert _cells(tmp_path, both, "grafit, {grafit: {losses: [knn]}}", compare)


@pytest.mark.parametrize(
    ("compare", "says"),
    [
        ("{metric: knn20, set: test@cifar100}", "no run of this grid can be scored by knn20 on"),
        ("{metric: map_oracle}", "no run of this grid can be scored by map_oracle on test"),
        ("{metric: knn20, select: best_val}\ndata: {val: 0.1}", "Set select: last"),
        ("{set: shifted, select: best_val}\ndata: {val: 0.1}", "top1 on shifted is scored after"),
    ],
)
def test_a_score_that_no_run_can_have_is_not_declared(
    tmp_path: Path, compare: str, says: str
) -> None:
    with pytest.raises(BadInput) as caught:
        _cells(tmp_path, "cifar10", CLASSIFIES, f"compare: {compare}\n")
    assert says in str(caught.value)
