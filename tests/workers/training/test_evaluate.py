"""Scores of a model on a split."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vtjobs.jobs.values import changed
from vtjobs.workers.data import batches
from vtjobs.workers.data.batches import EvalSource
from vtjobs.workers.data.image_set import ImageSet
from vtjobs.workers.training.evaluate import evaluate
from vtjobs.workers.training.trainee import Numerics

from ...support.training import ALONE, CPU, run_spec

SPEC = run_spec(image_size=4)
NUMERICS = Numerics(CPU, None, None)


def _source(count: int, classes: int) -> EvalSource:
    draw = torch.Generator().manual_seed(count)
    images = torch.randint(0, 256, (count, 1, 4, 4), generator=draw, dtype=torch.uint8)
    labels = torch.randint(0, classes, (count,), generator=draw)
    dataset = changed(SPEC.dataset, mean=[0.5], std=[0.25], classes=classes)
    return EvalSource(ImageSet(labels=labels, images=images), dataset, SPEC.recipe, CPU)


def _model(classes: int) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(16, classes))


@pytest.mark.parametrize("classes", [3, 10])
@pytest.mark.parametrize("count", [1, 256, 300])
def test_the_scores_are_those_of_the_whole_split_at_once(count: int, classes: int) -> None:
    source, model = _source(count, classes), _model(classes)
    scores = evaluate(model, source, ALONE, NUMERICS)
    assert scores is not None
    assert source.images is not None
    shown = source.images.rows(0, count).float()
    logits = model.eval()((shown - source.mean) / source.std).double()
    assert scores["n"] == count
    assert scores["loss"] == pytest.approx(
        float(F.cross_entropy(logits, source.labels).detach()), rel=1e-5
    )
    ranked = logits.argsort(1, descending=True) == source.labels[:, None]
    assert scores["top1"] == pytest.approx(100 * float(ranked[:, :1].sum()) / count)
    if classes > 5:
        assert scores["top5"] == pytest.approx(100 * float(ranked[:, :5].sum()) / count)
    else:
        assert "top5" not in scores


def _source_with(count: int, classes: int, **more: Tensor) -> EvalSource:
    """A source like `_source`, whose set has other answers or fewer classes to choose from."""
    plain = _source(count, classes)
    assert plain.images is not None
    images = ImageSet(labels=plain.labels, images=plain.images.rows(0, count), **more)
    dataset = changed(SPEC.dataset, mean=[0.5], std=[0.25], classes=classes)
    return EvalSource(images, dataset, SPEC.recipe, CPU)


def _logits(model: nn.Module, source: EvalSource) -> Tensor:
    assert source.images is not None
    shown = source.images.rows(0, source.size).float()
    logits: Tensor = model.eval()((shown - source.mean) / source.std).double().detach()
    return logits


def test_any_of_several_right_classes_counts() -> None:
    count, classes, model = 300, 10, _model(10)
    draw = torch.Generator().manual_seed(7)
    answers = torch.rand(count, classes, generator=draw) < 0.2
    answers[:, 3] |= ~answers.any(1)
    source = _source_with(count, classes, answers=answers)
    scores = evaluate(model, source, ALONE, NUMERICS)
    assert scores is not None
    logits = _logits(model, source)
    ranked = logits.argsort(1, descending=True).tolist()
    right = [set(row.nonzero()[:, 0].tolist()) for row in answers]
    for name, most in (("top1", 1), ("top5", 5)):
        hits = sum(bool(right[at] & set(ranked[at][:most])) for at in range(count))
        assert scores[name] == pytest.approx(100 * hits / count)
    shares = (logits.softmax(1) * answers).sum(1)
    assert scores["loss"] == pytest.approx(float(-shares.log().mean()), rel=1e-5)


def test_one_right_class_an_image_scores_as_its_label_does() -> None:
    model, plain = _model(10), _source(300, 10)
    answers = F.one_hot(plain.labels, 10).bool()
    alike = evaluate(model, _source_with(300, 10, answers=answers), ALONE, NUMERICS)
    assert alike == pytest.approx(evaluate(model, plain, ALONE, NUMERICS))


def test_a_model_chooses_only_among_the_classes_of_the_set() -> None:
    model, plain = _model(10), _source(300, 10)
    allowed = torch.zeros(10, dtype=torch.bool)
    allowed[[1, 4, 8]] = True
    labels = torch.tensor([1, 4, 8])[plain.labels % 3]
    assert plain.images is not None
    images = ImageSet(labels=labels, images=plain.images.rows(0, 300), only=allowed)
    dataset = changed(SPEC.dataset, mean=[0.5], std=[0.25], classes=10)
    source = EvalSource(images, dataset, SPEC.recipe, CPU)
    scores = evaluate(model, source, ALONE, NUMERICS)
    assert scores is not None
    few = _logits(model, source)[:, allowed]
    truth = plain.labels % 3
    assert scores["top1"] == pytest.approx(100 * float((few.argmax(1) == truth).double().mean()))
    assert scores["loss"] == pytest.approx(float(F.cross_entropy(few, truth)), rel=1e-5)


def test_a_metric_of_the_labs_own_is_not_asked_where_several_classes_are_right() -> None:
    answers = torch.ones(300, 3, dtype=torch.bool)
    source = _source_with(300, 3, answers=answers)
    scores = evaluate(_model(3), source, ALONE, NUMERICS, metrics={"never": lambda *_: 1 / 0})
    assert scores is not None and "never" not in scores


def test_a_metric_of_the_labs_own_gets_the_logits_and_labels_of_the_whole_set() -> None:
    source, model = _source(300, 3), _model(3)
    seen: list[tuple[Tensor, Tensor]] = []

    def metric(logits: Tensor, labels: Tensor) -> float:
        seen.append((logits, labels))
        return 0.25

    scores = evaluate(model, source, ALONE, NUMERICS, metrics={"mine": metric})
    assert scores is not None and scores["mine"] == 0.25
    ((logits, labels),) = seen
    assert torch.equal(labels, source.labels)
    assert scores["loss"] == pytest.approx(float(F.cross_entropy(logits, labels)), rel=1e-5)


def test_a_metric_that_works_in_place_leaves_the_next_one_alone() -> None:
    source, model = _source(300, 3), _model(3)

    def careless(logits: Tensor, _: Tensor) -> float:
        return float(logits.zero_().sum())

    def sum_of(logits: Tensor, _: Tensor) -> float:
        return float(logits.abs().sum())

    scores = evaluate(model, source, ALONE, NUMERICS, metrics={"careless": careless, "sum": sum_of})
    assert scores is not None and scores["sum"] > 0


def test_scoring_draws_no_random_number_and_leaves_the_model_in_training() -> None:
    model = _model(3).train()
    before = torch.get_rng_state()
    evaluate(model, _source(20, 3), ALONE, NUMERICS)
    assert torch.equal(torch.get_rng_state(), before)
    assert model.training


def test_scoring_that_is_stopped_gives_no_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "EVAL_BATCH", 4)
    asked: list[int] = []

    def keep_going() -> bool:
        asked.append(1)
        return len(asked) < 2

    assert evaluate(_model(3), _source(20, 3), ALONE, NUMERICS, keep_going=keep_going) is None
    assert len(asked) == 2


def test_scoring_needs_no_gradient() -> None:
    seen: list[Tensor] = []
    model = _model(3)
    model.register_forward_hook(lambda _, __, output: seen.append(output))
    evaluate(model, _source(5, 3), ALONE, NUMERICS)
    assert not seen[0].requires_grad
