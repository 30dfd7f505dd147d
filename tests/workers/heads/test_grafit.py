"""Grafit: its losses against their equations, its memory, its target network, its projector."""

import math
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vtjobs.jobs.documents import from_plain
from vtjobs.jobs.run.settings import GrafitParameters
from vtjobs.workers.errors import BackboneError
from vtjobs.workers.heads.grafit import Grafit, instance_loss, knn_loss
from vtjobs.workers.models.projector import replace_classifier, widen_classifier

from ...support.training import CONVNET, head_params, run_spec, training


def params(**changes: Any) -> GrafitParameters:
    return from_plain(head_params("grafit", **changes), GrafitParameters)


class Trunk(nn.Module):
    """Two numbers of an image, and a layer that normalises by the batch."""

    num_features = 3

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.norm = nn.BatchNorm1d(3)

    def forward_features(self, images: Tensor) -> Tensor:
        return self.norm(self.layer(images.flatten(1)))

    def forward_head(self, tokens: Tensor, pre_logits: bool = False) -> Tensor:
        return tokens


LABELS = torch.tensor([0, 1, 0, 1, 2, 0])


def head(trunk: Trunk | None = None, **changes: Any) -> Grafit:
    """Return a head that has begun, on six training images."""
    torch.manual_seed(0)
    trunk = trunk or Trunk()
    made = Grafit(trunk, params(projector="none", **changes))
    made.begin(trunk, LABELS)
    return made


def learn(made: Grafit, trunk: Trunk, images: Tensor, indices: Tensor | None) -> Any:
    labels = LABELS[indices] if indices is not None else torch.zeros(len(images), dtype=torch.int64)
    return made.learn(trunk.forward_features(images), images, labels, indices)


@pytest.mark.paper("GR-01")
def test_the_knn_loss_is_that_of_equation_2_3() -> None:
    trunk = Trunk().eval()
    made = head(trunk, losses=["knn"])
    images, indices = torch.rand(3, 1, 2, 2), torch.tensor([4, 0, 3])
    found = learn(made, trunk, images, indices)
    expected = 0.0
    embeddings = trunk.forward_features(images)
    for embedding, own in zip(embeddings, indices.tolist(), strict=True):
        cosines = F.cosine_similarity(embedding.detach()[None], made.memory)
        weights = {
            other: math.exp(float(cosines[other]) / 0.05) for other in range(6) if other != own
        }
        same = sum(weight for other, weight in weights.items() if LABELS[other] == LABELS[own])
        # The image of class 2 is alone in it.
        expected -= math.log(same / sum(weights.values())) / 3 if same else 0.0
    assert float(found.loss.detach()) == pytest.approx(expected, rel=1e-4)


@pytest.mark.paper("GR-01")
def test_an_image_that_is_alone_in_its_class_leaves_the_gradients_finite() -> None:
    logs = torch.tensor([[-torch.inf, -0.5, -1.0]]).log_softmax(1).requires_grad_()
    loss = knn_loss(logs, torch.tensor([[True, False, False]]))
    loss.backward()
    assert float(loss.detach()) == 0.0 and logs.grad is not None
    assert torch.equal(logs.grad, torch.zeros(1, 3))


@pytest.mark.paper("GR-02")
def test_the_instance_loss_is_that_of_equation_2_1() -> None:
    predictions, targets = torch.randn(2, 3, 5), torch.randn(2, 3, 5)
    expected = 0.0
    for image in range(2):
        for one in range(3):
            for other in range(3):
                if one != other:
                    cosine = F.cosine_similarity(
                        predictions[image, one], targets[image, other], dim=0
                    )
                    expected -= float(cosine) / (3 * 2) / 2
    assert float(instance_loss(predictions, targets)) == pytest.approx(expected, rel=1e-5)


def test_views_that_agree_have_the_lowest_instance_loss() -> None:
    embedding = torch.randn(4, 1, 8).expand(4, 5, 8)
    assert float(instance_loss(embedding, embedding)) == pytest.approx(-1.0)
    assert float(instance_loss(embedding, -embedding)) == pytest.approx(1.0)


@pytest.mark.paper("GR-03")
def test_the_memory_takes_half_of_each_new_embedding() -> None:
    trunk = Trunk().eval()
    made = head(trunk, losses=["knn"])
    before = made.memory.clone()
    indices = torch.tensor([5, 1])
    found = learn(made, trunk, torch.rand(2, 1, 2, 2), indices)
    assert torch.equal(made.memory, before), "it stays as it is until the step is done"
    made.after_step(trunk, indices, found.kept)
    expected = before.clone()
    expected[indices] = (before[indices] + found.kept) / 2
    assert torch.equal(made.memory, expected)
    torch.testing.assert_close(found.kept.norm(dim=1), torch.ones(2))


def test_of_several_views_the_first_is_remembered_and_compared_with_neighbours() -> None:
    trunk = Trunk().eval()
    views = torch.rand(6, 1, 2, 2)
    whole = head(trunk, views=3)
    alone = head(trunk, losses=["knn"])
    alone.memory.copy_(whole.memory)
    indices = torch.tensor([0, 1])
    found = learn(whole, trunk, views, indices)
    expected = learn(alone, trunk, views[::3], indices)
    assert torch.equal(found.kept, expected.kept)
    torch.testing.assert_close(found.metrics["knn_loss"], expected.metrics["knn_loss"])


@pytest.mark.paper("GR-02")
def test_the_target_network_follows_slowly_and_gets_no_gradient() -> None:
    trunk = Trunk()
    made = head(trunk, views=2, target_decay=0.75)
    assert made.target is not None
    learn(made, trunk, torch.rand(4, 1, 2, 2), torch.tensor([0, 1])).loss.backward()
    assert all(one.grad is None for one in made.target.parameters())
    assert trunk.layer.weight.grad is not None and bool(trunk.layer.weight.grad.any())
    start = made.target.layer.weight.clone()
    with torch.no_grad():
        trunk.layer.weight += 4.0
    made.after_step(trunk, torch.tensor([0, 1]), torch.zeros(2, 3))
    torch.testing.assert_close(made.target.layer.weight, start + 1.0)
    assert torch.equal(made.target.norm.num_batches_tracked, torch.tensor(0))


def test_the_target_network_normalises_by_the_batch_and_drops_nothing() -> None:
    trunk = timm.create_model(
        "resnet18", num_classes=0, layers=[1, 1, 1, 1], channels=[8] * 4, drop_path_rate=0.5
    )
    made = Grafit(trunk, params(projector="none", labels=False))
    made.begin(trunk, LABELS)
    made.train()
    target: Any = made.target
    images = torch.rand(4, 3, 32, 32)
    start = {name: value.clone() for name, value in target.named_buffers()}
    first, second = (target.forward_features(images) for _ in range(2))
    assert torch.equal(first, second), "drop path is off"
    assert not torch.allclose(first, target.eval().forward_features(images))
    assert all(torch.equal(value, start[name]) for name, value in target.named_buffers())


def test_another_sets_images_are_compared_with_the_whole_memory() -> None:
    trunk = Trunk().eval()
    made = head(trunk, losses=["knn"])
    made.memory.copy_(torch.eye(3).repeat(2, 1))
    embeddings = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    right = torch.tensor([1, 0])
    found = made.learn(embeddings, torch.zeros(2, 1, 2, 2), right, None)
    # Images 0 and 3 are the nearest of the first one, 1 and 4 of the second: classes 0 and 1, 1 and 2.
    assert float(found.metrics["knn_loss"]) == pytest.approx((math.log(2) + 20.0) / 2, rel=0.1)


def test_where_several_classes_are_right_each_counts() -> None:
    trunk = Trunk().eval()
    made = head(trunk, losses=["knn"])
    embeddings = torch.rand(1, 3)
    answers = torch.tensor([[True, True, True]])
    found = made.learn(embeddings, torch.zeros(1, 1, 2, 2), answers, None)
    assert float(found.metrics["knn_loss"]) == pytest.approx(0.0, abs=1e-6)
    assert float(found.metrics["nearest_top1"]) == 100.0


def test_with_weight_0_the_classifier_is_trained_as_without_the_head(tmp_path: Path) -> None:
    nothing = {"weight": 0.0, "labels": True, "projector": "none"}
    runs = [
        training(run_spec(CONVNET, name, params=params, epochs=1), tmp_path / name)
        for name, params in (("supervised", {}), ("grafit", nothing))
    ]
    assert all(run.run() for run in runs)
    weights = [run.trainee.backbone.state_dict() for run in runs]
    assert all(torch.equal(value, weights[1][name]) for name, value in weights[0].items())


@pytest.mark.paper("GR-04")
@pytest.mark.parametrize(
    ("projector", "millions"), [("none", 23.5), ("linear", 23.8), ("mlp", 32.9)]
)
def test_resnet_50_has_the_parameters_of_table_2_7(projector: str, millions: float) -> None:
    with torch.device("meta"):
        model = timm.create_model("resnet50")
        replace_classifier(model, "resnet50", params(projector=projector))
    count = sum(value.numel() for value in model.parameters()) / 1e6
    # The table counts no biases, it seems: with them the projector has 0.02 million more.
    assert count == pytest.approx(millions, abs=0.06)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("resnet18", {}),
        ("vit_tiny_patch16_224", {}),
        ("swin_tiny_patch4_window7_224", {}),
        ("convnext_atto", {}),
    ],
)
def test_a_projector_takes_the_classifiers_place_in_every_family(
    name: str, options: dict[str, Any]
) -> None:
    with torch.device("meta"):
        model = timm.create_model(name, **options)
        replace_classifier(model, name, params())
        found = model.eval()(torch.zeros(2, 3, 224, 224))
    assert found.shape == (2, 256)


def test_a_classifier_that_is_no_linear_layer_cannot_be_replaced() -> None:
    with torch.device("meta"):
        model = timm.create_model("deit_tiny_distilled_patch16_224")
    with pytest.raises(BackboneError, match="needs a linear classifier"):
        replace_classifier(model, "deit_ti_distilled", params())
    with pytest.raises(BackboneError, match="takes the place of a linear classifier"):
        widen_classifier(model, "deit_ti_distilled")


@pytest.mark.paper("GR-14")
def test_the_larger_classifier_is_two_linear_layers_with_batch_norm_and_relu() -> None:
    model = timm.create_model("resnet18", num_classes=5)
    widen_classifier(model, "resnet18")
    kinds = [type(layer) for layer in model.get_classifier()]
    assert kinds == [nn.Linear, nn.BatchNorm1d, nn.ReLU, nn.Linear]
    assert model.eval()(torch.zeros(2, 3, 64, 64)).shape == (2, 5)
