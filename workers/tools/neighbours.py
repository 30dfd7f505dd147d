"""Score features by nearest neighbours among the training images: classification and retrieval.

The protocols are those of the thesis (Touvron 2022), sections 2.3.2 and 2.3.3: training images are
found by the cosine of their features with a test image's. Nothing is trained.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...jobs.errors import BadInput
from ...jobs.run.settings import DatasetSettings, RecipeSettings
from ..data.batches import EvalSource
from ..data.decoded import Decoder
from ..data.image_set import ImageSet
from ..models.projector import embed, shows_features

# σ of eqs. 2.2 and 2.6, which the thesis has from Wu et al. (section 2.4.3).
TEMPERATURE = 0.05
# Images whose decoded pixels are held in memory at a time.
HELD = 4096
# Scores of queries and training images that are ranked at a time.
RANKED = 1 << 24
# More than any cosine: what it is added to comes first (section 2.3.2, oracle).
FIRST = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """What a model makes of a set of images."""

    embeddings: Tensor
    """[N, D] float32, of length 1 unless asked otherwise: what the classifier gets, or a projector
    gives."""
    logits: Tensor | None
    """[N, classes] float32; None where the model has no trained classifier."""
    trained: Tensor
    """[N] int64, the classes that the model was trained on."""
    wanted: Tensor
    """[N] int64, the classes by which neighbours are judged: these, or those of another level."""
    only: Tensor | None = None
    """[classes] bool, what a model may choose from; None: all classes."""

    def chosen_from(self, only: Tensor | None) -> "Features":
        """Return those of the trained classes that may be chosen from."""
        if only is None:
            return self
        kept = only[self.trained]
        return replace(
            self,
            embeddings=self.embeddings[kept],
            logits=None if self.logits is None else self.logits[kept],
            trained=self.trained[kept],
            wanted=self.wanted[kept],
        )

    def __len__(self) -> int:
        return len(self.wanted)


@torch.no_grad()
def features_of(
    model: nn.Module,
    images: ImageSet,
    wanted: Tensor,
    dataset: DatasetSettings,
    recipe: RecipeSettings,
    *,
    numerics: Any,
    decoder: Decoder,
    classifies: bool,
    is_projector: bool = False,
    normalised: bool = True,
    on_progress: Callable[[int], None] = lambda done: None,
) -> Features:
    """Return the features of a set, in the order of its images.

    Args:
        model: in evaluation mode on its device.
        images: decoded a part at a time, as evaluation does it: no augmentation.
        wanted: [N] int64, see `Features`.
        dataset: of the images.
        recipe: of the run.
        numerics: precision and device.
        decoder: decodes in memory.
        classifies: whether the classifier was trained.
        is_projector: whether a projector stands in its place, or nothing: what the model gives out
            are the features.
        normalised: whether features are brought to length 1.
        on_progress: told the number of images that are done, after each part.

    Raises:
        BadInput: the model does not show the features that its classifier gets.
    """
    if not is_projector and not shows_features(model):
        raise BadInput(
            f"forward_head of {type(model).__name__} must take pre_logits=True and return"
            " the features, as timm's models do"
        )
    embeddings: Tensor | None = None
    logits = []
    done = 0
    for start in range(0, len(images), HELD):
        part = images.part(torch.arange(start, min(start + HELD, len(images))))
        source = EvalSource(part, dataset, recipe, numerics.device, decoder=decoder)
        for batch in source.batches():
            if batch is None:
                continue
            with numerics.autocast():
                tokens = model.forward_features(batch[0])
                pooled = embed(model, tokens, classifies=not is_projector)
                answers = model.forward_head(tokens) if classifies else None
            found = F.normalize(pooled.float(), dim=1) if normalised else pooled.float()
            if embeddings is None:
                # Made once: the features of a large training set fill much of a GPU.
                embeddings = found.new_empty(len(images), found.shape[1])
            embeddings[done : done + len(found)] = found
            done += len(found)
            if answers is not None:
                logits.append(answers.float())
        on_progress(start + len(part))
    device = numerics.device
    assert embeddings is not None, "a set has images"
    only = None if images.only is None else images.only.to(device)
    answers = torch.cat(logits) if logits else None
    if answers is not None and only is not None:
        answers = answers.masked_fill(~only, -torch.inf)
    return Features(
        embeddings=embeddings,
        logits=answers,
        trained=images.labels.to(device),
        wanted=wanted.to(device),
        only=only,
    )


def neighbour_scores(
    queries: Features,
    known: Features,
    counts: Sequence[int],
    *,
    temperature: float = TEMPERATURE,
    neighbours_classify: bool = False,
    on_progress: Callable[[int], None] = lambda done: None,
) -> dict[str, float]:
    """Return metric -> percent: accuracy by nearest neighbours, and mean average precision.

    - `knn20`: the share of queries that their 20 nearest training images classify rightly (eq. 2.6)
    - `map`: mean average precision of all training images ranked by cosine
    - `map_conditioned`: ranked by cosine plus the log-odds that the classifier gives to a training
      image's class (eq. 2.5); where there is a classifier, or neighbours classify
    - `map_oracle`: training images of the query's own class come first; where the classes that
      count are others than those that were trained

    Args:
        queries: of the images that are scored.
        known: of the training images.
        counts: how many neighbours classify.
        temperature: σ, of the model's training if it was trained by neighbours.
        neighbours_classify: whether the model was trained to classify by neighbours; eq. 2.3 over
            all training images then stands for the classifier of eq. 2.5.
        on_progress: told the number of queries that are done, after each part.

    Raises:
        BadInput: there are fewer training images than neighbours.
    """
    known = known.chosen_from(queries.only)
    if max(counts) > len(known):
        raise BadInput(f"--knn {max(counts)}: the train part has {len(known)} images")
    classes = int(max(queries.wanted.max(), known.wanted.max())) + 1
    right = dict.fromkeys(counts, 0)
    precisions: dict[str, list[Tensor]] = {}
    for part in _parts(len(queries), len(known)):
        cosines = queries.embeddings[part] @ known.embeddings.T
        truth = queries.wanted[part]
        nearest = cosines.topk(max(counts), dim=1)
        for count in counts:
            votes = class_votes(
                nearest.values[:, :count],
                known.wanted[nearest.indices[:, :count]],
                classes,
                temperature,
            )
            right[count] += int((votes.argmax(1) == truth).sum())
        relevant = truth[:, None] == known.wanted
        masses = None
        if neighbours_classify and queries.logits is None:
            masses = class_masses(cosines, known.trained, temperature)
        for name, scores in _rankings(queries, known, part, cosines, masses):
            precisions.setdefault(name, []).append(average_precision(scores, relevant))
        on_progress(min(part.stop, len(queries)))
    found = {f"knn{count}": 100 * right[count] / len(queries) for count in counts}
    # A query without a relevant image has no precision, and where none has one there is no mean.
    means = {name: float(torch.cat(values).nanmean()) for name, values in precisions.items()}
    return found | {name: 100 * mean for name, mean in means.items() if not math.isnan(mean)}


def class_votes(
    cosines: Tensor, labels: Tensor, classes: int, temperature: float = TEMPERATURE
) -> Tensor:
    """Return the probability of each class by eq. 2.6, [Q, classes] float32.

    Args:
        cosines: [Q, k], of the k nearest training images.
        labels: [Q, k] int64, their classes.
        classes: how many there are.
        temperature: σ.
    """
    # The largest cosine is taken off before the exponential: probabilities stay the same.
    weights = ((cosines - cosines.amax(1, keepdim=True)) / temperature).exp()
    votes = torch.zeros(len(cosines), classes, device=cosines.device)
    rows = torch.arange(len(cosines), device=cosines.device)
    # One neighbour at a time: CUDA adds to one place several times in no fixed order, which a
    # deterministic recipe forbids.
    for label, weight in zip(labels.T, weights.T, strict=True):
        votes[rows, label] += weight
    return votes / votes.sum(1, keepdim=True)


def class_masses(cosines: Tensor, labels: Tensor, temperature: float = TEMPERATURE) -> Tensor:
    """Return the probability of each class by eq. 2.3, over all training images: [Q, classes]
    float64.

    Args:
        cosines: [Q, N].
        labels: [N] int64, the classes of the training images.
        temperature: σ.
    """
    weights = ((cosines.double() - cosines.amax(1, keepdim=True)) / temperature).exp()
    masses = weights.new_zeros(len(cosines), int(labels.max()) + 1)
    masses.index_add_(1, labels, weights)
    return masses / masses.sum(1, keepdim=True)


def average_precision(scores: Tensor, relevant: Tensor) -> Tensor:
    """Return each query's average precision, [Q] float64; NaN where no image is relevant.

    The mean, over the relevant images, of the share of relevant ones among all that rank as high.

    Args:
        scores: [Q, N], higher ones rank first; equal ones as they stand.
        relevant: [Q, N] bool.
    """
    order = scores.argsort(dim=1, descending=True, stable=True)
    hits = relevant.gather(1, order)
    ranks = torch.arange(1, scores.shape[1] + 1, device=scores.device)
    precisions = hits.cumsum(1).double() / ranks
    return (precisions * hits).sum(1) / hits.sum(1)


def conditioned(cosines: Tensor, logits: Tensor, labels: Tensor) -> Tensor:
    """Return the scores of eq. 2.5, [Q, N]: cosine plus log(p / (1 - p)) of an image's class.

    Args:
        cosines: [Q, N].
        logits: [Q, classes] of the queries.
        labels: [N] int64, the trained classes of the training images.
    """
    logs = logits.double().log_softmax(1)
    odds = logs - torch.log1p(-logs.exp())
    # Where p is 1 to the last digit, 1 - p is the sum over the other classes.
    first = logs.argmax(1, keepdim=True)
    others = logs.scatter(1, first, -torch.inf).logsumexp(1, keepdim=True)
    odds = odds.scatter(1, first, logs.gather(1, first) - others)
    return cosines.double() + odds[:, labels]


def _rankings(
    queries: Features, known: Features, part: slice, cosines: Tensor, masses: Tensor | None
) -> Iterator[tuple[str, Tensor]]:
    yield "map", cosines
    logits = None if queries.logits is None else queries.logits[part]
    if logits is None and masses is not None:
        logits = masses.log()
    if logits is not None:
        yield "map_conditioned", conditioned(cosines, logits, known.trained)
    if not torch.equal(queries.wanted, queries.trained):
        same = queries.trained[part][:, None] == known.trained
        yield "map_oracle", cosines + FIRST * same


def _parts(queries: int, known: int) -> Iterator[slice]:
    size = max(1, RANKED // known)
    return (slice(start, start + size) for start in range(0, queries, size))
