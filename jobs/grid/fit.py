"""Whether a backbone, a head, a recipe and a dataset can be trained together."""

import json
from collections.abc import Iterator
from typing import NamedTuple

from ..run.settings import (
    BackboneSettings,
    CellSettings,
    DatasetSettings,
    GrafitParameters,
    HeadSettings,
    RecipeSettings,
)
from ..run.spec import BASELINE
from ..strict_yaml import Path_
from . import catalogue
from .entries import Entry
from .own_source import source_in


class Misfit(NamedTuple):
    """One reason why the parts cannot be trained together."""

    path: Path_
    """Where in the grid's file the mistake most likely is."""
    message: str
    fix: str = ""


def misfits(cell: CellSettings, entry: Entry) -> Iterator[Misfit]:
    """Yield every reason why the parts of a cell cannot be trained together.

    Args:
        cell: its parts.
        entry: the head as the grid has it.
    """
    head, recipe, dataset = cell.head, cell.recipe, cell.dataset
    if not dataset.has_classes:
        yield from _without_classes(head, recipe, dataset, entry)
    yield from _decoded(recipe, dataset)
    if cell.backbone.source is not None:
        yield from _own_backbone(cell.backbone, cell.backbone.source, recipe, dataset)
    yield from _crop(recipe, dataset)
    yield from _smoothing(recipe, dataset)
    yield from _patches(head, entry)
    yield from _features(head, recipe, entry)
    if head.grafit is not None:
        yield from _grafit(head.grafit, recipe, entry)
    if not head.shared.labels:
        yield from _without_labels(head, recipe, entry)


# Fields of a recipe that mean nothing where an image has no class, and what they must be.
_OF_CLASSES: dict[str, tuple[object, ...]] = {
    "pipeline": ("pil",),
    "crop_padding": (0,),
    "auto_augment": (None,),
    "transform": (None,),
    "erasing": (0.0,),
    "mixup": (0.0,),
    "cutmix": (0.0,),
    "label_smoothing": (0.0,),
    "loss": ("cross_entropy",),
    "trainable": ("all",),
    "frozen": ((),),
    "init_only": ((),),
    "layer_decay": (None,),
    "repeats": (1,),
    "compile": (False,),
    "classifier": ("linear",),
    "eval_crop_pct": (1.0,),
}
_OF_MASKS: dict[str, tuple[object, ...]] = {**_OF_CLASSES, "crop": ("none", "simple")}
_OF_OBJECTS: dict[str, tuple[object, ...]] = {
    **_OF_CLASSES,
    "crop": ("none",),
    "color_jitter": (0.0,),
}


def _without_classes(
    head: HeadSettings, recipe: RecipeSettings, dataset: DatasetSettings, entry: Entry
) -> Iterator[Misfit]:
    """Yield what does not go with a dataset whose images have masks or objects."""
    what, usual = ("objects", "mask-rcnn") if dataset.has_objects else ("masks", "upernet")
    if head.is_own or head.name != BASELINE:
        message = f"{entry.name} learns beside a classifier, and this dataset has {what}"
        fix = f"Put {entry.name} into an earlier stage, and heads: [{BASELINE}] into this one"
        yield Misfit(entry.path, message, fix)
    wrong = {
        name: allowed[0]
        for name, allowed in (_OF_OBJECTS if dataset.has_objects else _OF_MASKS).items()
        if getattr(recipe, name) not in allowed
    }
    if wrong:
        fields = ", ".join(f"{name}: {json.dumps(value)}" for name, value in wrong.items())
        message = f"{', '.join(wrong)}: not for a dataset with {what} as the recipe has it"
        yield Misfit(("train",), message, f"Set train: {{{fields}}}, or recipe: {usual}")


def _decoded(recipe: RecipeSettings, dataset: DatasetSettings) -> Iterator[Misfit]:
    """Yield the fields for masks or objects that a dataset without such cannot use."""
    for name in ("rescale", "decoder_width"):
        if dataset.has_classes and getattr(recipe, name) is not None:
            message = f"{name} is for datasets with masks or objects"
            yield Misfit(("train", name), message, f"Set train: {{{name}: null}}")
    if not dataset.has_objects and recipe.longest_side is not None:
        message = "longest_side is for datasets with objects"
        yield Misfit(("train", "longest_side"), message, "Set train: {longest_side: null}")


def _own_backbone(
    backbone: BackboneSettings, text: str, recipe: RecipeSettings, dataset: DatasetSettings
) -> Iterator[Misfit]:
    """Yield what the recipe or the data ask of a lab's own backbone that it does not take."""
    source = source_in(text, backbone.model)
    asked = {"drop_rate": recipe.dropout, "drop_path_rate": recipe.drop_path}
    for argument, key in (("drop_rate", "dropout"), ("drop_path_rate", "drop_path")):
        if asked[argument] and not source.takes(argument):
            message = f"backbone {backbone.model} takes no {argument}, but {key} is set"
            fix = f"Add the argument {argument}, or set train: {{{key}: null}}"
            yield Misfit(("train", key), f"{message} to {asked[argument]:g}", fix)
    if dataset.channels != 3 and not source.takes("in_chans"):
        message = f"backbone {backbone.model} takes no in_chans, but {dataset.name} has"
        fix = "Add the argument in_chans"
        yield Misfit(("backbones",), f"{message} {dataset.channels} channels", fix)


def _crop(recipe: RecipeSettings, dataset: DatasetSettings) -> Iterator[Misfit]:
    one_size = catalogue.datasets().get(dataset.name, {}).get("one_size", False)
    if recipe.has_workers and dataset.channels not in (1, 3):
        message = (
            f"pipeline: {recipe.pipeline} cannot show the {dataset.channels} channels of"
            f" {dataset.name}"
        )
        yield Misfit(("train",), message, "Set train: {pipeline: tensor}")
    changes_colours = recipe.auto_augment or recipe.color_jitter
    if not recipe.has_workers and changes_colours and dataset.channels not in (1, 3):
        message = (
            f"auto_augment and color_jitter know images of 1 or 3 channels; {dataset.name} has"
        )
        fix = "Set train: {auto_augment: null, color_jitter: 0}"
        yield Misfit(("train",), f"{message} {dataset.channels}", fix)
    if recipe.crop == "resized" and not recipe.has_workers and not one_size:
        where = f"images of different sizes ({dataset.name})"
        message = f"crop: resized on {where} needs `pipeline: pil` or `hybrid`"
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


def _features(head: HeadSettings, recipe: RecipeSettings, entry: Entry) -> Iterator[Misfit]:
    learns_tokens = head.is_own or head.name not in (BASELINE, "distill")
    if recipe.trainable == "classifier" and learns_tokens:
        message = (
            f"trainable: classifier leaves the features as they are: {entry.name} has no effect"
        )
        yield Misfit(
            entry.path, message, f"Use heads: [{BASELINE}], or set train: {{trainable: all}}"
        )


def _grafit(params: GrafitParameters, recipe: RecipeSettings, entry: Entry) -> Iterator[Misfit]:
    if recipe.repeats > 1:
        message = f"{entry.name} makes its own views of each image; the recipe repeats them too"
        yield Misfit(entry.path, message, "Set train: {repeats: 1}")
    if params.labels and (recipe.mixup or recipe.cutmix):
        message = f"the recipe mixes images; {entry.name} has to know which image it sees"
        yield Misfit(entry.path, message, "Set train: {mixup: 0.0, cutmix: 0.0}")


def _without_labels(head: HeadSettings, recipe: RecipeSettings, entry: Entry) -> Iterator[Misfit]:
    if head.shared.weight == 0:
        yield Misfit(entry.path, f"{entry.name} without labels and with weight 0 trains nothing")
    for mix, strength in (("mixup", recipe.mixup), ("cutmix", recipe.cutmix)):
        if strength:
            message = f"the recipe's {mix} mixes labels, but {entry.name} trains without any"
            yield Misfit(entry.path, message, f"Set train: {{{mix}: 0.0}}, or another recipe")
    if recipe.classifier != "linear":
        message = f"`classifier: {recipe.classifier}` is for labels, and {entry.name} trains"
        fix = "Set train: {classifier: linear}, or labels: true"
        yield Misfit(entry.path, f"{message} without any", fix)
    if recipe.own_loss is not None:
        message = f"the lab's own loss is of labels, and {entry.name} trains without any"
        yield Misfit(entry.path, message, "Set train: {loss: cross_entropy}, or labels: true")
