"""Score finished runs' weights without training.

`python -m vtjobs.workers.tools.score --workspace DIR --sets test RUN …`.

The scores go into a journal of their own in the run's folder,
`evaluations/<attempt>-<token>.jsonl`.
"""

import argparse
import itertools
import json
import os
import secrets
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from ...jobs.atomic_files import make_folder
from ...jobs.documents import changed, from_plain
from ...jobs.errors import BadInput
from ...jobs.grid import catalogue
from ...jobs.grid.own_function import is_taken
from ...jobs.run.metrics import MAIN, METRICS
from ...jobs.run.settings import OwnFunction, RecipeSettings, Token
from ...jobs.run.spec import RunSpec
from ...jobs.workspace.allocation import DECODED_GIB
from ...jobs.workspace.journal import JournalWriter
from ...jobs.workspace.paths import Workspace
from ..checkpoints.final_weights import NoWeights, final_of
from ..randomness import Streams
from .each import each

if TYPE_CHECKING:
    import torch

    from ..data.image_set import ImageSet
    from ..training.group import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class ByNeighbours:
    """How features are scored by nearest neighbours."""

    counts: Sequence[int]
    """How many neighbours classify; a score for each."""
    labels: str | None = None
    """A known dataset with the same images, whose classes count."""


def score(
    workspace: Workspace,
    run_id: str,
    sets: list[str],
    *,
    data_root: Path,
    paths: dict[str, str],
    decoded_gib: float = DECODED_GIB,
    metrics: Sequence[OwnFunction] = (),
    image_size: int | None = None,
    crop_pct: float | None = None,
    scales: Sequence[float] = (),
    token: Token | None = None,
    neighbours: ByNeighbours | None = None,
) -> dict[str, Any]:
    """Return set -> scores of a run's final weights, and journal them.

    Args:
        workspace: where the run lies.
        run_id: of the run.
        sets: of its dataset.
        data_root: where known datasets lie.
        paths: folders by fingerprint.
        decoded_gib: what the workspace's decoded sets of images may take.
        metrics: of the lab, beside those of vtjobs.
        image_size: another side of the input, pixels; the set is then called `test@256px`.
        crop_pct: another share that the centre crop keeps; `test@crop1`.
        scales: of images with masks, as factors of the recipe's size: the mean of all, and of the
            mirror images; the set is then called `test@scales0.5-1-1.5`.
        token: the classifier that answers alone, of a student with two; `test@class-token`.
        neighbours: score the features by nearest neighbours, in place of the classifier.

    Raises:
        BackboneError: the student has one classifier.
        BadInput: there are fewer training images than neighbours.
        NoWeights: the run has not completed, or its weights are gone or damaged.
        DataError: the dataset is not there.
    """
    import torch

    from ..checkpoints.weights import load_weights
    from ..data.decoded import Decoder
    from ..models.backbones import build
    from ..training.trainee import make_numerics

    final = final_of(workspace, run_id)
    spec = final.spec
    if neighbours is None and not spec.head.shared.labels:
        raise NoWeights(f"run {run_id} has no classifier: it was trained without labels")
    given = {"image_size": image_size, "eval_crop_pct": crop_pct}
    recipe = changed(
        spec.recipe, **{name: value for name, value in given.items() if value is not None}
    )
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    numerics = make_numerics(
        device, precision=recipe.precision, tf32=recipe.tf32, deterministic=recipe.deterministic
    )
    model = build(spec.backbone, changed(spec, recipe=recipe).shape, spec.head)
    load_weights(model, final.weights)
    if token is not None:
        from ..models.students import answer_by

        answer_by(model, token)
    model.to(device)
    scorer = _Scorer(
        spec=spec,
        recipe=recipe,
        crops=crop_pct is not None,
        scales=scales,
        model=model,
        numerics=numerics,
        decoder=Decoder(
            # All training images may be more than a workspace keeps.
            folder=workspace.decoded if neighbours is None else None,
            workers=min(16, len(os.sched_getaffinity(0))),
            limit_bytes=int(decoded_gib * 2**30),
        ),
        data_root=data_root,
        paths=paths,
    )
    if not spec.dataset.has_classes:
        scores = scorer.by_whole_images(sets)
    elif neighbours is None:
        scores = scorer.by_classifier(sets, metrics)
    else:
        scores = scorer.by_neighbours(sets, neighbours)
    labels = None if neighbours is None else neighbours.labels
    how = _how(image_size, crop_pct, scales, labels, token)
    found = {f"{name}{how}": values for name, values in scores.items()}
    _journal(workspace.run(run_id).evaluations, final.attempt, final.manifest, found)
    return found


class Counted:
    """Say on stderr how far long work is, every ten seconds."""

    EVERY_S = 10.0

    def __init__(self, what: str, total: int) -> None:
        self._what, self._total = what, total
        self._said = time.monotonic()

    def __call__(self, done: int) -> None:
        """Say how many images are done, unless that was said just now."""
        if time.monotonic() - self._said >= self.EVERY_S:
            self._said = time.monotonic()
            text = f"{self._what}: {done:,} of {self._total:,} images"
            print(text, file=sys.stderr, flush=True)


@dataclass(slots=True, kw_only=True)
class _Scorer:
    """A run's final weights on its data."""

    spec: RunSpec
    recipe: RecipeSettings
    crops: bool
    """Whether the user has said how images are cropped."""
    scales: Sequence[float]
    """Of images with masks; none: the recipe's size."""
    model: "torch.nn.Module"
    numerics: Any
    decoder: Any
    data_root: Path
    paths: dict[str, str]

    def by_classifier(self, sets: Sequence[str], metrics: Sequence[OwnFunction]) -> dict[str, Any]:
        """Return set -> top1, top5, loss, and a lab's own metrics."""
        from ..data.batches import EVAL_BATCH, EvalSource
        from ..own_functions import own_metrics
        from ..training.compiled import compiled
        from ..training.evaluate import evaluate
        from ..training.group import Group

        forward = compiled(self.model, {EVAL_BATCH}) if self.recipe.compile else None
        group = Group(rank=0, world_size=1, device=self.numerics.device)
        found: dict[str, Any] = {}
        for name in sets:
            source = EvalSource(
                self._part(name),
                self.spec.dataset,
                self._recipe(name),
                self.numerics.device,
                decoder=self.decoder,
            )
            found[name] = evaluate(
                self.model,
                source,
                group,
                self.numerics,
                forward=forward,
                metrics=own_metrics(metrics),
            )
        return found

    def by_whole_images(self, sets: Sequence[str]) -> dict[str, Any]:
        """Return set -> scores, of images with masks or with objects."""
        from ..training.group import Group

        group = Group(rank=0, world_size=1, device=self.numerics.device)
        score = self._objects if self.spec.dataset.has_objects else self._masks
        found: dict[str, Any] = {}
        for name in sets:
            images = self._part(name)
            found[name] = score(images, group, _going_on(Counted(f"scored of {name}", len(images))))
        return found

    def _objects(
        self, images: "ImageSet", group: "Group", keep_going: Callable[[], bool]
    ) -> dict[str, float] | None:
        from ..data.object_pipeline import ObjectSource
        from ..training.detection import evaluate_objects

        source = ObjectSource(
            images, self.spec.dataset, self.recipe, group.device, threads=self.decoder.workers
        )
        return evaluate_objects(self.model, source, group, self.numerics, keep_going=keep_going)

    def _masks(
        self, images: "ImageSet", group: "Group", keep_going: Callable[[], bool]
    ) -> dict[str, float] | None:
        from ..data.mask_pipeline import MaskSource
        from ..training.masks import evaluate_masks

        source = MaskSource(
            images,
            self.spec.dataset,
            self.recipe,
            group.device,
            threads=self.decoder.workers,
            scales=self.scales or (1.0,),
        )
        return evaluate_masks(
            self.model,
            source,
            group,
            self.numerics,
            mirrored=bool(self.scales),
            keep_going=keep_going,
        )

    def by_neighbours(self, sets: Sequence[str], neighbours: ByNeighbours) -> dict[str, Any]:
        """Return set -> accuracy and mean average precision by nearest training images."""
        from .neighbours import TEMPERATURE, features_of, neighbour_scores

        self.model.eval()
        head = self.spec.head
        grafit = head.grafit
        by_neighbours = grafit if grafit is not None and "knn" in grafit.losses else None

        def features(name: str, classifies: bool) -> Any:
            images = self._part(name)
            if images.answers is not None:
                raise BadInput("--knn: an image of this set may have several right classes")
            return features_of(
                self.model,
                images,
                self._wanted(images, name, neighbours.labels),
                self.spec.dataset,
                self._recipe(name),
                numerics=self.numerics,
                decoder=self.decoder,
                classifies=classifies,
                is_projector=grafit is not None and not grafit.labels,
                on_progress=Counted(f"features of {name}", len(images)),
            )

        known = features("train", False)
        found: dict[str, Any] = {}
        for name in sets:
            queries = features(name, head.shared.labels)
            scores = neighbour_scores(
                queries,
                known,
                neighbours.counts,
                temperature=by_neighbours.temperature if by_neighbours else TEMPERATURE,
                neighbours_classify=by_neighbours is not None,
                on_progress=Counted(f"ranked for {name}", len(queries)),
            )
            found[name] = scores | {"n": float(len(queries))}
        return found

    def _recipe(self, name: str) -> RecipeSettings:
        """Return the recipe as a set is scored with it."""
        return (
            self.recipe if self.crops else catalogue.recipe_on(name, self.spec.dataset, self.recipe)
        )

    def _part(self, name: str) -> "ImageSet":
        from ..data.datasets import load_part

        return load_part(
            self.spec.dataset,
            name,
            Streams(self.spec.seeds),
            data_root=self.data_root,
            paths=self.paths,
        )

    def _wanted(self, images: "ImageSet", name: str, labels: str | None) -> "torch.Tensor":
        """Return the classes that count, of a part's images."""
        from ..data.datasets import labels_of

        if labels is None:
            return images.labels
        return labels_of(
            labels, images, self.spec.dataset, name, data_root=self.data_root, paths=self.paths
        )


def _going_on(counted: Counted) -> Callable[[], bool]:
    """Return what counts an image each time that it is asked whether to go on."""
    turns = itertools.count(1)

    def keep_going() -> bool:
        counted(next(turns))
        return True

    return keep_going


def _how(
    image_size: int | None,
    crop_pct: float | None,
    scales: Sequence[float],
    labels: str | None,
    token: Token | None,
) -> str:
    """Return what a set's name ends with where it is not scored as in training."""
    parts = [f"{image_size}px"] if image_size is not None else []
    parts += [f"crop{crop_pct:g}"] if crop_pct is not None else []
    parts += ["scales" + "-".join(f"{scale:g}" for scale in scales)] if scales else []
    parts += [f"{token}-token"] if token is not None else []
    parts += [labels] if labels is not None else []
    return f"@{'-'.join(parts)}" if parts else ""


def _journal(folder: Path, attempt: int, manifest: Any, found: dict[str, Any]) -> None:
    make_folder(folder)
    staged = folder / f".{attempt:04d}-{secrets.token_hex(6)}"
    writer = JournalWriter(staged)
    for name, metrics in found.items():
        writer.write(
            "evaluation",
            at=time.time(),
            epoch=manifest.epoch,
            step=manifest.step,
            set=name,
            metrics=metrics,
        )
    writer.close()
    os.rename(staged, folder / f"{staged.name[1:]}.jsonl")


def _line(run_id: str, set_name: str, metrics: dict[str, float]) -> str:
    told = (*MAIN.values(), "loss", *(name for name in metrics if name not in METRICS))
    order = [name for name in told if name in metrics]
    shown = "  ".join(f"{name} {metrics[name]:{_format(name)}}" for name in order)
    return f"{run_id} {set_name}: {shown}  n {metrics['n']:.0f}"


def _format(metric: str) -> str:
    if metric == "loss":
        return ".4f"
    return ".2f" if is_taken(metric) else ".4g"


def main() -> int:
    """Score each run; print a line per run and set."""
    parser = argparse.ArgumentParser(prog="vtjobs.workers.tools.score")
    parser.add_argument("--workspace", type=Path, required=True)
    parser.add_argument("--decoded-gib", type=float, default=DECODED_GIB)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--paths", default="{}")
    parser.add_argument("--sets", required=True)
    # Read as JSON from standard input.
    parser.add_argument("--metrics", action="store_true")
    parser.add_argument("--image-size", type=int)
    parser.add_argument("--crop-pct", type=float)
    parser.add_argument(
        "--scales", type=lambda text: [float(one) for one in text.split(",")], default=[]
    )
    parser.add_argument("--knn", type=lambda text: [int(count) for count in text.split(",")])
    parser.add_argument("--labels")
    parser.add_argument("--token", choices=get_args(Token))
    parser.add_argument("run_ids", nargs="+")
    options = parser.parse_args()
    metrics = from_plain(json.load(sys.stdin) if options.metrics else [], list[OwnFunction])
    neighbours = ByNeighbours(counts=options.knn, labels=options.labels) if options.knn else None

    def tell(run_id: str) -> str:
        found = score(
            Workspace(options.workspace),
            run_id,
            options.sets.split(","),
            data_root=options.data,
            paths=json.loads(options.paths),
            decoded_gib=options.decoded_gib,
            metrics=metrics,
            image_size=options.image_size,
            crop_pct=options.crop_pct,
            scales=options.scales,
            token=options.token,
            neighbours=neighbours,
        )
        return "\n".join(_line(run_id, name, metrics) for name, metrics in found.items())

    return each(options.run_ids, tell)


if __name__ == "__main__":
    sys.exit(main())
