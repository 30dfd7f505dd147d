"""Segmentation: any backbone with UperNet's decoder."""

import copy
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from vtjobs.jobs.grid import catalogue
from vtjobs.jobs.run.settings import ModelShape
from vtjobs.jobs.values import changed
from vtjobs.workers.models.backbones import build, not_decayed
from vtjobs.workers.models.pyramid import _Halved
from vtjobs.workers.models.segmenter import MaskLogits, Segmenter, _pooled

from ...support.families import FAMILIES


def _segmenter(family: str, **more: object) -> Segmenter:
    known = catalogue.backbone(family)
    backbone = changed(known, args=known.args | FAMILIES.get(family, {}))
    shape = {"channels": 3, "classes": 5, "image_size": 32, "decoder_width": 16, **more}
    made = build(backbone, ModelShape(task="segmentation", **shape))  # type: ignore[arg-type]
    assert isinstance(made, Segmenter)
    return made


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_gets_logits_for_each_pixel_and_a_gradient_for_each_parameter(
    family: str,
) -> None:
    model = _segmenter(family).train()
    found = model(torch.randn(2, 3, 32, 32))
    assert isinstance(found, MaskLogits)
    assert found.pixels.shape[:2] == found.auxiliary.shape[:2] == (2, 5)
    assert found.pixels.shape[2] >= found.auxiliary.shape[2], "the finest map is the largest"
    (found.pixels.sum() + found.auxiliary.sum()).backward()
    # DDP waits for the gradient of whatever asks for one.
    assert [
        name for name, one in model.named_parameters() if one.requires_grad and one.grad is None
    ] == []
    assert model.eval()(torch.randn(1, 3, 32, 32)).shape[:2] == (1, 5), "scoring has one output"


@pytest.mark.paper("DR-30", "DR-59")
def test_swin_t_with_upernet_has_the_60_m_parameters_of_swins_program() -> None:
    # Liu et al. 2021, Swin, table 3: 60 M.
    with torch.device("cpu"):
        model = build(
            catalogue.backbone("swin_t"),
            ModelShape(channels=3, classes=150, image_size=224, task="segmentation"),
        )
    assert sum(one.numel() for one in model.parameters()) == pytest.approx(60e6, rel=0.005)


def test_a_plain_transformer_gives_four_maps_of_falling_size_from_four_depths() -> None:
    model = _segmenter("deit_s", image_size=64)
    sides = [one.shape[-1] for one in model.forward_features(torch.zeros(1, 3, 64, 64))]
    assert sides == [16, 8, 4, 2]


@pytest.mark.parametrize(
    ("family", "takes"),
    [("swin_t", True), ("resnet50", True), ("deit_s", False), ("cait_xxs24", False)],
)
def test_a_backbone_says_whether_it_takes_images_of_any_size(family: str, takes: bool) -> None:
    model = _segmenter(family).eval()
    assert model.takes_any_size == takes
    if takes:
        assert (
            model(torch.zeros(1, 3, 64, 96)).shape[3]
            == 3 * model(torch.zeros(1, 3, 64, 32)).shape[3]
        )


def test_swin_is_the_same_network_on_images_of_its_size_whether_it_takes_others_or_not() -> None:
    known = catalogue.backbone("swin_t")
    backbone = changed(known, args=known.args | FAMILIES["swin_t"] | {"window_size": 4})
    shape = ModelShape(channels=3, classes=5, image_size=32)
    strict = build(backbone, shape).eval()
    loose = build(backbone, changed(shape, task="segmentation", decoder_width=16)).eval()
    assert isinstance(loose, Segmenter)
    loose.encoder.load_state_dict(strict.state_dict(), strict=False)
    images = torch.randn(2, 3, 32, 32)
    found, expected = loose.encoder.forward_features(images), strict.forward_features(images)
    torch.testing.assert_close(found, expected)


def test_halving_takes_the_largest_of_each_square() -> None:
    values = torch.randn(2, 3, 7, 6)
    assert torch.equal(_Halved()(values), F.max_pool2d(values, 2))


@pytest.mark.parametrize("bins", [1, 2, 3, 6])
@pytest.mark.parametrize("size", [(7, 7), (5, 8), (2, 3), (12, 12)])
def test_pooling_is_that_of_torchs_adaptive_pooling(bins: int, size: tuple[int, int]) -> None:
    values = torch.randn(2, 4, *size)
    expected = F.adaptive_avg_pool2d(values, bins)
    torch.testing.assert_close(_pooled(values, bins), expected, rtol=1e-5, atol=1e-5)


def test_a_copy_works_with_its_own_weights_as_a_moving_average_must() -> None:
    model = _segmenter("vit_s16").eval()
    images = torch.randn(1, 3, 32, 32)
    before = model(images)
    other = copy.deepcopy(model)
    with torch.no_grad():
        for one in other.encoder.parameters():
            one.mul_(0.5)
        assert torch.equal(model(images), before)
        assert not torch.equal(other(images), before)


def test_what_takes_no_decay_is_named_as_the_whole_model_names_it(tmp_path: Path) -> None:
    model = _segmenter("resmlp_s12")
    spared = not_decayed(model)
    assert spared and spared <= {name for name, _ in model.named_parameters()}
    assert "encoder.pos_embed" in not_decayed(_segmenter("vit_s16"))
