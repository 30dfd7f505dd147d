"""ResMLP with the changes of its ablation, held against what the thesis prints (table 4.3)."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from timm.models.mlp_mixer import Affine, MlpMixer, ResBlock
from torch import Tensor, nn

from vtjobs.workers import models  # noqa: F401  registers ours with timm
from vtjobs.workers.models.tokens import Tap
from vtjobs.workers.tools.counts import multiply_adds

from ...support.training import CPU, make_backbone, run_spec, training

SMALL: dict[str, Any] = {"img_size": 16, "patch_size": 4, "embed_dim": 8, "num_blocks": 2}


def made(**arguments: Any) -> nn.Module:
    torch.manual_seed(0)
    return timm.create_model("resmlp_s12", num_classes=5, **{**SMALL, **arguments}).eval()


def images() -> Tensor:
    return torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(1))


# Millions of parameters and billions of FLOPs, as printed.
@pytest.mark.paper("RM-01", "RM-02", "RM-03")
@pytest.mark.parametrize(
    ("arguments", "parameters", "flops"),
    [
        ({}, 15.4, 3.0),
        ({"norm": "layernorm"}, 15.4, 3.0),
        ({"pooling": "class_mlp"}, 17.7, 3.0),
        ({"mixing": "none"}, 14.9, 2.8),
        ({"mixing": "mlp"}, 18.6, 4.3),
        ({"mixing": "conv"}, 30.8, 6.0),
        ({"mixing": "depthwise"}, 14.9, 2.8),
        ({"mixing": "separable"}, 16.7, 3.2),
    ],
)
def test_each_change_costs_what_is_printed(
    arguments: dict[str, Any], parameters: float, flops: float
) -> None:
    model = timm.create_model("resmlp_s12", **arguments).eval()
    millions = sum(parameter.numel() for parameter in model.parameters()) / 1e6
    assert millions == pytest.approx(parameters, abs=0.051)
    billions = multiply_adds(model, (3, 224, 224), CPU) / 1e9
    assert billions == pytest.approx(flops, abs=0.11)


def changed_patches(model: nn.Module) -> list[int]:
    """Return the patches whose tokens change with the first patch of an image."""
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    tap = Tap(model, "blocks")
    other = images()
    other[:, :, :4, :4] += 1
    with torch.no_grad():
        (first, *_), (again, *_) = (tap.features(shown)[1] for shown in (images(), other))
    return (first != again).any(-1).any(0).flatten().nonzero().flatten().tolist()


@pytest.mark.paper("RM-03")
@pytest.mark.parametrize(
    ("mixing", "reached"),
    [
        ("linear", list(range(16))),
        ("mlp", list(range(16))),
        ("none", [0]),
        ("conv", [0, 1, 4, 5]),
        ("depthwise", [0, 1, 4, 5]),
        ("separable", [0, 1, 4, 5]),
    ],
)
def test_a_block_tells_a_patch_to_as_many_others_as_its_mixing_reaches(
    mixing: str, reached: list[int]
) -> None:
    assert changed_patches(made(mixing=mixing)) == reached


def test_patches_that_are_not_mixed_are_a_bag() -> None:
    model = made(mixing="none")
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    turned = images().unflatten(2, (4, 4)).flip(2).flatten(2, 3)
    torch.testing.assert_close(model(images()), model(turned))


def test_a_depthwise_convolution_mixes_no_channels() -> None:
    layer = made(mixing="depthwise").blocks[0].linear_tokens  # type: ignore[index,union-attr]
    shown = torch.zeros(1, 8, 16)
    shown[0, 3] = 1
    with torch.no_grad():
        change = layer(shown) - layer(torch.zeros(1, 8, 16))
    assert change.abs().sum(2).nonzero()[:, 1].tolist() == [3]


@pytest.mark.paper("RM-01")
def test_without_changes_it_is_timms_model_weight_by_weight() -> None:
    torch.manual_seed(0)
    block = partial(ResBlock, init_values=0.1)
    plain = MlpMixer(num_classes=5, mlp_ratio=4, block_layer=block, norm_layer=Affine, **SMALL)
    own = made().state_dict()
    assert plain.state_dict().keys() == own.keys()
    assert all(torch.equal(value, own[name]) for name, value in plain.state_dict().items())


def test_layers_of_class_mlp_start_as_those_of_the_blocks() -> None:
    model = made(pooling="class_mlp", embed_dim=64)
    block, layer = model.blocks[0], model.class_layers[0]  # type: ignore[index]
    for name in ("fc1", "fc2"):
        one, other = (getattr(part.mlp_channels, name) for part in (block, layer))
        assert float(other.weight.std() / one.weight.std()) == pytest.approx(1, abs=0.1)
        assert other.bias.abs().max() < 1e-5
    assert not layer.linear_tokens.bias.any()


@pytest.mark.paper("RM-02")
def test_the_class_token_takes_in_the_patches_and_leaves_them_as_they_are() -> None:
    model = made(pooling="class_mlp")
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    with torch.no_grad():
        tokens = model.forward_features(images())
        patches = model.norm(model.blocks(model.stem(images())))
        assert tokens.shape == (2, 17, 8)
        torch.testing.assert_close(tokens[:, 1:], patches)
        torch.testing.assert_close(model.head(tokens[:, 0]), model(images()))
        assert not torch.equal(tokens[0, 0], tokens[1, 0])


@pytest.mark.parametrize(
    ("argument", "value", "message"),
    [
        ("mixing", "attention", "mixing: 'attention' is none of linear, none, mlp"),
        ("norm", "batchnorm", "norm: 'batchnorm' is none of affine, layernorm"),
        ("pooling", "max", "pooling: 'max' is none of average, class_mlp"),
    ],
)
def test_an_unknown_change_is_refused(argument: str, value: str, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        made(**{argument: value})


@pytest.mark.parametrize(
    "change",
    [{"pooling": "class_mlp"}, {"mixing": "none"}, {"mixing": "conv"}, {"norm": "layernorm"}],
)
def test_each_change_trains_with_drloc(change: dict[str, str], tmp_path: Path) -> None:
    small = {"patch_size": 4, "embed_dim": 8, "num_blocks": 1}
    run = training(run_spec(make_backbone("resmlp_s12", **small, **change), "drloc"), tmp_path)
    before = {name: value.clone() for name, value in run.trainee.named_parameters()}
    assert run.run()
    still = [
        name for name, value in run.trainee.named_parameters() if torch.equal(value, before[name])
    ]
    assert still == []


@pytest.mark.paper("RM-01")
def test_an_affine_norm_folds_into_the_linear_layer_behind_it() -> None:
    # Section 4.3 of the thesis: at inference it costs nothing.
    draw = torch.Generator().manual_seed(2)
    affine, linear = Affine(8), nn.Linear(8, 5)
    folded = nn.Linear(8, 5)
    with torch.no_grad():
        affine.alpha.copy_(torch.randn(1, 1, 8, generator=draw))
        affine.beta.copy_(torch.randn(1, 1, 8, generator=draw))
        folded.weight.copy_(linear.weight * affine.alpha.view(8))
        folded.bias.copy_(linear.bias + linear.weight @ affine.beta.view(8))
    tokens = torch.randn(2, 16, 8, generator=draw)
    torch.testing.assert_close(folded(tokens), linear(affine(tokens)))
