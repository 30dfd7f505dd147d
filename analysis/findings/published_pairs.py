"""Models of a paper that it prints on two evaluation sets, beside the cells of a ledger. Pure."""

import json

from ...jobs.documents import Document
from .matching import DATASETS, SETS
from .published import Published, select


class PublishedPair(Document, frozen=True, kw_only=True):
    """A model that a paper prints on both sets."""

    table: str
    """The first of the paper's tables that has it."""
    backbone: str
    """As the records call it."""
    method: str
    """Such as supervised or distilled."""
    x: float
    """On the first set."""
    y: float
    """On the second set."""
    residual: float | None = None
    """`y` minus what the line says at `x`; null without a line."""


def published_pairs(
    name: str, *, dataset: str, metric: str, x_set: str, y_set: str
) -> list[PublishedPair]:
    """Return the models that a paper prints on two sets of a dataset, each once.

    Args:
        name: of a paper (`thesis`) or of one of its tables (`thesis:4.3`).
        dataset: that the models were trained on.
        metric: of both numbers.
        x_set: the first set, `test` or another one.
        y_set: the second set.

    None where the paper prints no model on both sets.

    Raises:
        BadInput: there is no such paper.
        NothingMatched: it has no such table.
    """
    first, second = (
        {_model(one): one for one in select(name) if _is_on(one, dataset, metric, set_name)}
        for set_name in (x_set, y_set)
    )
    found: dict[tuple[str, str, float, float], PublishedPair] = {}
    for model in first.keys() & second.keys():
        one, other = first[model], second[model]
        key = (one.backbone, one.method, one.mean, other.mean)
        pair = PublishedPair(
            table=one.table, backbone=one.backbone, method=one.method, x=one.mean, y=other.mean
        )
        # Tables repeat each other's rows.
        if key not in found or pair.table < found[key].table:
            found[key] = pair
    return sorted(found.values(), key=lambda one: (one.x, one.y, one.backbone, one.method))


def _is_on(record: Published, dataset: str, metric: str, set_name: str) -> bool:
    own = DATASETS.get(record.dataset, record.dataset)
    where = SETS.get(record.dataset, (own, "test"))
    return where == (dataset, set_name) and record.metric == metric and not record.doubtful


def _model(record: Published) -> tuple[str, ...]:
    """Return what two numbers of one model have in common."""
    trained = (record.protocol, record.recipe, record.epochs, record.pretrain, record.variant)
    return (
        record.table,
        record.backbone,
        record.method,
        json.dumps(trained, sort_keys=True),
    )
