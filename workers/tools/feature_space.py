"""The features of images as points of a plane, and along how many directions they vary."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ...jobs.errors import BadInput
from ...jobs.grid import catalogue
from ...jobs.run.pictures import FeatureSpace
from ..checkpoints.final_weights import Final
from ..data.decoded import Decoder
from ..data.image_set import ImageSet
from ..training.trainee import Trainee, make_numerics
from .neighbours import features_of

# scikit-learn's own; less where there are few images.
PERPLEXITY = 30.0
FEWEST = 5


def feature_space(
    trainee: Trainee, final: Final, places: list[int], images: ImageSet, *, set_name: str
) -> FeatureSpace:
    """Return the features of some images by t-SNE, and the energy of their principal components.

    The features are what the classifier gets, or what a projector gives, of length 1, in fp32.

    Args:
        trainee: with the run's final weights, in evaluation mode.
        final: the run.
        places: of the images in the set.
        images: the set.
        set_name: its name.

    Raises:
        BadInput: there are too few images, their features are all alike, or the model does not show
            its features.
    """
    if len(set(places)) < FEWEST:
        raise BadInput(f"--images: features need at least {FEWEST} different images")
    part = images.part(torch.tensor(places))
    features = features_of_set(trainee, final, part, set_name).numpy()
    if not features.std(0).any():
        raise BadInput(f"run {final.spec.run_id}: the features of all images are alike")
    perplexity = min(PERPLEXITY, (len(places) - 1) / 3)
    points = _plane(features, perplexity)
    return FeatureSpace(
        places=places,
        labels=part.labels.tolist(),
        x=points[:, 0].tolist(),
        y=points[:, 1].tolist(),
        perplexity=perplexity,
        energy=_energy(features),
    )


def features_of_set(
    trainee: Trainee,
    final: Final,
    images: ImageSet,
    set_name: str,
    on_progress: Callable[[int], None] = lambda done: None,
) -> Tensor:
    """Return what the classifier gets of images, or what a projector gives: [N, D] float32 on the
    CPU, of length 1.

    Args:
        trainee: with the run's final weights, in evaluation mode.
        final: the run.
        images: of a set.
        set_name: its name.
        on_progress: told how many images are done.

    Raises:
        BadInput: the model does not show its features.
    """
    spec = final.spec
    grafit = spec.head.grafit
    found = features_of(
        trainee.backbone,
        images,
        images.labels,
        spec.dataset,
        catalogue.recipe_on(set_name, spec.dataset, spec.recipe),
        numerics=make_numerics(next(trainee.parameters()).device, precision="fp32"),
        decoder=Decoder(),
        classifies=False,
        is_projector=grafit is not None and not grafit.labels,
        on_progress=on_progress,
    )
    return found.embeddings.cpu()


def _plane(features: Any, perplexity: float) -> Any:
    from sklearn.manifold import TSNE

    return TSNE(perplexity=perplexity, init="pca", random_state=0).fit_transform(features)


def _energy(features: Any) -> list[float]:
    """Return the percent of variance in the first 1, 2, … principal components."""
    from sklearn.decomposition import PCA

    shares = PCA(svd_solver="full").fit(features).explained_variance_ratio_
    energy: list[float] = (100 * shares.cumsum()).tolist()
    return energy
