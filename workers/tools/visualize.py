"""Make the maps that a run's final weights show.

`python -m vtjobs.workers.tools.visualize --workspace DIR --data DIR --kind attention RUN`.

They go as JSON to standard output.
"""

import argparse
import contextlib
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import torch

from ...jobs.documents import to_plain
from ...jobs.errors import BadInput
from ...jobs.run.picture_kinds import Kind
from ...jobs.run.pictures import Pictures
from ...jobs.run.spec import RunSpec
from ...jobs.workspace.paths import Workspace
from ..checkpoints.final_weights import Final, final_of
from ..checkpoints.weights import load_weights
from ..data.datasets import labels_of, load_part
from ..data.image_set import ImageSet
from ..models.depth import depth
from ..randomness import Streams
from ..training.trainee import Trainee, make_numerics, make_trainee
from .asked import FEATURES, IMAGES, MOST, Asked, check_number, places_of
from .each import each
from .feature_space import feature_space
from .filters import filters, sparsity
from .image_maps import batch_of, image_maps
from .mask_maps import mask_maps, object_maps
from .nearest import nearest
from .picture_texts import TEXTS
from .scorer import Counted


@dataclass(frozen=True, slots=True)
class Sets:
    """The sets of a run's dataset."""

    spec: RunSpec
    data_root: Path
    paths: dict[str, str]

    def __call__(self, name: str) -> ImageSet:
        """Load a split."""
        streams = Streams(self.spec.seeds)
        return load_part(
            self.spec.dataset, name, streams, data_root=self.data_root, paths=self.paths
        )

    def judged(self, images: ImageSet, name: str, labels: str | None) -> ImageSet:
        """Return a split with the classes of another dataset, where one is named."""
        if labels is None:
            return images
        found = labels_of(
            labels, images, self.spec.dataset, name, data_root=self.data_root, paths=self.paths
        )
        return replace(images, labels=found)


# Returns those fields of `Pictures` that a kind fills.
Drawing = Callable[[Trainee, Final, Asked, Sets], dict[str, Any]]


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
    sets = Sets(final.spec, data_root, paths)
    draw: Drawing = _DRAWING.get(asked.kind, _maps)
    is_per_class = asked.kind == "attention" and getattr(trainee.backbone, "is_per_class", False)
    return Pictures(
        run_id=run_id,
        kind=asked.kind,
        text=TEXTS["attention of classes" if is_per_class else asked.kind]
        + ("" if asked.labels is None else f" Classes: those of {asked.labels}."),
        **{"shown": [], **draw(trainee, final, asked, sets)},
    )


def _filters(trainee: Trainee, *_: Any) -> dict[str, Any]:
    return {"shown": filters(trainee.backbone), "layers": sparsity(trainee.backbone)}


def _features(trainee: Trainee, final: Final, asked: Asked, load: Sets) -> dict[str, Any]:
    images = load(asked.set_name)
    places = places_of(asked, images, FEATURES)
    images = load.judged(images, asked.set_name, asked.labels)
    return {"space": feature_space(trainee, final, places, images, set_name=asked.set_name)}


def _neighbours(trainee: Trainee, final: Final, asked: Asked, load: Sets) -> dict[str, Any]:
    images, train = load(asked.set_name), load("train")
    places = places_of(asked, images, IMAGES)
    check_number(places)
    images = load.judged(images, asked.set_name, asked.labels)
    train = load.judged(train, "train", asked.labels)
    said = Counted("features of train", len(train))
    found = nearest(
        trainee, final, places, images, train, set_name=asked.set_name, on_progress=said
    )
    return {"queries": found}


def _masks(trainee: Trainee, final: Final, asked: Asked, load: Sets) -> dict[str, Any]:
    images = load(asked.set_name)
    numerics = make_numerics(next(trainee.parameters()).device, precision="fp32")
    maps = object_maps if final.spec.dataset.has_objects else mask_maps
    places = places_of(asked, images, IMAGES)
    return {"shown": maps(trainee.backbone, final.spec, places, images, numerics)}


def _depth(trainee: Trainee, final: Final, asked: Asked, load: Sets) -> dict[str, Any]:
    images = load(asked.set_name)
    several = replace(asked, images=places_of(asked, images, MOST))
    return {"blocks": depth(trainee.backbone, batch_of(final, trainee, several, images).inputs)}


def _maps(trainee: Trainee, final: Final, asked: Asked, load: Sets) -> dict[str, Any]:
    return {"shown": image_maps(trainee, final, asked, load(asked.set_name))}


# The other kinds are maps of single images.
_DRAWING: dict[str, Drawing] = {
    "filters": _filters,
    "features": _features,
    "neighbours": _neighbours,
    "masks": _masks,
    "depth": _depth,
}


def _require_task(final: Final, kind: Kind) -> None:
    """Refuse maps of a classifier for masks or objects, and the other way round."""
    run_id, dataset = final.manifest.run_id, final.spec.dataset
    if not dataset.has_classes and kind != "masks":
        what = "masks" if dataset.has_masks else "objects"
        raise BadInput(f"--kind {kind}: run {run_id} was trained on {what}. Set --kind masks")
    if kind == "masks" and dataset.has_classes:
        raise BadInput(f"--kind masks: run {run_id} was trained on classes. Set another kind")


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
    parser.add_argument("--labels")
    parser.add_argument("--point", type=float, nargs=2, default=(0.5, 0.5))
    parser.add_argument("run_id")
    options = parser.parse_args()

    def tell(run_id: str) -> str:
        asked = Asked(
            kind=options.kind,
            set_name=options.set,
            images=options.images,
            classes=options.classes,
            labels=options.labels,
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
