"""Detection: any backbone with Mask R-CNN, which finds objects and their masks.

Mask R-CNN is that of He et al. 2017 with a feature pyramid (Lin et al. 2017), of torchvision's
parts. The number of proposals in training is that of mmdetection's programs.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.faster_rcnn import FastRCNNPredictor, TwoMLPHead
from torchvision.models.detection.image_list import ImageList
from torchvision.models.detection.mask_rcnn import MaskRCNNHeads, MaskRCNNPredictor
from torchvision.models.detection.roi_heads import RoIHeads, fastrcnn_loss
from torchvision.models.detection.rpn import RegionProposalNetwork, RPNHead
from torchvision.ops import FeaturePyramidNetwork, MultiScaleRoIAlign, roi_align
from torchvision.ops.feature_pyramid_network import ExtraFPNBlock

from ..data.objects import Objects
from ..errors import BackboneError
from .detected import DetectionLosses, Found
from .pyramid import OnMaps

WIDTH = 256
# Sides of anchors, in strides of the map that they are on.
_ANCHOR = 8
_RATIOS = (0.5, 1.0, 2.0)
# Of the layers that classify a proposal, in widths of the pyramid.
_HIDDEN = 4
# Pixels a side that a proposal is brought to, for its class and for its mask.
_POOLED, _MASK_POOLED = 7, 14
# Proposals of an image.
_PROPOSALS = {"training": 1000, "testing": 1000}
_BEFORE = {"training": 2000, "testing": 1000}


class Detector(OnMaps):
    """A backbone with Mask R-CNN.

    Args:
        encoder: the backbone. What of it the maps do not depend on is frozen.
        classes: of an object.
        channels: of the images.
        size: side of the training images, pixels.
        width: channels of the feature pyramid, and of the layers on it.
        any_size: whether images of other sizes will be shown to it.

    Raises:
        BackboneError: vtjobs does not know its blocks, its tokens form no grid, a map's stride is
            no power of 2, or it takes one size alone and other ones will be shown.
    """

    has_own_losses = True

    def __init__(
        self,
        encoder: nn.Module,
        *,
        classes: int,
        channels: int,
        size: int,
        width: int = WIDTH,
        any_size: bool = False,
    ) -> None:
        super().__init__(encoder, channels=channels, size=size)
        if any_size and not self.takes_any_size:
            raise BackboneError(
                f"backbone {type(encoder).__name__} takes images of one size alone."
                " Set train: {longest_side: null}"
            )
        self.num_classes = classes
        strides = _whole(self.strides, type(encoder).__name__)
        self.fpn = FeaturePyramidNetwork(self.widths, width, extra_blocks=_EverySecond())
        named = [str(level) for level in range(len(strides))]
        self.rpn = _proposer(width, [*strides, 2 * strides[-1]])
        self.roi_heads = _heads(width, classes, named, strides[0])

    def forward(
        self, images: Tensor, sizes: Sequence[tuple[int, int]] | None = None
    ) -> list[Found]:
        """Return what is in each image, as a model in evaluation finds it.

        Args:
            images: [B, C, H, W].
            sizes: height and width of each within it; what lies beyond was filled up. None: none
                was.
        """
        height, width = images.shape[2:]
        shown = ImageList(images, [(height, width)] * len(images) if sizes is None else list(sizes))
        maps = self._maps(images)
        proposals, _ = self.rpn(shown, maps)
        found, _ = self.roi_heads(maps, proposals, shown.image_sizes)
        return [
            # Class 0 of torchvision is the background.
            Found(one["boxes"], one["labels"] - 1, one["scores"], one["masks"][:, 0])
            for one in found
        ]

    def losses(self, images: Tensor, objects: Objects) -> DetectionLosses:
        """Return what a model in training lowers; it draws from the global generator.

        Args:
            images: [B, C, H, W].
            objects: of the images.
        """
        shown = ImageList(images, list(objects.sizes))
        maps = self._maps(images)
        targets = [
            {"boxes": boxes, "labels": classes + 1, "masks": masks}
            for boxes, classes, masks in objects.by_image()
        ]
        proposals, of_anchors = self.rpn(shown, maps, targets)
        classes, boxes, masks = self._of_proposals(maps, proposals, shown.image_sizes, targets)
        return DetectionLosses(
            of_anchors["loss_objectness"], of_anchors["loss_rpn_box_reg"], classes, boxes, masks
        )

    def _of_proposals(
        self,
        maps: dict[str, Tensor],
        proposals: list[Tensor],
        sizes: list[tuple[int, int]],
        targets: list[dict[str, Tensor]],
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the losses of classes, boxes and masks.

        As torchvision's `RoIHeads` has them, but for how the masks to learn are cut out.
        """
        heads = self.roi_heads
        proposals, matched, labels, offsets = heads.select_training_samples(proposals, targets)
        pooled = heads.box_roi_pool(maps, proposals, sizes)
        logits, found = heads.box_predictor(heads.box_head(pooled))
        classes, boxes = fastrcnn_loss(logits, found, labels, offsets)
        positive = [(label > 0).nonzero()[:, 0] for label in labels]
        on_objects = [one[places] for one, places in zip(proposals, positive, strict=True)]
        drawn = heads.mask_predictor(heads.mask_head(heads.mask_roi_pool(maps, on_objects, sizes)))
        real = torch.cat(
            [
                _cut_out(target["masks"], boxes, which[places], drawn.shape[-1])
                for target, boxes, which, places in zip(
                    targets, on_objects, matched, positive, strict=True
                )
            ]
        )
        if not real.numel():
            return classes, boxes, drawn.sum() * 0
        label = torch.cat([one[places] for one, places in zip(labels, positive, strict=True)])
        own = drawn[torch.arange(len(label), device=label.device), label]
        return classes, boxes, F.binary_cross_entropy_with_logits(own, real)

    def _maps(self, images: Tensor) -> dict[str, Tensor]:
        """Return the pyramid's maps, [B, width, h, w] float32 each, finest first."""
        named = {str(level): one for level, one in enumerate(self.forward_features(images))}
        return {name: one.float() for name, one in self.fpn(named).items()}


class _EverySecond(ExtraFPNBlock):
    """A coarsest map more: every second place of the one before.

    As torchvision's pooling with windows of one pixel, whose gradient has no fixed order on a GPU.
    """

    def forward(
        self, results: list[Tensor], x: list[Tensor], names: list[str]
    ) -> tuple[list[Tensor], list[str]]:
        """Return the maps and their names with one more."""
        return [*results, results[-1][:, :, ::2, ::2]], [*names, "pool"]


class _Pool(MultiScaleRoIAlign):
    """Takes proposals out of maps whose strides are known.

    torchvision's guesses them from the sizes of the images, which may have been filled up.

    Args:
        named: the maps that it takes them from.
        side: of what it returns.
        stride: of the finest map, pixels.
    """

    def __init__(self, named: list[str], side: int, stride: int) -> None:
        super().__init__(featmap_names=named, output_size=side, sampling_ratio=2)
        self._finest, self._stride = named[0], stride

    def forward(
        self, x: dict[str, Tensor], boxes: list[Tensor], image_shapes: list[tuple[int, int]]
    ) -> Tensor:
        """Return [N, D, side, side] of the boxes of all images."""
        height, width = x[self._finest].shape[2:]
        whole = (height * self._stride, width * self._stride)
        found: Tensor = super().forward(x, boxes, [whole] * len(image_shapes))
        return found


# Coordinates of half the precision would be off by half a pixel.
class _ProposalHead(RPNHead):
    def forward(self, x: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """Return objectness and offsets on each map, float32."""
        scores, offsets = super().forward(x)
        return [one.float() for one in scores], [one.float() for one in offsets]


class _BoxPredictor(FastRCNNPredictor):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits and offsets of proposals, float32."""
        logits, offsets = super().forward(x)
        return logits.float(), offsets.float()


class _MaskPredictor(MaskRCNNPredictor):
    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of masks, [N, classes + 1, 28, 28] float32."""
        logits: Tensor = super().forward(x)
        return logits.float()


def _cut_out(masks: Tensor, boxes: Tensor, which: Tensor, side: int) -> Tensor:
    """Return what of an object's mask each box has, [N, side, side] from 0 to 1.

    Where deterministic algorithms are asked for, torchvision replaces its kernel on a GPU by one
    that needs as much memory as all pixels of all masks together for each box. The order of sums
    matters to gradients alone, and here are none.

    Args:
        masks: [objects, H, W] bool.
        boxes: [N, 4], pixels.
        which: [N], the object that a box is on.
        side: of a mask to learn.
    """
    places = torch.cat([which[:, None].to(boxes), boxes], dim=1)
    asked = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(False)
    try:
        return roi_align(masks[:, None].to(boxes), places, side)[:, 0]
    finally:
        torch.use_deterministic_algorithms(asked)


def _whole(strides: list[float], name: str) -> list[int]:
    """Return strides as powers of 2.

    Raises:
        BackboneError: one is none.
    """
    if any(not stride.is_integer() or int(stride).bit_count() != 1 for stride in strides):
        named = ", ".join(f"{stride:g}" for stride in strides)
        message = f"its maps have strides of {named} pixels; Mask R-CNN needs powers of 2"
        raise BackboneError(f"backbone {name}: {message}")
    return [int(stride) for stride in strides]


def _proposer(width: int, strides: list[int]) -> RegionProposalNetwork:
    """Return what proposes boxes, on maps of these strides."""
    sizes = tuple((_ANCHOR * stride,) for stride in strides)
    anchors = AnchorGenerator(sizes, (_RATIOS,) * len(sizes))
    return RegionProposalNetwork(
        anchors,
        _ProposalHead(width, anchors.num_anchors_per_location()[0]),
        fg_iou_thresh=0.7,
        bg_iou_thresh=0.3,
        batch_size_per_image=256,
        positive_fraction=0.5,
        pre_nms_top_n=_BEFORE,
        post_nms_top_n=_PROPOSALS,
        nms_thresh=0.7,
    )


def _heads(width: int, classes: int, named: list[str], stride: int) -> RoIHeads:
    """Return what gives proposals a class, a box and a mask."""
    hidden = _HIDDEN * width
    return RoIHeads(
        box_roi_pool=_Pool(named, _POOLED, stride),
        box_head=TwoMLPHead(width * _POOLED**2, hidden),
        # Class 0 is the background.
        box_predictor=_BoxPredictor(hidden, classes + 1),
        fg_iou_thresh=0.5,
        bg_iou_thresh=0.5,
        batch_size_per_image=512,
        positive_fraction=0.25,
        bbox_reg_weights=None,
        score_thresh=0.05,
        nms_thresh=0.5,
        detections_per_img=100,
        mask_roi_pool=_Pool(named, _MASK_POOLED, stride),
        mask_head=MaskRCNNHeads(width, (width,) * 4, 1),
        mask_predictor=_MaskPredictor(width, width, classes + 1),
    )
