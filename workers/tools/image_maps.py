"""Maps of single images: attention, class activation, and what a head predicts of their patches."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ...jobs.errors import BadInput
from ...jobs.run.pictures import Panel, Shown
from ...jobs.values import changed
from ..checkpoints.final_weights import Final, NoWeights
from ..checkpoints.manifest import STATE, Rejected, verify
from ..data.image_set import ImageSet
from ..data.patches import patch_work
from ..heads.base import trains_module
from ..heads.relations import Relation
from ..training.trainee import Trainee
from .asked import IMAGES, Asked, check_number, places_of
from .picture_inputs import as_png, inputs_of
from .saliency import attention_of_classes, class_activation, class_attention


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The images that are drawn."""

    places: list[int]
    inputs: Tensor
    """[B, C, S, S], normalised."""
    labels: Tensor
    """[B] int64."""
    files: list[bytes]
    """The same images as PNG."""
    only: Tensor | None
    """[classes] bool, what the model may choose from; None: all classes."""


def batch_of(final: Final, trainee: Trainee, asked: Asked, images: ImageSet) -> Batch:
    """Return the images that are asked for, as the network is evaluated on them."""
    spec = final.spec
    device = next(trainee.parameters()).device
    places = places_of(asked, images, IMAGES)
    check_number(places)
    inputs, only = inputs_of(images, places, spec, asked.set_name, device)
    work = patch_work(spec.head, spec.dataset, trainee.patch, device)
    if work is not None:
        # What the network is evaluated on; the same cuts of each image, whatever else is shown.
        inputs = torch.cat(
            [work.evaluate(one[None], torch.Generator().manual_seed(0)) for one in inputs]
        )
    return Batch(
        places=places,
        inputs=inputs,
        labels=images.labels[torch.tensor(places)].to(device),
        files=as_png(inputs, spec.dataset),
        only=only,
    )


def image_maps(trainee: Trainee, final: Final, asked: Asked, images: ImageSet) -> list[Shown]:
    """Return the maps of some images, of one of the kinds in `_SHOWING`.

    Args:
        trainee: with the run's final weights, in evaluation mode.
        final: the run.
        asked: kind, images and classes.
        images: the set.

    Raises:
        BadInput: the network has nothing of this kind to show.
    """
    return _SHOWING[asked.kind](trainee, final, asked, batch_of(final, trainee, asked, images))


def _attention(trainee: Trainee, final: Final, asked: Asked, batch: Batch) -> list[Shown]:
    model = trainee.backbone
    of_classes = attention_of_classes(model, batch.inputs)
    if of_classes is not None:
        return _of_classes(model, final, asked, batch, of_classes)
    layers = class_attention(model, batch.inputs)
    if asked.classes:
        raise BadInput(
            f"--classes: all classes share the class token of {final.spec.backbone.model}. Remove"
            " it, or add --kind cam"
        )
    shown = []
    for number in range(len(batch.places)):
        for place, layer in enumerate(layers, start=1):
            heads = layer[number]
            panels = [_panel(f"head {head}", values) for head, values in enumerate(heads, start=1)]
            if len(heads) > 1:
                panels.append(_panel("mean", heads.mean(0)))
            told = f", layer {place}" if len(layers) > 1 else ""
            shown.append(_shown(batch, number, panels, told))
    return shown


def _of_classes(
    model: nn.Module, final: Final, asked: Asked, batch: Batch, maps: Tensor
) -> list[Shown]:
    """Return the attention of classes, [B, classes, h, w], to the patches of each image."""
    chosen = _chosen_classes(model, final, asked, batch)
    shares = _logits(model, batch).softmax(1)
    layers = [maps[torch.arange(len(maps)), classes] for classes in chosen]
    return _by_class(batch, chosen, layers, shares, covers=False)


def _cam(trainee: Trainee, final: Final, asked: Asked, batch: Batch) -> list[Shown]:
    model = trainee.backbone
    chosen = _chosen_classes(model, final, asked, batch)
    maps = class_activation(model, batch.inputs, chosen)
    return _by_class(batch, chosen, maps, _logits(model, batch).softmax(1), covers=True)


@torch.no_grad()
def _logits(model: nn.Module, batch: Batch) -> Tensor:
    logits: Tensor = model(batch.inputs).float()
    return logits if batch.only is None else logits.masked_fill(~batch.only, -torch.inf)


def _chosen_classes(model: nn.Module, final: Final, asked: Asked, batch: Batch) -> list[Tensor]:
    """Return the classes that are shown of each image, [B] int64 each.

    Raises:
        BadInput: the dataset has no such class, or there is no classifier.
    """
    spec = final.spec
    if not spec.head.shared.labels:
        raise BadInput(
            f"--kind {asked.kind}: run {spec.run_id} has no classifier, as it was trained without"
            " labels"
        )
    for number in asked.classes:
        if not 0 <= number < spec.dataset.classes:
            raise BadInput(
                f"--classes {number}: {spec.dataset.name} has {spec.dataset.classes} classes, 0 to"
                f" {spec.dataset.classes - 1}"
            )
    if asked.classes:
        return [torch.full_like(batch.labels, number) for number in asked.classes]
    return [_logits(model, batch).argmax(1), batch.labels]


def _by_class(
    batch: Batch, chosen: list[Tensor], maps: list[Tensor], shares: Tensor, *, covers: bool
) -> list[Shown]:
    """Return a map for each class of each image; a class that is named twice has one."""
    shown = []
    for number in range(len(batch.places)):
        panels: dict[int, Panel] = {}
        for classes, layer in zip(chosen, maps, strict=True):
            one = int(classes[number])
            title = f"class {one}: {100 * float(shares[number, one]):.1f} %"
            low = 0.0 if covers else None
            panels[one] = _panel(title, layer[number], low=low, covers=covers)
        told = f", predicted {int(shares[number].argmax())}"
        shown.append(_shown(batch, number, list(panels.values()), told))
    return shown


def _relations(trainee: Trainee, final: Final, asked: Asked, batch: Batch) -> list[Shown]:
    head: Any = trainee.head
    if head is None and trains_module(final.spec.head):
        raise BadInput(
            f"--kind relations: head {final.spec.head.name} has weight 0 in this run, so it was not"
            " trained"
        )
    if not hasattr(head, "relations") or trainee.tap is None:
        raise BadInput(
            f"--kind relations: head {final.spec.head.name} predicts no relations between patches,"
            " as drloc and relvit do"
        )
    head.load_state_dict(_head_weights(final))
    with torch.no_grad():
        _, grids = trainee.tap.features(batch.inputs)
        (row, column), found = head.relations(grids, *asked.point)
    height, columns = found[0].true.shape
    patch = (column / columns, row / height, 1 / columns, 1 / height)
    return [
        changed(_shown(batch, number, _pairs(found, number)), patch=patch)
        for number in range(len(batch.places))
    ]


def _pairs(found: Sequence[Relation], number: int) -> list[Panel]:
    """Return what is predicted of an image and what is true, in the colours of the truth."""
    panels = []
    for one in found:
        low, high = float(one.true.min()), float(one.true.max())
        if low < 0:
            # Zero has the colour in the middle.
            high = max(-low, high)
            low = -high
        for title, values in ((one.name, one.predicted[number]), (f"{one.name}, true", one.true)):
            panels.append(_panel(title, values, low=low, high=high))
    return panels


def _head_weights(final: Final) -> dict[str, Tensor]:
    try:
        verify(final.folder, run_id=final.spec.run_id, only=(STATE,))
    except Rejected as error:
        raise NoWeights(
            f"run {final.spec.run_id}: the weights of its head are gone ({error}). `vtjobs gc`"
            " deletes them with the state of the optimizer"
        ) from None
    state = torch.load(final.folder / STATE, map_location="cpu", weights_only=True, mmap=True)
    found: dict[str, Tensor] = state["head"]
    return found


def _panel(
    title: str,
    values: Tensor,
    *,
    low: float | None = None,
    high: float | None = None,
    covers: bool = False,
) -> Panel:
    return Panel(title=title, values=values.tolist(), low=low, high=high, covers=covers)


def _shown(batch: Batch, number: int, panels: list[Panel], told: str = "") -> Shown:
    title = f"image {batch.places[number]}: class {int(batch.labels[number])}{told}"
    return Shown(title=title, panels=panels, image=batch.files[number])


_SHOWING = {"attention": _attention, "cam": _cam, "relations": _relations}
