"""Masks beside what a segmenter predicts, and objects beside what a detector finds."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ...jobs.run.pictures import Panel, Shown
from ...jobs.run.spec import RunSpec
from ..data.batches import normaliser
from ..data.image_set import ImageSet
from ..data.mask_pipeline import MaskSource
from ..data.masks import IGNORED
from ..data.object_pipeline import ObjectSource
from ..models.detected import Found
from ..training.detection import found_in, whole_masks
from ..training.masks import predicted
from .png import png

# Pixels of the longer side of a map.
LONGEST = 256
# In a map: a pixel without a class.
NO_CLASS = -1
# Drawn is what has this score or more.
SURE = 0.5


@torch.no_grad()
def mask_maps(
    segmenter: torch.nn.Module,
    spec: RunSpec,
    places: Sequence[int],
    images: ImageSet,
    numerics: Any,
) -> list[Shown]:
    """Return each image with its mask, the predicted one, and where the two differ.

    Args:
        segmenter: in evaluation mode.
        spec: of the run.
        places: of the images in the set.
        images: the set.
        numerics: precision, and the device that the segmenter is on.
    """
    source = MaskSource(
        images.part(torch.tensor(places)), spec.dataset, spec.recipe, numerics.device
    )
    mean, std = normaliser(spec.dataset, numerics.device)
    found = []
    for place, scene in zip(places, source.scenes(), strict=True):
        assert scene is not None
        given = predicted(segmenter, scene, source.side, numerics)
        right = scene.mask
        is_wrong = (given != right) & (right != IGNORED)
        known = right.masked_fill(right == IGNORED, NO_CLASS)
        # Ends that lie as far from zero would be drawn as those of signed values.
        last = float(max(2, source.classes - 1))
        panels = [
            Panel(title="mask", values=_small(known), low=NO_CLASS, high=last),
            Panel(title="predicted", values=_small(given), low=NO_CLASS, high=last),
            Panel(title="wrong", values=_small(is_wrong), low=0.0, high=1.0, covers=True),
        ]
        share = is_wrong.sum().item() / max(1, int((right != IGNORED).sum()))
        plain = (scene.images[0] * std + mean).round().clamp(0, 255).byte().cpu()[0]
        title = f"image {place}: {100 * share:.1f} % of the pixels wrong"
        found.append(Shown(title=title, panels=panels, image=png(plain)))
    return found


@torch.no_grad()
def object_maps(
    detector: torch.nn.Module,
    spec: RunSpec,
    places: Sequence[int],
    images: ImageSet,
    numerics: Any,
) -> list[Shown]:
    """Return each image with its objects, and with what the detector is surer of than not.

    Args:
        detector: in evaluation mode.
        spec: of the run.
        places: of the images in the set.
        images: the set.
        numerics: precision, and the device that the detector is on.
    """
    part = images.part(torch.tensor(places))
    source = ObjectSource(part, spec.dataset, spec.recipe, numerics.device)
    mean, std = normaliser(spec.dataset, numerics.device)
    last = float(max(2, source.classes - 1))
    shown = []
    for place, look in zip(places, source.looks(), strict=True):
        assert look is not None
        known = part.objects().objects(look.place, look.stored)
        every = found_in(detector, look, numerics)
        sure = int((every.scores >= SURE).sum())
        found = Found(*(values[:sure] for values in every))
        panels = [
            Panel(title=title, values=_small(painted), low=NO_CLASS, high=last)
            for title, painted in (
                ("objects", _painted(known.masks, known.classes)),
                ("found", _painted(whole_masks(found, look), found.classes)),
            )
        ]
        height, width = look.shown
        plain = (look.image * std + mean).round().clamp(0, 255).byte().cpu()[0]
        title = f"image {place}: {len(known.classes)} objects, {sure} found"
        shown.append(Shown(title=title, panels=panels, image=png(plain[:, :height, :width])))
    return shown


def _painted(masks: Tensor, classes: Tensor) -> Tensor:
    """Return the class of each pixel, [H, W] int64, of objects in layers: the first one on top.

    Args:
        masks: [N, H, W] bool.
        classes: [N].
    """
    painted = torch.full(masks.shape[1:], NO_CLASS, dtype=torch.int64, device=masks.device)
    for mask, label in zip(masks.flip(0), classes.flip(0), strict=True):
        painted[mask] = label
    return painted


def _small(values: Tensor) -> list[list[float]]:
    """Return a map as rows, every so many pixels of it."""
    step = -(-max(values.shape) // LONGEST)
    rows: list[list[float]] = values[::step, ::step].float().tolist()
    return rows
