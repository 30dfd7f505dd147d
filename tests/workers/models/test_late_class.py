"""DeiT-S whose class token comes late: table 3.13 of the thesis."""

from typing import Any

import pytest
import torch

from vtjobs.analysis.findings.published import records
from vtjobs.jobs.run.settings import ModelShape
from vtjobs.workers.errors import BackboneError
from vtjobs.workers.models.backbones import build
from vtjobs.workers.models.late_class import LateClassViT
from vtjobs.workers.tools.measure import multiply_adds

from ...support.training import CPU, make_backbone


def _model(*, size: int = 224, **args: Any) -> LateClassViT:
    shape = ModelShape(channels=3, classes=1000, image_size=size)
    made = build(make_backbone("deit_small_late_class", **args), shape)
    assert isinstance(made, LateClassViT)
    return made


TINY = {"embed_dim": 16, "num_heads": 2, "depth": 3, "size": 32}
# Blocks of self-attention and class-attention, and where the token joins, as the table has them.
ROWS = {
    ("12+0", 2): {"class_at": 2, "class_depth": 0},
    ("12+0", 11): {"class_at": 11, "class_depth": 0},
    ("9+3", 9): {"depth": 9, "class_depth": 3},
    ("10+2", 10): {"depth": 10, "class_depth": 2},
    ("11+1", 11): {"depth": 11, "class_depth": 1},
    ("12+1", 12): {"class_depth": 1},
    ("12+2", 12): {"class_depth": 2},
    ("12+3", 12): {"class_depth": 3},
}


@pytest.mark.paper("CA-08")
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_parameters_and_flops_are_the_printed_ones(row: tuple[str, int]) -> None:
    (printed,) = [
        one
        for one in records("thesis").values()
        if one.table == "3.13"
        and (one.variant["depth_sa_ca"], one.variant["cls_at"]) == row
        and one.method in ("late_cls", "class_attention")
    ]
    model = _model(**ROWS[row])
    millions = sum(one.numel() for one in model.parameters()) / 1e6
    assert printed.params_m is not None and printed.flops_g is not None
    assert millions == pytest.approx(printed.params_m, abs=0.5)
    assert multiply_adds(model, (3, 224, 224), CPU) / 1e9 == pytest.approx(
        printed.flops_g, rel=0.02
    )


@pytest.mark.paper("CA-08")
def test_before_it_joins_the_class_token_changes_no_patch() -> None:
    model = _model(class_at=2, class_depth=0, **TINY).eval()
    seen: list[torch.Tensor] = []
    for block in model.blocks:
        block.register_forward_hook(lambda _module, _inputs, tokens: seen.append(tokens))
    images = torch.randn(1, 3, 32, 32)
    model(images)
    assert [tokens.shape[1] for tokens in seen] == [4, 4, 5]
    before = seen[1]
    with torch.no_grad():
        model.cls_token.add_(1.0)
    model(images)
    assert torch.equal(seen[4], before)


@pytest.mark.paper("CA-08")
def test_class_attention_leaves_the_patches_as_they_are() -> None:
    model = _model(class_depth=2, **TINY).eval()
    images = torch.randn(2, 3, 32, 32)
    tokens = model.forward_features(images)
    with torch.no_grad():
        model.cls_token.add_(1.0)
    other = model.forward_features(images)
    assert tokens.shape == (2, 5, 16)
    assert torch.equal(other[:, 1:], tokens[:, 1:]) and not torch.equal(other[:, 0], tokens[:, 0])


@pytest.mark.parametrize(
    "args", [{"class_depth": 0}, {"class_at": 3}, {"class_at": 1, "class_depth": 1}]
)
def test_a_token_that_would_join_nowhere_or_twice_is_refused(args: dict[str, int]) -> None:
    with pytest.raises(BackboneError, match="the class token joins before one of 3 blocks"):
        _model(**{**TINY, **args})


def test_class_attention_is_the_last_layer_for_rates_that_fall_by_layers() -> None:
    layer = _model(class_depth=2, **TINY).group_matcher()
    names = [
        "cls_token",
        "blocks.0.norm1.weight",
        "blocks.2.norm1.weight",
        "class_blocks.1.norm1.bias",
    ]
    assert [layer(name) for name in names] == [0, 1, 3, 5]
    assert layer("head.weight") == float("inf")
