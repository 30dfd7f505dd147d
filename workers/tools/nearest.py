"""The training images whose features are nearest to an image's, as a figure shows them."""

from collections.abc import Callable

import torch

from ...jobs.run.pictures import Neighbour, Queried
from ..checkpoints.final_weights import Final
from ..data.image_set import ImageSet
from ..training.trainee import Trainee
from .feature_space import features_of_set
from .picture_inputs import as_png, inputs_of

# Neighbours of each image.
NEAREST = 7


def nearest(
    trainee: Trainee,
    final: Final,
    places: list[int],
    images: ImageSet,
    train: ImageSet,
    *,
    set_name: str,
    on_progress: Callable[[int], None] = lambda done: None,
) -> list[Queried]:
    """Return images with the training images of the largest cosine, the nearest first.

    The features are those of `features_of_set`. An image of the training set finds itself first,
    which is left out.

    Args:
        trainee: with the run's final weights, in evaluation mode.
        final: the run.
        places: of the images in the set.
        images: the set.
        train: the images that the run was trained on.
        set_name: the set's name.
        on_progress: told how many training images are done.

    Raises:
        BadInput: the model does not show its features.
    """
    spec = final.spec
    device = next(trainee.parameters()).device
    chosen = images.part(torch.tensor(places))
    asked = features_of_set(trainee, final, chosen, set_name)
    known = features_of_set(trainee, final, train, "train", on_progress)
    cosines = asked @ known.T
    if set_name == "train":
        cosines[torch.arange(len(places)), torch.tensor(places)] = -torch.inf
    best = cosines.topk(min(NEAREST, len(train) - (set_name == "train")))
    files = as_png(inputs_of(images, places, spec, set_name, device)[0], spec.dataset)
    found = []
    for number, place in enumerate(places):
        indices = best.indices[number].tolist()
        pictures = as_png(inputs_of(train, indices, spec, "train", device)[0], spec.dataset)
        found.append(
            Queried(
                place=place,
                label=int(chosen.labels[number]),
                image=files[number],
                neighbours=[
                    Neighbour(place=one, label=int(train.labels[one]), cosine=cosine, image=picture)
                    for one, cosine, picture in zip(
                        indices, best.values[number].tolist(), pictures, strict=True
                    )
                ],
            )
        )
    return found
