"""What somebody asks to see of a run's final weights."""

from collections.abc import Sequence
from dataclasses import dataclass

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
    """Of maps for each class; none: the predicted class and the right one."""
    point: tuple[float, float] = (0.5, 0.5)
    """Of `relations`: row and column that the patch of reference holds, as shares of the sides."""


def places_of(asked: Asked, images: ImageSet, most: int) -> list[int]:
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


def check_number(places: Sequence[int]) -> None:
    """Refuse more images than a figure holds.

    Raises:
        BadInput: there are more.
    """
    if len(places) > MOST:
        raise BadInput(f"--images: at most {MOST} images go into a figure")


def _spread(images: ImageSet, most: int) -> list[int]:
    """Return places all over a set, which may be sorted by class."""
    count = min(most, len(images))
    return [number * len(images) // count for number in range(count)]
