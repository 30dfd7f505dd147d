"""PatchConvNet with the changes of its ablation (thesis, table 5.7)."""

from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from vtjobs.jobs.run.settings import ModelShape
from vtjobs.workers import models  # noqa: F401  registers ours with timm
from vtjobs.workers.checkpoints.weights import load_weights
from vtjobs.workers.errors import BackboneError
from vtjobs.workers.models.backbones import build
from vtjobs.workers.models.tokens import token_grid
from vtjobs.workers.tools.saliency import attention_of_classes
from vtjobs.workers.training.parts import parameters_of

from ...support.training import make_backbone, run_spec, training

SMALL: dict[str, Any] = {"embed_dim": 16, "depth": 2}
PER_CLASS = {"class_tokens": "per_class"}
CHANGES: list[dict[str, Any]] = [
    {"pooling": "average"},
    {"stem": "linear"},
    {"norm": "batchnorm"},
    {"num_heads": 2},
    PER_CLASS,
]


def made(classes: int = 5, **arguments: Any) -> nn.Module:
    torch.manual_seed(0)
    return timm.create_model("patchconvnet_s60", num_classes=classes, **{**SMALL, **arguments})


def images() -> Tensor:
    return torch.randn(3, 3, 64, 64, generator=torch.Generator().manual_seed(1))


def test_average_pooling_is_the_mean_of_the_patches() -> None:
    model = made(pooling="average").eval()
    names = {name.split(".")[0] for name, _ in model.named_parameters()}
    assert names == {"stem", "blocks", "norm", "head"}
    with torch.no_grad():
        tokens = model.forward_features(images())
        assert tokens.shape == (3, 16, 16)
        torch.testing.assert_close(model(images()), model.head(tokens.mean(1)))


def test_a_linear_stem_sees_each_patch_by_itself() -> None:
    model = made(stem="linear").eval()
    other = images()
    other[:, :, :16, :16] += 1
    with torch.no_grad():
        change = model.stem(other) - model.stem(images())
    assert change.abs().sum((0, 1)).nonzero().tolist() == [[0, 0]]


@pytest.mark.paper("PC-05")
def test_batch_norm_is_in_the_blocks_alone() -> None:
    model = made(norm="batchnorm")
    assert all(isinstance(block.norm, nn.BatchNorm2d) for block in model.blocks)  # type: ignore[union-attr]
    kept = [name for name, layer in model.named_modules() if isinstance(layer, nn.LayerNorm)]
    assert kept == ["pool.norm1", "pool.norm2", "norm"]


def test_multi_head_attention_has_the_weights_of_single_head_attention() -> None:
    one, many = made(), made(num_heads=4)
    assert one.pool.attn.num_heads == 1 and many.pool.attn.num_heads == 4
    for name, value in many.state_dict().items():
        assert torch.equal(value, one.state_dict()[name])


@pytest.mark.paper("PC-03")
def test_each_class_has_a_token_and_a_row_of_the_classifier() -> None:
    model = made(**PER_CLASS).eval()
    with torch.no_grad():
        tokens = model.forward_features(images())
        assert tokens.shape == (3, 5 + 16, 16)
        logits = model(images())
        for number in range(5):
            one = tokens[:, number] @ model.head.weight[number] + model.head.bias[number]
            torch.testing.assert_close(logits[:, number], one)
        assert token_grid(model, tokens).shape == (3, 4, 4, 16)


def test_a_class_token_learns_nothing_from_another_one() -> None:
    model = made(**PER_CLASS).eval()
    model(images())[:, 2].sum().backward()
    gradient = model.head.tokens.grad
    assert gradient is not None
    assert gradient[0].abs().sum(1).nonzero().flatten().tolist() == [2]


@pytest.mark.paper("PC-03")
def test_the_attention_of_a_class_sums_to_one_over_the_patches() -> None:
    model = made(**PER_CLASS).eval()
    nn.init.normal_(model.head.tokens)
    found = attention_of_classes(model, images())
    assert found is not None and found.shape == (3, 5, 4, 4)
    torch.testing.assert_close(found.sum((2, 3)), torch.ones(3, 5))
    assert not torch.allclose(found[:, 0], found[:, 1])
    assert attention_of_classes(made().eval(), images()) is None


def test_other_classes_have_other_tokens() -> None:
    model = made(**PER_CLASS)
    model.reset_classifier(3)
    assert model(images()).shape == (3, 3)
    model.reset_classifier(0)
    assert model(images()).shape == (3, 16)


def test_weights_of_other_classes_leave_out_the_tokens_of_classes(tmp_path: Path) -> None:
    path = tmp_path / "five.safetensors"
    save_file(made(5, **PER_CLASS).state_dict(), str(path))
    left = load_weights(made(7, **PER_CLASS), path)
    assert left == ["head.bias", "head.tokens", "head.weight"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_heads": 7}, "num_heads: 16 channels cannot be divided into 7 heads"),
        ({"num_heads": 0}, "num_heads: 16 channels cannot be divided into 0 heads"),
        ({"num_heads": "2"}, "num_heads: 16 channels cannot be divided into 2 heads"),
        ({"pooling": "max"}, "pooling: 'max' is none of class_attention, average"),
        ({"stem": "deep"}, "stem: 'deep' is none of conv, linear"),
        ({"norm": "none"}, "norm: 'none' is none of layernorm, batchnorm"),
        ({"class_tokens": "two"}, "class_tokens: 'two' is none of one, per_class"),
        ({"pooling": "average", **PER_CLASS}, "per_class needs class_attention"),
        ({"classes": 0, **PER_CLASS}, "per_class needs class_attention and a classifier"),
    ],
)
def test_changes_that_do_not_exist_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        made(**arguments)


@pytest.mark.paper("PC-11")
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: next(iter(change)))
@pytest.mark.parametrize("head", ["drloc", "relvit"])
def test_each_change_trains_with_a_head(change: dict[str, Any], head: str, tmp_path: Path) -> None:
    backbone = make_backbone("patchconvnet_s60", **SMALL, layer_scale=0.1, **change)
    run = training(run_spec(backbone, head, image_size=32), tmp_path)
    before = {name: value.clone() for name, value in run.trainee.named_parameters()}
    assert run.run()
    still = [
        name for name, value in run.trainee.named_parameters() if torch.equal(value, before[name])
    ]
    assert still == []


def test_a_head_without_labels_trains_beside_tokens_of_classes(tmp_path: Path) -> None:
    backbone = make_backbone("patchconvnet_s60", **SMALL, **PER_CLASS)
    spec = run_spec(backbone, "relvit", params={"labels": False}, image_size=32, epochs=1)
    assert training(spec, tmp_path).run()


def test_a_linear_probe_leaves_the_tokens_of_classes_as_they_are() -> None:
    model = made(**PER_CLASS)
    kept = parameters_of(model, "classifier")
    assert [id(one) for one in kept] == [id(model.head.weight), id(model.head.bias)]
    model.reset_classifier(0)
    with pytest.raises(BackboneError, match="needs a classifier"):
        parameters_of(model, "classifier")


def test_tokens_of_classes_start_as_wide_as_the_grid_says() -> None:
    settings = make_backbone("patchconvnet_s60", **SMALL, **PER_CLASS, class_token_std=0.5)
    model = build(settings, ModelShape(channels=3, classes=50, image_size=32))
    assert float(model.head.tokens.std()) == pytest.approx(0.5, rel=0.2)
