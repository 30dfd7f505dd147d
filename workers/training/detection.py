"""What a run on objects lowers, and how it is scored."""

import contextlib
import io
from collections.abc import Callable
from typing import Any, Literal

import numpy
import torch
from torch import Tensor, nn

from ...jobs.run.metrics import PRECISIONS
from ..data.object_pipeline import Look, ObjectSource
from ..data.objects import Objects
from ..errors import DataError
from ..models.detector import DetectionLosses, Found
from .group import Group

# A pixel is in a mask from this probability on.
_IN_MASK = 0.5
_Kind = Literal["bbox", "segm"]
# What COCO's program calls what is compared, and what the metrics do.
_KINDS: dict[_Kind, str] = {"bbox": "box", "segm": "mask"}


class DetectionObjective:
    """What an optimizer step lowers: the sum of Mask R-CNN's five losses.

    Each is the mean over what a share has of it, anchors, proposals or masks, as in the published
    programs; a share counts by its images.
    """

    names = DetectionLosses._fields

    def __call__(
        self,
        images: Tensor,
        logits: DetectionLosses,
        targets: Objects,
        head_loss: Tensor | None,
        weight: float,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the total and its parts, scalars: sums over the images.

        Args:
            images: [B, C, H, W], as the model saw them.
            logits: the detector's losses.
            targets: of the images.
            head_loss: None, no head stands beside a detector.
            weight: of the head's loss.
        """
        parts = {name: loss * len(targets) for name, loss in logits._asdict().items()}
        total = torch.stack(list(parts.values())).sum()
        return total, {name: loss.detach() for name, loss in parts.items()}


@torch.no_grad()
def evaluate_objects(
    model: nn.Module,
    source: ObjectSource,
    group: Group,
    numerics: Any,
    *,
    keep_going: Callable[[], bool] = lambda: True,
) -> dict[str, float] | None:
    """Return the average precision of boxes and masks in percent, by COCO's own program, and n.

    None where the ranks agreed to stop. n is the number of images.

    Args:
        model: put into evaluation mode meanwhile.
        source: the split.
        group: the ranks.
        numerics: precision.
        keep_going: whether to go on, asked as often on every rank.

    Raises:
        DataError: the set has no object.
    """
    training = model.training
    model.eval()
    found: list[dict[str, Any]] = []
    complete = True
    for look in source.looks():
        if look is not None:
            found += as_coco(found_in(model, look, numerics), look)
        if not keep_going():
            complete = False
            break
    model.train(training)
    if not complete:
        return None
    everything = group.collect(found)
    scores: dict[str, float] = {}
    if group.is_primary:
        scores = average_precision(source.truth(), everything)
    scores = group.share(scores)
    if not scores:
        raise DataError("this set has no object that could be found")
    return {**scores, "n": float(source.size)}


def found_in(model: nn.Module, look: Look, numerics: Any) -> Found:
    """Return what a detector finds in an image, its boxes in pixels of the image as it is stored.

    Args:
        model: in evaluation mode.
        look: the image.
        numerics: precision.
    """
    with numerics.autocast():
        (found,) = model(look.image, [look.shown])
    down, across = (there / here for there, here in zip(look.stored, look.shown, strict=True))
    factors = torch.tensor([across, down, across, down], device=found.boxes.device)
    return Found(found.boxes * factors, found.classes, found.scores, found.masks)


def whole_masks(found: Found, look: Look) -> Tensor:
    """Return the masks on the whole image as it is stored, [N, H, W] bool."""
    from torchvision.models.detection.roi_heads import paste_masks_in_image

    pasted: Tensor = paste_masks_in_image(found.masks[:, None], found.boxes, look.stored)
    return pasted[:, 0] >= _IN_MASK


def as_coco(found: Found, look: Look) -> list[dict[str, Any]]:
    """Return what was found in an image as COCO's own program takes it."""
    from pycocotools import mask

    masks = whole_masks(found, look).cpu()
    boxes = found.boxes.cpu()
    boxes[:, 2:] -= boxes[:, :2]
    described = []
    for box, label, score, inside in zip(
        boxes.tolist(), found.classes.tolist(), found.scores.tolist(), masks, strict=True
    ):
        packed: Any = mask.encode(numpy.asfortranarray(inside.byte().numpy()))
        described.append(
            {
                "image_id": look.place,
                "category_id": label,
                "bbox": box,
                "score": score,
                "segmentation": {
                    "size": list(packed["size"]),
                    "counts": packed["counts"].decode("ascii"),
                },
            }
        )
    return described


def average_precision(truth: dict[str, Any], found: list[dict[str, Any]]) -> dict[str, float]:
    """Return ap_box, ap50_box, … and ap_mask, … in percent.

    What the set has no object for, such as small ones, is left out; of a set without any object
    everything is.

    Args:
        truth: images, annotations and categories.
        found: image_id, category_id, bbox, score and segmentation of each.
    """
    from pycocotools.cocoeval import COCOeval

    scores: dict[str, float] = {}
    # That program prints as it goes.
    with contextlib.redirect_stdout(io.StringIO()):
        real = _indexed(truth, truth["annotations"])
        for kind, name in _KINDS.items():
            judge: Any = COCOeval(real, _indexed(truth, _measured(found, kind)), kind)
            judge.evaluate()
            judge.accumulate()
            judge.summarize()
            values = judge.stats[: len(PRECISIONS)].tolist()
            scores |= {
                f"{one}_{name}": 100 * value
                for one, value in zip(PRECISIONS, values, strict=True)
                # Of what there is nothing of, the program says -1.
                if value >= 0
            }
    return scores


def _indexed(truth: dict[str, Any], annotations: list[dict[str, Any]]) -> Any:
    """Return annotations on the images of a set in the form that COCO's program works on."""
    from pycocotools.coco import COCO

    found: Any = COCO()
    found.dataset = {**truth, "annotations": annotations}
    found.createIndex()
    return found


def _measured(found: list[dict[str, Any]], kind: _Kind) -> list[dict[str, Any]]:
    """Return what was found with its area, by which an object is small, medium or large."""
    from pycocotools.mask import area

    measured = []
    # To COCO's program number 0 means none.
    for number, one in enumerate(found, start=1):
        _, _, width, height = one["bbox"]
        size = width * height if kind == "bbox" else float(area(one["segmentation"]))
        measured.append(one | {"id": number, "iscrowd": 0, "area": size})
    return measured
