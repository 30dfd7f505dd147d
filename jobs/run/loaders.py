"""What is known of loader processes without importing torch."""

from .settings import CellSettings

# Items that a loader process makes ahead.
PREFETCH = 2
# Items that nobody has let go yet: the one that is trained on, and one that is being pinned.
IN_USE = 2
# Objects of a crowded image: few of COCO's have more.
OBJECTS = 20


def image_bytes(settings: CellSettings) -> int:
    """Return the size of an image as loader processes hand it over: unsigned bytes."""
    recipe, dataset = settings.recipe, settings.dataset
    pixels = recipe.image_size * (recipe.longest_side or recipe.image_size)
    # Masks go with an image: a number of 64 bits for each pixel, or a byte for each object.
    masks = {"classification": 0, "segmentation": 8, "detection": OBJECTS}
    return (dataset.channels + masks[dataset.task]) * pixels


def share_bytes(settings: CellSettings) -> int:
    """Return the size of the images that a loader process hands over at a time: those of one
    virtual rank.
    """
    recipe = settings.recipe
    share = -(-recipe.batch_size // recipe.virtual_ranks)
    return share * settings.head.views * image_bytes(settings)
