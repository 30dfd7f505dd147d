"""Detection: any backbone with Mask R-CNN."""

import copy
from collections import OrderedDict

import pytest
import torch
from torch import Tensor, nn
from torchvision.models.detection import MaskRCNN
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.transform import GeneralizedRCNNTransform
from torchvision.ops import MultiScaleRoIAlign, roi_align

from vtjobs.jobs.grid import catalogue
from vtjobs.jobs.run.settings import ModelShape
from vtjobs.jobs.values import changed
from vtjobs.workers.data.objects import Objects, no_objects
from vtjobs.workers.errors import BackboneError
from vtjobs.workers.models.backbones import build, not_decayed
from vtjobs.workers.models.detector import Detector

from ...support.families import FAMILIES
from ...support.training import CPU

SIDE = 32


def _detector(family: str, **more: object) -> Detector:
    known = catalogue.backbone(family)
    backbone = changed(known, args=known.args | FAMILIES.get(family, {}))
    shape = {"channels": 3, "classes": 5, "image_size": SIDE, "decoder_width": 16, **more}
    made = build(backbone, ModelShape(task="detection", **shape))  # type: ignore[arg-type]
    assert isinstance(made, Detector)
    return made


def _two_images(side: int = SIDE) -> tuple[Tensor, Objects]:
    """Return two images, with two objects and with one."""
    boxes = torch.tensor([[2, 3, 20, 22], [10, 10, 30, 28], [0, 4, 16, 30]], dtype=torch.float32)
    masks = torch.zeros(3, side, side, dtype=torch.bool)
    for mask, (left, top, right, bottom) in zip(masks, boxes.int().tolist(), strict=True):
        mask[top:bottom, left:right] = True
    objects = Objects(
        boxes=boxes,
        classes=torch.tensor([0, 4, 2]),
        masks=masks,
        counts=(2, 1),
        sizes=((SIDE, SIDE), (30, SIDE)),
    )
    return torch.randn(2, 3, side, side), objects


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_has_a_loss_with_a_gradient_for_each_parameter_and_finds_boxes(
    family: str,
) -> None:
    torch.manual_seed(0)
    model = _detector(family).train()
    images, objects = _two_images()
    found = model.losses(images, objects)
    assert all(loss.shape == () and loss.isfinite() for loss in found)
    torch.stack(list(found)).sum().backward()
    # DDP waits for the gradient of whatever asks for one.
    assert [
        name for name, one in model.named_parameters() if one.requires_grad and one.grad is None
    ] == []
    seen = model.eval()(images, objects.sizes)
    assert len(seen) == 2 and all(len(one.boxes) == len(one.masks) for one in seen)


class Flat(nn.Module):
    """The maps of a detector, for torchvision's own Mask R-CNN."""

    def __init__(self, model: Detector) -> None:
        super().__init__()
        self.model = model
        self.out_channels = 16

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        return OrderedDict(self.model._maps(images))


def _torchvisions(model: Detector) -> MaskRCNN:
    """Return torchvision's Mask R-CNN with the same weights."""
    sizes = tuple(
        (8 * stride,) for stride in (*map(int, model.strides), 2 * int(model.strides[-1]))
    )
    named = [str(level) for level in range(len(model.strides))]
    theirs = MaskRCNN(
        Flat(model),
        num_classes=6,
        rpn_anchor_generator=AnchorGenerator(sizes, ((0.5, 1.0, 2.0),) * len(sizes)),
        box_roi_pool=MultiScaleRoIAlign(named, 7, 2),
        mask_roi_pool=MultiScaleRoIAlign(named, 14, 2),
        rpn_post_nms_top_n_train=1000,
    )
    theirs.rpn.head = model.rpn.head
    for part in ("box_head", "box_predictor", "mask_head", "mask_predictor"):
        setattr(theirs.roi_heads, part, getattr(model.roi_heads, part))
    # Images as they are: neither resized nor normalised.
    theirs.transform = GeneralizedRCNNTransform(
        SIDE, 64, [0.0] * 3, [1.0] * 3, size_divisible=32, fixed_size=(SIDE, SIDE)
    )
    return theirs


def test_the_losses_and_what_is_found_are_those_of_torchvisions_mask_r_cnn() -> None:
    torch.manual_seed(0)
    model = _detector("resnet50").train()
    theirs = _torchvisions(model).train()
    images, objects = _two_images()
    # torchvision takes the images' own sizes for those of the maps' images.
    whole = Objects(
        boxes=objects.boxes,
        classes=objects.classes,
        masks=objects.masks,
        counts=objects.counts,
        sizes=((SIDE, SIDE),) * 2,
    )
    targets = [
        {"boxes": boxes, "labels": classes + 1, "masks": masks.byte()}
        for boxes, classes, masks in whole.by_image()
    ]
    for part in (model, theirs):
        for layer in part.modules():
            if isinstance(layer, nn.BatchNorm2d):
                layer.eval()
    torch.manual_seed(1)
    ours = model.losses(images, whole)
    torch.manual_seed(1)
    expected = theirs(list(images), targets)
    assert ours.objectness == expected["loss_objectness"]
    assert ours.proposals == expected["loss_rpn_box_reg"]
    assert ours.classes == expected["loss_classifier"]
    assert ours.boxes == expected["loss_box_reg"]
    assert ours.masks == expected["loss_mask"]
    for one in (model, theirs):
        one.eval()
        one.roi_heads.score_thresh = 0.0
    seen = model(images, whole.sizes)
    for mine, other in zip(seen, theirs(list(images)), strict=True):
        assert torch.equal(mine.boxes, other["boxes"])
        assert torch.equal(mine.classes + 1, other["labels"])


def test_swin_t_with_mask_r_cnn_has_the_48_m_parameters_of_swins_program() -> None:
    # Liu et al. 2021, Swin, table 2, and its program's page: 48 M.
    shape = ModelShape(channels=3, classes=80, image_size=224, task="detection")
    model = build(catalogue.backbone("swin_t"), shape)
    assert sum(one.numel() for one in model.parameters()) == pytest.approx(47.8e6, rel=0.005)


def test_what_was_filled_up_is_no_place_for_a_box() -> None:
    torch.manual_seed(0)
    model = _detector("resnet50", longest_side=64).eval()
    model.roi_heads.score_thresh = 0.0
    (found,) = model(torch.randn(1, 3, 64, 64), [(20, 40)])
    assert len(found.boxes) > 0
    assert found.boxes[:, [1, 3]].max() <= 20 and found.boxes[:, [0, 2]].max() <= 40


@pytest.mark.parametrize("side", [64, 128])
def test_proposals_are_taken_at_the_strides_of_the_maps_however_much_was_filled_up(
    side: int,
) -> None:
    torch.manual_seed(0)
    model = _detector("resnet50", longest_side=64).eval()
    images = torch.zeros(1, 3, side, side)
    images[:, :, :SIDE, :SIDE] = torch.randn(1, 3, SIDE, SIDE)
    maps = model._maps(images)
    box = torch.tensor([[4.0, 4.0, 28.0, 28.0]])
    pooled = model.roi_heads.box_roi_pool(maps, [box], [(SIDE, SIDE)])
    expected = roi_align(maps["0"], [box], 7, 1 / model.strides[0], 2)
    assert torch.equal(pooled, expected)


def test_a_backbone_of_one_size_is_refused_where_images_have_several() -> None:
    with pytest.raises(BackboneError, match=r"one size alone\. Set train: \{longest_side: null\}"):
        _detector("deit_s", longest_side=64)


def test_maps_whose_strides_are_no_powers_of_2_are_refused() -> None:
    known = catalogue.backbone("vit_s16")
    backbone = changed(known, args=known.args | FAMILIES["vit_s16"] | {"patch_size": 14})
    shape = ModelShape(channels=3, classes=5, image_size=56, decoder_width=16, task="detection")
    with pytest.raises(BackboneError, match=r"strides of 3\.5, 7, 14, 28 pixels"):
        build(backbone, shape)


def test_images_without_objects_have_losses_with_a_gradient_for_each_parameter() -> None:
    model = _detector("vit_s16").train()
    found = model.losses(torch.randn(2, 3, SIDE, SIDE), no_objects(2, (SIDE, SIDE), CPU))
    torch.stack(list(found)).sum().backward()
    assert [
        name for name, one in model.named_parameters() if one.requires_grad and one.grad is None
    ] == []


def test_coordinates_and_losses_have_full_precision_in_autocast() -> None:
    model = _detector("vit_s16").train()
    images, objects = _two_images()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert {loss.dtype for loss in model.losses(images, objects)} == {torch.float32}
        (found, _) = model.eval()(images, objects.sizes)
    assert found.boxes.dtype == torch.float32


def test_a_copy_works_with_its_own_weights_as_a_moving_average_must() -> None:
    model = _detector("vit_s16").eval()
    images = torch.randn(1, 3, SIDE, SIDE)
    before = model._maps(images)["0"]
    other = copy.deepcopy(model)
    with torch.no_grad():
        for one in other.encoder.parameters():
            one.mul_(0.5)
        assert torch.equal(model._maps(images)["0"], before)
        assert not torch.equal(other._maps(images)["0"], before)


def test_what_takes_no_decay_is_named_as_the_whole_model_names_it() -> None:
    assert "encoder.pos_embed" in not_decayed(_detector("vit_s16"))
