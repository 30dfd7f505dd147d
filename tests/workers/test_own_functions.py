"""A lab's own loss and transform in training."""

from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from vtjobs.jobs.run.settings import OwnFunction
from vtjobs.jobs.run.spec import RunSpec
from vtjobs.jobs.values import changed
from vtjobs.workers.own_functions import own_loss, own_metrics, own_transform
from vtjobs.workers.own_parts import OwnPartError

from ..support.training import newest, run_spec, training

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


def _example(name: str, file: str, **args: object) -> OwnFunction:
    return OwnFunction(name=name, args=args, source=(EXAMPLES / file).read_text())


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_without_focus_the_focal_loss_is_cross_entropy(smoothing: float) -> None:
    logits, labels = torch.randn(6, 4), torch.randint(0, 4, (6,))
    loss = own_loss(_example("focal", "focal.py", gamma=0.0), smoothing)
    expected = F.cross_entropy(logits, labels, reduction="sum", label_smoothing=smoothing)
    assert torch.allclose(loss(logits, labels), expected)
    mixed = torch.rand(6, 4).softmax(1)
    assert torch.allclose(
        loss(logits, mixed), F.cross_entropy(logits, mixed, reduction="sum"), atol=1e-5
    )


def test_a_loss_that_is_not_one_number_for_each_image_is_told() -> None:
    given = OwnFunction(
        name="mean", args={}, source="def mean(logits, targets):\n    return logits.mean()\n"
    )
    with pytest.raises(OwnPartError, match=r"must return a loss for each image, \[6\]; got \(\)"):
        own_loss(given, 0.0)(torch.randn(6, 4), torch.randint(0, 4, (6,)))


def test_a_transform_that_cannot_be_called_is_told() -> None:
    given = OwnFunction(name="make", args={}, source="def make():\n    return 1\n")
    with pytest.raises(OwnPartError, match="must make something that is called"):
        own_transform(given)


@pytest.mark.parametrize("returned", ["None", "float('nan')", "'much'", "logits"])
def test_a_metric_that_is_no_finite_number_is_told(returned: str) -> None:
    source = f"def mine(logits, labels):\n    return {returned}\n"
    metrics = own_metrics([OwnFunction(name="mine", args={}, source=source)])
    with pytest.raises(OwnPartError, match="metric mine: must return a finite number"):
        metrics["mine"](torch.randn(6, 4), torch.randint(0, 4, (6,)))


def test_balanced_accuracy_counts_each_class_alike() -> None:
    metric = own_metrics([_example("balanced_accuracy", "balanced.py")])["balanced_accuracy"]
    logits = torch.eye(3)[torch.tensor([0, 0, 0, 0, 1])]
    assert metric(logits, torch.tensor([0, 0, 0, 1, 1])) == pytest.approx(75.0)


def _spec(**changes: object) -> RunSpec:
    spec = run_spec(epochs=2, pipeline="pil")
    return changed(spec, recipe=changed(spec.recipe, **changes))


def test_a_run_with_both_comes_back_exactly_from_the_middle(tmp_path: Path) -> None:
    spec = _spec(
        loss="own",
        own_loss=_example("focal", "focal.py"),
        transform=_example("RandomGrey", "random_grey.py", probability=0.5),
    )
    told: list[dict[str, object]] = []
    whole = training(spec, tmp_path / "whole", report=lambda kind, **event: told.append(event))
    assert whole.run()
    assert any("train_own_loss" in str(event) for event in told)
    asked = iter([False] * 5 + [True] * 100)
    part = training(spec, tmp_path / "part", wants_stop=lambda: next(asked))
    assert not part.run()
    rest = training(spec, tmp_path / "part", resume=newest(tmp_path / "part", spec.run_id))
    assert rest.run()
    for one, other in zip(whole.trainee.parameters(), rest.trainee.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_transform_changes_what_is_trained_on(tmp_path: Path) -> None:
    black = OwnFunction(
        name="Black",
        args={},
        source="class Black:\n    def __init__(self): pass\n"
        "    def __call__(self, image): return image.point(lambda _: 0)\n",
    )
    runs = [
        training(_spec(transform=one), tmp_path / str(number))
        for number, one in enumerate((None, black))
    ]
    assert all(run.run() for run in runs)
    one, other = ([*run.trainee.parameters()] for run in runs)
    assert not all(torch.equal(first, second) for first, second in zip(one, other, strict=True))
