"""Token grids of any backbone, taken from the forward pass that trains it."""

from typing import Any

import pytest
import torch

from vtjobs.jobs.run.settings import BackboneSettings
from vtjobs.workers.errors import BackboneError
from vtjobs.workers.models.backbones import build
from vtjobs.workers.models.tokens import Tap, grid_shapes, token_grid

from ...support.training import CONVNET, VIT, differences, make_backbone, run_spec, weights_of

SWIN = make_backbone(
    "swin_tiny_patch4_window7_224",
    patch_size=2,
    embed_dim=12,
    depths=[1, 2],
    num_heads=[2, 2],
    window_size=4,
)
T2T = make_backbone("t2t_vit_14", embed_dim=24, depth=2, num_heads=2)
CVT = make_backbone("cvt_13", depths=[1, 1, 1])
CVT_DRLOC = make_backbone("cvt_13_drloc", depths=[1, 1, 1])


def _model(backbone: BackboneSettings, **recipe: Any) -> torch.nn.Module:
    spec = run_spec(backbone, **recipe)
    torch.manual_seed(0)
    return build(spec.backbone, spec.shape)


@pytest.mark.paper("DR-09")
@pytest.mark.parametrize(
    ("backbone", "size", "width", "grid"),
    [
        (VIT, 16, 16, (2, 2)),
        (VIT, 32, 16, (4, 4)),
        (CONVNET, 32, 8, (4, 4)),
        (SWIN, 16, 24, (4, 4)),
    ],
)
def test_a_backbones_grid_is_found_whatever_its_layout(
    backbone: BackboneSettings, size: int, width: int, grid: tuple[int, int]
) -> None:
    model = _model(backbone, image_size=size)
    before = weights_of(model)
    model.train()
    (found,) = grid_shapes(Tap(model, "after_norm"), 1, size)
    assert (found.width, found.height, found.columns) == (width, *grid)
    assert model.training and differences(weights_of(model), before) == []


@pytest.mark.paper("DR-08", "RV-13")
@pytest.mark.parametrize("backbone", [VIT, CONVNET, SWIN])
def test_tokens_stand_where_their_pixels_are(backbone: BackboneSettings) -> None:
    model = _model(backbone, image_size=32).eval()
    images = torch.zeros(1, 1, 32, 32)
    changed = images.clone()
    changed[:, :, 24:, :8] = 3.0
    with torch.no_grad():
        one, other = (token_grid(model, model.forward_features(each)) for each in (images, changed))
    gap = (one - other).square().sum(-1)[0]
    place = divmod(int(gap.argmax()), gap.shape[1])
    assert place[0] >= gap.shape[0] / 2 and place[1] < gap.shape[1] / 2


@pytest.mark.paper("DR-08")
def test_class_tokens_are_no_part_of_the_grid() -> None:
    model = _model(VIT).eval()
    features = torch.randn(2, 5, 16)
    assert torch.equal(token_grid(model, features).flatten(1, 2), features[:, 1:])


@pytest.mark.parametrize("shape", [(2, 8, 16), (2, 16)])
def test_features_that_form_no_grid_are_an_error(shape: tuple[int, ...]) -> None:
    with pytest.raises(BackboneError, match="grid"):
        token_grid(_model(VIT), torch.zeros(shape))


@pytest.mark.paper("DR-10")
@pytest.mark.parametrize("backbone", [VIT, CONVNET, SWIN, T2T, CVT, CVT_DRLOC])
@pytest.mark.parametrize("where", ["before_norm", "after_norm", "blocks"])
def test_a_tap_changes_nothing_of_what_the_model_computes(
    backbone: BackboneSettings, where: Any
) -> None:
    model = _model(backbone, image_size=64).eval()
    images = torch.randn(2, 1, 64, 64)
    plain = model(images)
    features, _ = Tap(model, where).features(images)
    assert torch.equal(model.forward_head(features), plain)


@pytest.mark.parametrize("backbone", [VIT, SWIN, T2T, CVT])
def test_the_tokens_before_the_last_norm_become_those_after_it(backbone: BackboneSettings) -> None:
    model = _model(backbone, image_size=64).eval()
    images = torch.randn(2, 1, 64, 64)
    (before,), (after,) = (
        Tap(model, where).features(images)[1] for where in ("before_norm", "after_norm")
    )
    assert not torch.allclose(before, after, atol=1e-3)
    assert torch.allclose(model.norm(before), after, atol=1e-5)


@pytest.mark.paper("DR-09")
def test_without_a_last_norm_there_is_nothing_to_stand_before() -> None:
    model = _model(CONVNET, image_size=64).eval()
    images = torch.randn(2, 1, 64, 64)
    (before,), (after,) = (
        Tap(model, where).features(images)[1] for where in ("before_norm", "after_norm")
    )
    assert torch.equal(before, after)


@pytest.mark.paper("DR-23")
@pytest.mark.parametrize(
    ("backbone", "grids"),
    [
        (VIT, [(16, 8, 8)] * 2),
        (SWIN, [(12, 32, 32), (24, 16, 16), (24, 16, 16)]),
        (CONVNET, [(8, 16, 16), (8, 8, 8), (8, 8, 8), (8, 8, 8)]),
        (T2T, [(24, 4, 4)] * 2),
        (CVT, [(64, 16, 16), (192, 8, 8), (384, 4, 4)]),
        (CVT_DRLOC, [(64, 16, 16), (192, 8, 8), (384, 4, 4)]),
    ],
)
def test_every_block_gives_a_grid(
    backbone: BackboneSettings, grids: list[tuple[int, int, int]]
) -> None:
    found = grid_shapes(Tap(_model(backbone, image_size=64), "blocks"), 1, 64)
    assert [(grid.width, grid.height, grid.columns) for grid in found] == grids


@pytest.mark.paper("DR-11")
def test_a_tap_holds_on_to_nothing_between_two_passes() -> None:
    model = _model(VIT)
    tap = Tap(model, "blocks")
    model(torch.randn(2, 1, 16, 16))
    assert tap._taken == []
    assert len(tap.features(torch.randn(2, 1, 16, 16))[1]) == 2


def test_a_model_without_blocks_is_an_error() -> None:
    with pytest.raises(BackboneError, match="blocks"):
        Tap(_model(make_backbone("vgg11"), image_size=32), "blocks")
