"""How a run's final weights are scored on its data.

By its classifier, as a segmenter or detector, or by nearest neighbours.
"""

import itertools
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...jobs.errors import BadInput
from ...jobs.grid import catalogue
from ...jobs.run.settings import OwnFunction, RecipeSettings
from ...jobs.run.spec import RunSpec
from ..randomness import Streams

if TYPE_CHECKING:
    import torch

    from ..data.image_set import ImageSet
    from ..training.group import Group
    from .neighbours import Features


@dataclass(frozen=True, slots=True, kw_only=True)
class ByNeighbours:
    """How features are scored by nearest neighbours."""

    counts: Sequence[int]
    """How many neighbours classify; a score for each."""
    labels: str | None = None
    """A known dataset with the same images, whose classes count."""


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
class Scorer:
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
        from .neighbours import TEMPERATURE, neighbour_scores

        head = self.spec.head
        grafit = head.grafit
        by_neighbours = grafit if grafit is not None and "knn" in grafit.losses else None

        def features(name: str, classifies: bool) -> "Features":
            return self._features(name, neighbours.labels, classifies=classifies)

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

    def by_halves(self, splits: int) -> dict[str, Any]:
        """Return how well a linear layer tells apart random halves of the training classes."""
        from .separability import separability

        found = self._features(
            "train", None, classifies=self.spec.head.shared.labels, normalised=False
        )
        scores = separability(found.embeddings, found.trained, found.logits, splits=splits)
        return {"train": scores | {"n": float(len(found))}}

    def _features(
        self, name: str, labels: str | None, *, classifies: bool, normalised: bool = True
    ) -> "Features":
        """Return the features of a part; see `features_of`.

        Args:
            name: of the part.
            labels: a known dataset with the same images, whose classes count.
            classifies: whether the classifier's answers are wanted.
            normalised: whether features are brought to length 1.
        """
        from .neighbours import features_of

        self.model.eval()
        images = self._part(name)
        if images.answers is not None:
            raise BadInput(f"features of {name}: an image may have several right classes")
        grafit = self.spec.head.grafit
        return features_of(
            self.model,
            images,
            self._wanted(images, name, labels),
            self.spec.dataset,
            self._recipe(name),
            numerics=self.numerics,
            decoder=self.decoder,
            classifies=classifies,
            is_projector=grafit is not None and not grafit.labels,
            normalised=normalised,
            on_progress=Counted(f"features of {name}", len(images)),
        )

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
