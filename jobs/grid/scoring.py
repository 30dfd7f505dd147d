"""Which scores a run gets while it trains, and which `vtjobs evaluate` can give it afterwards."""

import re

from ..run.metrics import NEIGHBOURS, OF_TASK
from ..run.settings import CellSettings, DatasetSettings
from . import catalogue

# Of a comparison by the classes of another dataset: `test@cifar100`.
_OTHERWISE = "@"
# Of masks at several sizes: `test@scales0.5-1`.
_SCALES = "scales"
# Of an option what a set's name has of it: `test@288px-crop0.9`, `test@class-token`.
_OPTIONS = {
    "--image-size": r"(\d+)px",
    "--crop-pct": r"crop([\d.]+)",
    "--token": r"(\w+)-token",
}


def can_be_scored(
    settings: CellSettings, metric: str, set_name: str, *, is_own: bool = False
) -> bool:
    """Return whether `vtjobs evaluate` can give completed runs a score that training did not.

    Args:
        settings: of the runs' cell.
        metric: of the score.
        set_name: that it is of: `v2`, `test@cifar100`, `test@288px-crop1`.
        is_own: whether the metric is a lab's own.
    """
    base, _, how = set_name.partition(_OTHERWISE)
    dataset, head = settings.dataset, settings.head
    if base not in catalogue.sets_of(dataset) and not has_further_sets(dataset):
        return False
    if dataset.has_objects:
        return not how and metric in OF_TASK[dataset.task] and set_name != "test"
    if dataset.has_masks:
        is_usual = not how or how.startswith(_SCALES)
        return is_usual and metric in OF_TASK[dataset.task] and set_name != "test"
    if NEIGHBOURS.fullmatch(metric):
        return _by_neighbours(settings, metric, base, how)
    if not head.shared.labels or how in catalogue.datasets():
        return False
    # A classifier is scored on its test images by vtjobs' metrics in training.
    return is_own or (metric in OF_TASK[dataset.task] and set_name != "test")


def evaluation(metric: str, set_name: str) -> str:
    """Return the command's name and options that give such a score."""
    base, _, how = set_name.partition(_OTHERWISE)
    words = ["evaluate"]
    if NEIGHBOURS.fullmatch(metric):
        words += ["--knn", metric.removeprefix("knn") if metric.startswith("knn") else "20"]
    if base != "test":
        words += ["--sets", base]
    if how in catalogue.datasets():
        return " ".join([*words, "--labels", how])
    if how.startswith(_SCALES):
        words += ["--scales", how.removeprefix(_SCALES).replace("-", ",")]
    for option, pattern in _OPTIONS.items():
        if found := re.search(pattern, how):
            words += [option, found[1]]
    return " ".join(words)


def chance_level(classes: int, metric: str) -> float | None:
    """Return what guessing scores, in percent; None of a metric that has no such level."""
    hits = {"top1": 1, "top5": 5}.get(metric.removeprefix("ema_"))
    return min(100.0, 100.0 * hits / classes) if hits else None


def has_further_sets(dataset: DatasetSettings) -> bool:
    """Whether nobody but the scoring sees which sets there are."""
    return dataset.name == "folder" or dataset.is_own


def _by_neighbours(settings: CellSettings, metric: str, base: str, how: str) -> bool:
    dataset, head = settings.dataset, settings.head
    facts = catalogue.datasets().get(dataset.name, {}).get("sets", {}).get(base, {})
    # With several right classes an image has no neighbours of its class.
    if base == "train" or "over" in facts:
        return False
    other_classes = how in catalogue.datasets()
    if other_classes and how not in catalogue.same_images(dataset.name):
        return False
    if metric == "map_oracle":
        return other_classes
    if metric == "map_conditioned":
        return head.shared.labels or (head.grafit is not None and "knn" in head.grafit.losses)
    return metric == "map" or 1 <= int(metric.removeprefix("knn")) <= dataset.trained_on
