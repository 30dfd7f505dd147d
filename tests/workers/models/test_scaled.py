"""DeiT-S with factors on its branches: tables 3.11, 3.12 and 3.20 of the thesis."""

from typing import Any

import pytest
import timm
import torch

from vtjobs.analysis.findings.published import records
from vtjobs.jobs.run.settings import ModelShape
from vtjobs.workers.errors import BackboneError
from vtjobs.workers.models.backbones import build
from vtjobs.workers.models.scaled import Scale, ScaledViT
from vtjobs.workers.tools.measure import multiply_adds

from ...support.training import CPU, make_backbone

TINY = {"embed_dim": 16, "num_heads": 2, "depth": 3, "size": 32}
# Steps of table 3.20 -> what the model has.
EIGHT = {"num_heads": 8, "talking_heads": True}
STEPS = {
    2: {**EIGHT, "scale": "none"},
    3: {**EIGHT, "scale": "none", "depth": 36},
    4: {**EIGHT, "scale_init": 1e-6, "depth": 36},
}


def _model(*, size: int = 224, **args: Any) -> ScaledViT:
    shape = ModelShape(channels=3, classes=1000, image_size=size)
    made = build(make_backbone("deit_small_scaled", **args), shape)
    assert isinstance(made, ScaledViT)
    return made


@pytest.mark.paper("CA-12")
@pytest.mark.parametrize("step", STEPS)
def test_parameters_and_flops_are_the_printed_ones(step: int) -> None:
    (printed,) = [
        one
        for one in records("thesis").values()
        if one.table == "3.20" and one.variant.get("step") == step
    ]
    model = _model(**STEPS[step])
    millions = sum(one.numel() for one in model.parameters()) / 1e6
    assert printed.flops_g is not None
    # The 22 M that are printed for 36 blocks are those of twelve.
    expected = 64 if step > 2 else printed.params_m
    assert millions == pytest.approx(expected, abs=0.7)
    assert multiply_adds(model, (3, 224, 224), CPU) / 1e9 == pytest.approx(
        printed.flops_g, rel=0.02
    )


def test_without_factors_it_is_timms_deit() -> None:
    ours = _model(scale="none", **TINY).eval()
    sizes = {"embed_dim": 16, "num_heads": 2, "depth": 3, "img_size": 32}
    theirs = timm.create_model("deit_small_patch16_224", **sizes).eval()
    theirs.load_state_dict(ours.state_dict())
    images = torch.randn(2, 3, 32, 32)
    assert torch.equal(ours(images), theirs(images))


@pytest.mark.paper("CA-01", "CA-02", "CA-04")
@pytest.mark.parametrize(("scale", "count"), [("branch", 1), ("channel", 16)])
def test_a_branch_has_one_factor_or_one_for_each_channel(scale: str, count: int) -> None:
    model = _model(scale=scale, scale_init=0.25, **TINY)
    factors = [one.gamma for one in model.modules() if isinstance(one, Scale)]
    assert len(factors) == 2 * 3
    assert all(torch.equal(one, torch.full((count,), 0.25)) for one in factors)


@pytest.mark.paper("CA-02", "CA-04")
def test_with_factors_of_zero_every_block_begins_as_the_identity() -> None:
    model = _model(scale="branch", scale_init=0.0, **TINY)
    tokens = torch.randn(2, 5, 16)
    for block in model.blocks:
        assert torch.equal(block(tokens), tokens)


@pytest.mark.paper("CA-04")
def test_factors_that_are_drawn_have_the_start_as_their_mean() -> None:
    torch.manual_seed(0)
    factors = Scale(20_000, 1e-5, "uniform").gamma
    assert 0 <= float(factors.min()) and float(factors.max()) <= 2e-5
    assert float(factors.mean()) == pytest.approx(1e-5, rel=0.02)


@pytest.mark.paper("CA-07")
def test_every_block_has_the_same_rate_of_drop_path() -> None:
    rates = {block.drop_path2.drop_prob for block in _model(drop_path_rate=0.2, **TINY).blocks}
    assert rates == {0.2}


def test_heads_that_talk_have_a_way_to_mix() -> None:
    (plain, talking) = (_model(talking_heads=talk, **TINY) for talk in (False, True))
    more = talking.state_dict().keys() - plain.state_dict().keys()
    assert {name.split(".", 2)[2] for name in more} == {
        f"attn.proj_{letter}.{part}" for letter in "lw" for part in ("weight", "bias")
    }


@pytest.mark.parametrize(
    ("args", "message"),
    [({"scale": "head"}, "scale: 'head'"), ({"scale_start": "normal"}, "scale_start: 'normal'")],
)
def test_what_it_does_not_know_is_refused(args: dict[str, str], message: str) -> None:
    with pytest.raises((TypeError, BackboneError), match=message):
        _model(**args, **TINY)
