"""What a run on objects lowers, and how it is scored."""

import contextlib
import io
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

import numpy
import torch
from torch import Tensor, nn

from ...jobs.run.metrics import PRECISIONS
from ..data.object_pipeline import Look, ObjectSource
from ..data.objects import Objects
from ..errors import DataError
from ..models.detected import DetectionLosses, Found
from .group import Group

# A pixel is in a mask from this probability on.
_IN_MASK = 0.5
_Kind = Literal["bbox", "segm"]
# What COCO's program calls what is compared, and what the metrics do.
_KINDS: dict[_Kind, str] = {"bbox": "box", "segm": "mask"}
_METRICS = [f"{name}_{of}" for of in _KINDS.values() for name in PRECISIONS]
# Masks that are brought to the size of their image at a time: a photograph has millions of pixels.
_PASTED = 8


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
    beat: Callable[[], None] = lambda: None,
) -> dict[str, float] | None:
    """Return the average precision of boxes and masks in percent, by COCO's own program, and n.

    None where the ranks agreed to stop. n is the number of images. Each rank looks at images of
    its own, and then compares classes of its own with the truth.

    Args:
        model: put into evaluation mode meanwhile.
        source: the split.
        group: the ranks.
        numerics: precision.
        keep_going: whether to go on, asked as often on every rank.
        beat: called now and then while there is nothing to ask.

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
    own = range(group.rank, source.classes, group.world_size)
    # Sums of precisions, and of how many there are: of every metric over all classes.
    sums = torch.zeros(2, len(_METRICS), dtype=torch.float64)
    if len(own):
        everything = group.collect(found, lambda one: one["category_id"] in own)
        sums = precisions(source.truth(), everything, own, beat=beat)
    else:
        group.collect(found, lambda one: False)
    scores = scores_of(group.sum(sums))
    if not scores:
        raise DataError("this set has no object that could be found")
    return {**scores, "n": float(source.size)}


def scores_of(sums: Tensor) -> dict[str, float]:
    """Return ap_box, ap50_box, … in percent; what the set has no object for is left out.

    Args:
        sums: as `precisions` returns them.
    """
    return {
        name: 100 * (total / count).item()
        for name, total, count in zip(_METRICS, *sums, strict=True)
        if count
    }


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
    described = []
    for start in range(0, len(found.scores), _PASTED):
        part = Found(*(values[start : start + _PASTED] for values in found))
        boxes = part.boxes.cpu().clone()
        boxes[:, 2:] -= boxes[:, :2]
        described += [
            {
                "image_id": look.place,
                "category_id": label,
                "bbox": box,
                "score": score,
                "segmentation": _packed(mask),
            }
            for box, label, score, mask in zip(
                boxes.tolist(),
                part.classes.tolist(),
                part.scores.tolist(),
                whole_masks(part, look).cpu(),
                strict=True,
            )
        ]
    return described


def _packed(mask: Tensor) -> dict[str, Any]:
    """Return a mask [H, W] as a run-length code that JSON can hold."""
    from pycocotools.mask import encode

    code: Any = encode(numpy.asfortranarray(mask.byte().numpy()))
    return {"size": list(code["size"]), "counts": code["counts"].decode("ascii")}


def precisions(
    truth: dict[str, Any],
    found: list[dict[str, Any]],
    classes: Iterable[int],
    *,
    beat: Callable[[], None] = lambda: None,
) -> Tensor:
    """Return sums over classes of the precisions that each metric is a mean of, and their number.

    Args:
        truth: images, annotations and categories.
        found: image_id, category_id, bbox, score and segmentation of each.
        classes: that are compared.
        beat: called again and again meanwhile.

    Returns:
        [2, metrics] float64: the precisions are from 0 to 1.
    """
    from pycocotools.cocoeval import COCOeval

    class Judge(COCOeval):
        """COCO's program, which takes minutes on its 5,000 images."""

        def computeIoU(self, *place: int) -> Any:
            beat()
            return super().computeIoU(*place)

        def evaluateImg(self, *place: Any) -> Any:
            beat()
            return super().evaluateImg(*place)

    sums = []
    # That program prints as it goes.
    with contextlib.redirect_stdout(io.StringIO()):
        real = _indexed(truth, truth["annotations"])
        for kind in _KINDS:
            judge: Any = Judge(real, _indexed(truth, _measured(found, kind)), kind)
            judge.params.catIds = list(classes)
            judge.evaluate()
            judge.accumulate()
            # Thresholds, recalls, classes, areas, numbers of detections; -1 of what is not there.
            table = torch.from_numpy(judge.eval["precision"])[..., -1]
            for part in _parts_of(table):
                there = part[part >= 0]
                sums.append(torch.stack([there.sum(), torch.tensor(float(len(there)))]))
    return torch.stack(sums, dim=1).double()


def _parts_of(table: Tensor) -> Iterator[Tensor]:
    """Yield the precisions that each of `PRECISIONS` is the mean of.

    Args:
        table: [10 thresholds from 0.5 to 0.95, recalls, classes, 4 areas: all, small, medium,
            large].
    """
    yield table[..., 0]
    yield table[0, ..., 0]
    yield table[5, ..., 0]
    for area in (1, 2, 3):
        yield table[..., area]


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
