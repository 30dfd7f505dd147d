"""What a run with masks lowers, and how it is scored."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..data.mask_pipeline import MaskSource, Scene
from ..data.masks import IGNORED
from ..errors import DataError
from ..models.segmenter import MaskLogits
from .group import Group

# Of the auxiliary classifier's loss, in mmsegmentation's programs.
_AUXILIARY = 0.4
# Share of a window by which the next one is moved on, in scoring.
_STRIDE = 2 / 3
# The sides of a whole image are filled up to a multiple of this, in pixels.
_STEP = 32
# Windows that are scored at a time.
_WINDOWS = 8


class MaskObjective:
    """What an optimizer step lowers: the cross-entropy of each pixel's class.

    Its mean over all pixels of an image, those without a class counted as 0; beside it, with weight
    0.4, the auxiliary classifier's.
    """

    names = ("cross_entropy", "auxiliary")

    def __call__(
        self,
        images: Tensor,
        logits: MaskLogits,
        targets: Tensor,
        head_loss: Tensor | None,
        weight: float,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the total and its parts, scalars: sums over the images.

        Args:
            images: [B, C, S, S], as the model saw them.
            logits: of the segmenter.
            targets: [B, S, S] int64, classes and `IGNORED`.
            head_loss: None, no head stands beside a segmenter.
            weight: of the head's loss.
        """
        pixels = of_pixels(logits.pixels, targets)
        auxiliary = of_pixels(logits.auxiliary, targets)
        parts = {"cross_entropy": pixels.detach(), "auxiliary": auxiliary.detach()}
        return pixels + _AUXILIARY * auxiliary, parts


def of_pixels(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross-entropy over the pixels of each image, summed over the images.

    Args:
        logits: [B, classes, h, w], brought to the size of the targets.
        targets: [B, H, W] int64.
    """
    shown = F.interpolate(
        logits.float(), size=targets.shape[1:], mode="bilinear", align_corners=False
    )
    # As rows of pixels: of images, a GPU's sum has no fixed order.
    rows = shown.movedim(1, -1).flatten(0, 2)
    found = F.cross_entropy(rows, targets.flatten(), ignore_index=IGNORED, reduction="sum")
    return found / targets[0].numel()


@torch.no_grad()
def evaluate_masks(
    model: nn.Module,
    source: MaskSource,
    group: Group,
    numerics: Any,
    *,
    keep_going: Callable[[], bool] = lambda: True,
    mirrored: bool = False,
) -> dict[str, float] | None:
    """Return miou, macc and pixel_acc in percent, loss (mean over the pixels) and n, the images.

    None where the ranks agreed to stop.

    An image is scored at the size that it is stored in: whole where the backbone takes images of
    any size, else in overlapping windows of the size of training. miou is the mean, over the
    classes that are in the masks or were predicted, of intersection by union over all pixels of the
    set; macc the mean over the classes in the masks of the share of their pixels that is right.

    Args:
        model: put into evaluation mode meanwhile.
        source: the split.
        group: the ranks.
        numerics: precision.
        keep_going: whether to go on, asked as often on every rank.
        mirrored: whether the mirror image of each image is looked at as well.

    Raises:
        DataError: no pixel of the set has a class.
    """
    training = model.training
    model.eval()
    counts = torch.zeros(source.classes, source.classes, dtype=torch.float64)
    loss, complete = 0.0, True
    for scene in source.scenes():
        if scene is not None:
            chances = _chances(model, scene, source.side, numerics, mirrored=mirrored)
            found, lost = _scored(chances, scene.mask, source.classes)
            counts += found
            loss += lost
        if not keep_going():
            complete = False
            break
    model.train(training)
    if not complete:
        return None
    whole = torch.cat([counts.flatten(), torch.tensor([loss], dtype=torch.float64)])
    *_, lost = group.sum(whole).tolist()
    if not whole[:-1].any():
        raise DataError("no pixel of this set has a class: all of its masks are empty")
    return {
        **scores_of(whole[:-1].view_as(counts)),
        "loss": lost / source.size,
        "n": float(source.size),
    }


def scores_of(counts: Tensor) -> dict[str, float]:
    """Return miou, macc and pixel_acc in percent.

    Args:
        counts: [classes, classes] float64, pixels by their class (row) and the one given (column).
    """
    right, real, given = counts.diagonal(), counts.sum(1), counts.sum(0)
    either = real + given - right
    return {
        "miou": _percent(right, either),
        "macc": _percent(right, real),
        "pixel_acc": _percent(right.sum()[None], real.sum()[None]),
    }


def _percent(part: Tensor, whole: Tensor) -> float:
    """Return the mean share in percent, over what is there at all."""
    there = whole > 0
    return 100 * (part[there] / whole[there]).mean().item() if there.any() else 0.0


def _chances(model: nn.Module, scene: Scene, side: int, numerics: Any, *, mirrored: bool) -> Tensor:
    """Return each pixel's probabilities, the mean over all views: [classes, H, W]."""
    total: Tensor | None = None
    count = 0
    for image in scene.images:
        for is_mirrored in (False, True) if mirrored else (False,):
            logits = _logits(model, image, side, numerics, mirrored=is_mirrored)
            shown = F.interpolate(
                logits, size=scene.mask.shape, mode="bilinear", align_corners=False
            )
            total = shown[0].softmax(0) if total is None else total.add_(shown[0].softmax(0))
            count += 1
    assert total is not None
    return total / count


def _scored(chances: Tensor, mask: Tensor, classes: int) -> tuple[Tensor, float]:
    """Return the pixels by class and prediction, [classes, classes] float64, and the mean loss.

    Args:
        chances: [classes, H, W], probabilities.
        mask: [H, W].
        classes: of a pixel.
    """
    known = mask != IGNORED
    given, right = chances.argmax(0)[known], mask[known]
    found = torch.bincount(right * classes + given, minlength=classes * classes)
    of_right = chances.movedim(0, -1)[known].gather(1, right[:, None])
    lost = -of_right.clamp(min=torch.finfo(torch.float32).tiny).log().sum().item()
    return found.view(classes, classes).double().cpu(), lost / mask.numel()


def predicted(model: nn.Module, scene: Scene, side: int, numerics: Any) -> Tensor:
    """Return the class of each pixel of a scene as it is stored, [H, W] int64.

    Args:
        model: in evaluation mode.
        scene: at one scale.
        side: of a window.
        numerics: precision.
    """
    return _chances(model, scene, side, numerics, mirrored=False).argmax(0)


def _logits(model: nn.Module, image: Tensor, side: int, numerics: Any, *, mirrored: bool) -> Tensor:
    """Return the logits of an image, [1, classes, h, w].

    Args:
        model: in evaluation mode.
        image: [1, C, h, w].
        side: of a window, where the model takes images of this size alone.
        numerics: precision.
        mirrored: whether the model gets the mirror image; what comes back is not mirrored.
    """
    height, width = image.shape[2:]
    is_whole = bool(getattr(model, "takes_any_size", False))
    # What is added is zero, the mean colour.
    more = [-length % _STEP if is_whole else max(0, side - length) for length in (width, height)]
    shown = F.pad(image, (0, more[0], 0, more[1]))
    shown = shown.flip(3) if mirrored else shown
    if is_whole:
        with numerics.autocast():
            logits = model(shown)
        found = F.interpolate(
            logits.float(), size=shown.shape[2:], mode="bilinear", align_corners=False
        )
    else:
        found = _over_windows(model, shown, side, numerics)
    return (found.flip(3) if mirrored else found)[..., :height, :width]


def _over_windows(model: nn.Module, image: Tensor, side: int, numerics: Any) -> Tensor:
    """Return the mean of the logits of all windows that show a pixel, [1, classes, h, w].

    Args:
        model: in evaluation mode.
        image: [1, C, h, w], no side shorter than a window.
        side: of a window.
        numerics: precision.
    """
    height, width = image.shape[2:]
    places = [
        (..., slice(top, top + side), slice(left, left + side))
        for top in _starts(height, side)
        for left in _starts(width, side)
    ]
    total: Tensor | None = None
    seen = image.new_zeros(1, 1, height, width)
    for start in range(0, len(places), _WINDOWS):
        part = places[start : start + _WINDOWS]
        with numerics.autocast():
            logits = model(torch.cat([image[place] for place in part]))
        shown = F.interpolate(
            logits.float(), size=(side, side), mode="bilinear", align_corners=False
        )
        if total is None:
            total = image.new_zeros(1, shown.shape[1], height, width)
        for place, window in zip(part, shown, strict=True):
            total[place] += window
            seen[place] += 1
    assert total is not None
    return total / seen


def _starts(length: int, side: int) -> Iterator[int]:
    """Yield where windows begin so that they cover a length, the last one ending with it."""
    stride = max(1, round(side * _STRIDE))
    for turn in range(math.ceil(max(0, length - side) / stride) + 1):
        yield min(turn * stride, length - side)
