"""How a paper's numbers by nearest neighbours were made: those of Grafit (thesis, chapter 2)."""

from typing import Any, NamedTuple

from ...jobs.run.settings import GrafitParameters
from ...jobs.run.spec import BASELINE
from .published import Published

RECIPE = "grafit"
# Of what was trained with it and then fine-tuned on another dataset.
TRANSFER = "grafit_transfer"
# The thesis chooses k for each number, among 10, 15, 20, 25 and 30 (section 2.4.3).
NEIGHBOURS = 20
_METRICS = ("knn_top1", "map")
_FINEST = ("fine", "species")
# Mean average precision with the coarse class known: by the model, by an oracle, or not at all.
_MAPS: dict[Any, str] = {True: "map_conditioned", "oracle": "map_oracle", False: "map"}
_PROJECTORS = {"mlp": "mlp", "linear": "fc", "none": "none"}
_METHODS = {
    "snca_plus": ("knn", "mlp"),
    "grafit": ("knn+inst", "mlp"),
    "grafit_fc": ("knn+inst", "fc"),
}
ABLATION = "grafit_ablation"


class Trained(NamedTuple):
    """What a record is of, by vtjobs' names."""

    dataset: str
    """The classes that were trained."""
    set: str
    """The set that it was scored on, with the classes that count."""
    metric: str


def is_by_neighbours(record: Published) -> bool:
    """Return whether a record is a score by nearest neighbours, of a model that was trained."""
    return (
        record.recipe == RECIPE
        and record.metric in _METRICS
        and not record.cited
        and record.variant.get("train_level") != "none"
    )


def trained(record: Published, dataset: str) -> Trained:
    """Return what such a record is of.

    Args:
        record: one that `is_by_neighbours`.
        dataset: vtjobs' name of its dataset with the finest classes.
    """
    variant = record.variant
    begun = variant.get("train_level", variant.get("train_labels", "coarse"))
    judged = variant.get("test_level", variant.get("test_labels", "fine"))
    names = [dataset if level in _FINEST else f"{dataset}_{level}" for level in (begun, judged)]
    chosen = "test" if names[0] == names[1] else f"test@{names[1]}"
    if record.metric == "map":
        return Trained(names[0], chosen, _MAPS[_conditioned(record)])
    return Trained(names[0], chosen, f"knn{NEIGHBOURS}")


def _conditioned(record: Published) -> Any:
    """Return how the coarse class counted.

    Of Grafit it does in table 2.4, as a comparison with table 2.7 shows, and not in the study of λ
    (table 2.11). Of tables 2.6 and 2.14 the text does not say: they are taken to be like 2.4.
    """
    usual = record.method in ("grafit", "grafit_fc") and "lambda_inst" not in record.variant
    return record.variant.get("coarse_cond", usual)


def method_of_record(record: Published) -> str:
    """Return what `method_of_head` calls the record's method."""
    if record.method == "baseline":
        return BASELINE
    if record.method == ABLATION:
        losses, projector = record.variant["loss"], record.variant["projector"]
        return BASELINE if losses == "ce" else _name(losses, projector)
    return _name(*_METHODS[record.method]) if record.method in _METHODS else record.method


def method_of_head(params: GrafitParameters) -> str:
    """Return the name of what a head of Grafit's trains, such as `knn+inst, mlp`."""
    losses = ["ce"] if params.labels else []
    losses += [{"knn": "knn", "instance": "inst"}[loss] for loss in params.losses]
    return _name("+".join(losses), _PROJECTORS[params.projector])


def _name(losses: str, projector: str) -> str:
    return f"{losses}, {projector}"
