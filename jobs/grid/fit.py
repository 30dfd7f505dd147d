"""Whether a head, a recipe and a dataset can be trained together."""

from collections.abc import Iterator
from typing import NamedTuple

from ..run.settings import DatasetSettings, HeadSettings, RecipeSettings
from ..strict_yaml import Path_
from . import catalogue
from .entries import Entry


class Misfit(NamedTuple):
    """One reason why the parts cannot be trained together."""

    path: Path_
    """Where in the grid's file the mistake most likely is."""
    message: str
    fix: str = ""


def misfits(
    head: HeadSettings, recipe: RecipeSettings, dataset: DatasetSettings, entry: Entry
) -> Iterator[Misfit]:
    """Yield every reason why the three cannot be trained together.

    Args:
        head: as the run has it.
        recipe: as the run has it.
        dataset: as the run has it.
        entry: the head as the grid has it.
    """
    yield from _crop(recipe, dataset)
    yield from _smoothing(recipe, dataset)
    yield from _patches(head, entry)
    if not head.shared.labels:
        yield from _without_labels(head, recipe, entry)


def _crop(recipe: RecipeSettings, dataset: DatasetSettings) -> Iterator[Misfit]:
    one_size = catalogue.datasets().get(dataset.name, {}).get("one_size", False)
    if recipe.crop == "resized" and recipe.pipeline == "tensor" and not one_size:
        where = f"images of different sizes ({dataset.name})"
        message = f"crop: resized on {where} needs `pipeline: pil`"
        yield Misfit(("train",), message, "Set train: {pipeline: pil}")


def _smoothing(recipe: RecipeSettings, dataset: DatasetSettings) -> Iterator[Misfit]:
    threshold, smoothing = recipe.bce_threshold, recipe.label_smoothing
    if threshold is not None and smoothing / dataset.classes > threshold:
        message = (
            f"bce_threshold {threshold:g}: label_smoothing {smoothing:g} puts every class's target"
            " above it"
        )
        yield Misfit(("train",), message, "Set train: {label_smoothing: 0.0}")


def _patches(head: HeadSettings, entry: Entry) -> Iterator[Misfit]:
    shared = head.shared
    if shared.mega is not None and shared.labels:
        # The classifier is trained and scored on whole patches.
        message = f"{entry.name}: mega-patches only work in pre-training"
        yield Misfit(entry.path, message, "Set labels: false")
    if head.params.get("pooling") == "overlapping" and (shared.mega or shared.shuffle):
        message = f"{entry.name}: pooling: overlapping cannot be combined with mega or shuffle"
        yield Misfit(entry.path, message)


def _without_labels(head: HeadSettings, recipe: RecipeSettings, entry: Entry) -> Iterator[Misfit]:
    if head.shared.weight == 0:
        yield Misfit(entry.path, f"{entry.name} without labels and with weight 0 trains nothing")
    for mix, strength in (("mixup", recipe.mixup), ("cutmix", recipe.cutmix)):
        if strength:
            message = f"the recipe's {mix} mixes labels, but {entry.name} trains without any"
            yield Misfit(entry.path, message, f"Set train: {{{mix}: 0.0}}, or another recipe")
