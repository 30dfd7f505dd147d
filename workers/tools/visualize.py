"""Make the maps that a run's final weights show.

`python -m vtjobs.workers.tools.visualize --workspace DIR --data DIR --kind attention RUN`.

They go as JSON to standard output.
"""

import argparse
import contextlib
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor, nn

from ...jobs.documents import changed, to_plain
from ...jobs.errors import BadInput
from ...jobs.grid import catalogue
from ...jobs.run.picture_kinds import Kind
from ...jobs.run.pictures import Panel, Pictures, Shown
from ...jobs.workspace.paths import Workspace
from ..checkpoints.final_weights import Final, NoWeights, final_of
from ..checkpoints.manifest import STATE, Rejected, verify
from ..checkpoints.weights import load_weights
from ..data.batches import EvalSource, normaliser
from ..data.datasets import load_part
from ..data.decoded import Decoder
from ..data.image_set import ImageSet
from ..data.patches import patch_work
from ..heads.base import trains_module
from ..heads.relations import Relation
from ..randomness import Streams
from ..training.trainee import Trainee, make_numerics, make_trainee
from .depth import depth
from .each import each
from .feature_space import feature_space
from .filters import filters, sparsity
from .mask_maps import mask_maps, object_maps
from .picture_texts import TEXTS
from .png import png
from .saliency import attention_of_classes, class_activation, class_attention

# Images that are drawn if none are named.
IMAGES = 4
# Of one figure; they pass through the network together.
MOST = 64
# Images whose features are drawn.
FEATURES = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is to be drawn."""

    kind: Kind
    set_name: str = "test"
    images: Sequence[int] = ()
    """Places in the set, from 0; none: four that are spread over it, of `depth` up to 64 and
    of `features` up to 1000."""
    classes: Sequence[int] = ()
    """Of maps for each class; none: the predicted class and the right one."""
    point: tuple[float, float] = (0.5, 0.5)
    """Of `relations`: row and column that the patch of reference holds, as shares of the sides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Batch:
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


def pictures(
    workspace: Workspace, run_id: str, asked: Asked, *, data_root: Path, paths: dict[str, str]
) -> Pictures:
    """Return the maps of a run's final weights, computed in fp32.

    Args:
        workspace: where the run lies.
        run_id: of the run.
        asked: what is drawn.
        data_root: where known datasets lie.
        paths: folders by fingerprint.

    Raises:
        BadInput: the set has no such image, the dataset no such class, or the network nothing of
            this kind to show.
        NoWeights: the run has not completed, or its weights are gone or damaged.
        DataError: the dataset is not there.
    """
    final = final_of(workspace, run_id)
    _require_task(final, asked.kind)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    trainee = make_trainee(final.spec, Streams(final.spec.seeds))
    load_weights(trainee.backbone, final.weights)
    trainee.to(device).eval()
    layers, space, shown, blocks = [], None, [], []
    if asked.kind == "filters":
        shown, layers = filters(trainee.backbone), sparsity(trainee.backbone)
    else:
        images = load_part(
            final.spec.dataset,
            asked.set_name,
            Streams(final.spec.seeds),
            data_root=data_root,
            paths=paths,
        )
        if asked.kind == "features":
            places = _places(asked, images, FEATURES)
            space = feature_space(trainee, final, places, images, set_name=asked.set_name)
        elif asked.kind == "masks":
            places = _places(asked, images, IMAGES)
            numerics = make_numerics(device, precision="fp32")
            maps = object_maps if final.spec.dataset.has_objects else mask_maps
            shown = maps(trainee.backbone, final.spec, places, images, numerics)
        elif asked.kind == "depth":
            several = replace(asked, images=_places(asked, images, MOST))
            blocks = depth(trainee.backbone, _batch(final, trainee, several, images).inputs)
        else:
            batch = _batch(final, trainee, asked, images)
            shown = _SHOWING[asked.kind](trainee, final, asked, batch)
    is_per_class = asked.kind == "attention" and getattr(trainee.backbone, "is_per_class", False)
    return Pictures(
        run_id=run_id,
        kind=asked.kind,
        text=TEXTS["attention of classes" if is_per_class else asked.kind],
        shown=shown,
        layers=layers,
        space=space,
        blocks=blocks,
    )


def _require_task(final: Final, kind: Kind) -> None:
    """Refuse maps of a classifier for masks or objects, and the other way round."""
    run_id, dataset = final.manifest.run_id, final.spec.dataset
    if not dataset.has_classes and kind != "masks":
        what = "masks" if dataset.has_masks else "objects"
        raise BadInput(f"--kind {kind}: run {run_id} was trained on {what}. Set --kind masks")
    if kind == "masks" and dataset.has_classes:
        raise BadInput(f"--kind masks: run {run_id} was trained on classes. Set another kind")


def _places(asked: Asked, images: ImageSet, most: int) -> list[int]:
    """Return the places of the images that are shown.

    Raises:
        BadInput: the set has no such image.
    """
    places = list(asked.images) or _spread(images, most)
    if not 0 <= min(places) <= max(places) < len(images):
        raise BadInput(
            f"--images: {asked.set_name} has {len(images):,} images, 0 to {len(images) - 1}"
        )
    return places


def _batch(final: Final, trainee: Trainee, asked: Asked, images: ImageSet) -> _Batch:
    spec = final.spec
    device = next(trainee.parameters()).device
    places = _places(asked, images, IMAGES)
    if len(places) > MOST:
        raise BadInput(f"--images: at most {MOST} images go into a figure")
    source = EvalSource(
        images.part(torch.tensor(places)),
        spec.dataset,
        catalogue.recipe_on(asked.set_name, spec.dataset, spec.recipe),
        device,
        decoder=Decoder(),
    )
    inputs = torch.cat([batch[0] for batch in source.batches() if batch is not None])
    work = patch_work(spec.head, spec.dataset, trainee.patch, device)
    if work is not None:
        # What the network is evaluated on; the same cuts of each image, whatever else is shown.
        inputs = torch.cat(
            [work.evaluate(one[None], torch.Generator().manual_seed(0)) for one in inputs]
        )
    mean, std = normaliser(spec.dataset, device)
    plain = (inputs * std + mean).round().clamp(0, 255).byte().cpu()
    return _Batch(
        places=places,
        inputs=inputs,
        labels=images.labels[torch.tensor(places)].to(device),
        files=[png(image) for image in plain],
        only=source.only,
    )


def _spread(images: ImageSet, most: int) -> list[int]:
    """Return places all over a set, which may be sorted by class."""
    count = min(most, len(images))
    return [number * len(images) // count for number in range(count)]


def _attention(trainee: Trainee, final: Final, asked: Asked, batch: _Batch) -> list[Shown]:
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
    model: nn.Module, final: Final, asked: Asked, batch: _Batch, maps: Tensor
) -> list[Shown]:
    """Return the attention of classes, [B, classes, h, w], to the patches of each image."""
    chosen = _chosen_classes(model, final, asked, batch)
    shares = _logits(model, batch).softmax(1)
    layers = [maps[torch.arange(len(maps)), classes] for classes in chosen]
    return _by_class(batch, chosen, layers, shares, covers=False)


def _cam(trainee: Trainee, final: Final, asked: Asked, batch: _Batch) -> list[Shown]:
    model = trainee.backbone
    chosen = _chosen_classes(model, final, asked, batch)
    maps = class_activation(model, batch.inputs, chosen)
    return _by_class(batch, chosen, maps, _logits(model, batch).softmax(1), covers=True)


@torch.no_grad()
def _logits(model: nn.Module, batch: _Batch) -> Tensor:
    logits: Tensor = model(batch.inputs).float()
    return logits if batch.only is None else logits.masked_fill(~batch.only, -torch.inf)


def _chosen_classes(model: nn.Module, final: Final, asked: Asked, batch: _Batch) -> list[Tensor]:
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
    batch: _Batch, chosen: list[Tensor], maps: list[Tensor], shares: Tensor, *, covers: bool
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


def _relations(trainee: Trainee, final: Final, asked: Asked, batch: _Batch) -> list[Shown]:
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


def _shown(batch: _Batch, number: int, panels: list[Panel], told: str = "") -> Shown:
    title = f"image {batch.places[number]}: class {int(batch.labels[number])}{told}"
    return Shown(title=title, panels=panels, image=batch.files[number])


_SHOWING = {"attention": _attention, "cam": _cam, "relations": _relations}


def main() -> int:
    """Print the maps of one run."""
    parser = argparse.ArgumentParser(prog="vtjobs.workers.tools.visualize")
    parser.add_argument("--workspace", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--paths", default="{}")
    parser.add_argument("--kind", choices=get_args(Kind), required=True)
    parser.add_argument("--set", default="test")
    parser.add_argument("--images", type=int, nargs="*", default=[])
    parser.add_argument("--classes", type=int, nargs="*", default=[])
    parser.add_argument("--point", type=float, nargs=2, default=(0.5, 0.5))
    parser.add_argument("run_id")
    options = parser.parse_args()

    def tell(run_id: str) -> str:
        asked = Asked(
            kind=options.kind,
            set_name=options.set,
            images=options.images,
            classes=options.classes,
            point=tuple(options.point),
        )
        # What a lab's own code prints is no part of the document.
        with contextlib.redirect_stdout(sys.stderr):
            found = pictures(
                Workspace(options.workspace),
                run_id,
                asked,
                data_root=options.data,
                paths=json.loads(options.paths),
            )
        return json.dumps(to_plain(found))

    return each([options.run_id], tell)


if __name__ == "__main__":
    sys.exit(main())
