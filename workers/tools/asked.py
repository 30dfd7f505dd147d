"""What somebody asks to see of a run's final weights."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ...jobs.errors import BadInput
from ...jobs.run.picture_kinds import Kind
from ..data.image_set import ImageSet

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
    """Of maps for each class; none: the predicted class and the right one. Of features and
    neighbours: the trained classes whose images are shown; none: all."""
    labels: str | None = None
    """A known dataset with the same images, whose classes features and neighbours are shown by."""
    point: tuple[float, float] = (0.5, 0.5)
    """Of `relations`: row and column that the patch of reference holds, as shares of the sides."""


def places_of(asked: Asked, images: ImageSet, most: int) -> list[int]:
    """Return the places of the images that are shown.

    Raises:
        BadInput: the set has no such image, or none of the classes.
    """
    places = list(asked.images) or _spread(_shown(asked, images), most)
    if not 0 <= min(places) <= max(places) < len(images):
        raise BadInput(
            f"--images: {asked.set_name} has {len(images):,} images, 0 to {len(images) - 1}"
        )
    return places


def check_number(places: Sequence[int]) -> None:
    """Refuse more images than a figure holds.

    Raises:
        BadInput: there are more.
    """
    if len(places) > MOST:
        raise BadInput(f"--images: at most {MOST} images go into a figure")


def _shown(asked: Asked, images: ImageSet) -> list[int]:
    """Return the places of all images that may be shown."""
    if not asked.classes or asked.kind not in ("features", "neighbours"):
        return list(range(len(images)))
    wanted = torch.isin(images.labels, torch.tensor(list(asked.classes)))
    if not wanted.any():
        classes = ", ".join(map(str, asked.classes))
        raise BadInput(f"--classes {classes}: {asked.set_name} has no image of these classes")
    return wanted.nonzero().flatten().tolist()


def _spread(places: Sequence[int], most: int) -> list[int]:
    """Return places all over a set, which may be sorted by class."""
    count = min(most, len(places))
    return [places[number * len(places) // count] for number in range(count)]
