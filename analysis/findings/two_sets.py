"""Cells on two evaluation sets: whether a model scores on one what the other lets expect.

The thesis (Touvron 2022) plots ImageNet's val part against ImageNetV2 over models. A model far
below the line fits the first set more than others do (section 4.3, figure 6.7).
"""

from collections.abc import Sequence
from statistics import fmean, stdev

from ...db.ledger import Ledger
from ...jobs.documents import Document
from ...jobs.errors import NothingMatched
from ...jobs.run.selector import Selection
from ...jobs.run.spec import Axes
from ...jobs.values import changed
from ..stats.line import Line, line_through
from .cell import Cell
from .cells import report
from .published_pairs import PublishedPair, published_pairs

SCHEMA_VERSION = 1


class CellOnTwoSets(Document, frozen=True, kw_only=True):
    """A cell's means on two sets, over the seeds that have both."""

    cell_id: str
    backbone: str
    dataset: str
    head: str
    recipe: str
    stage: str
    axes: Axes
    n: int
    """Seeds with a value on both sets."""
    x: float
    """Mean on the first set."""
    y: float
    """Mean on the second set."""
    x_std: float | None
    """Sample standard deviation over seeds (ddof 1)."""
    y_std: float | None
    """That of the second set."""
    residual: float | None
    """`y` minus what the line says at `x`; None without a line."""
    residual_std: float | None
    """Its sample standard deviation over seeds, the line held fixed."""


class TwoSets(Document, frozen=True, kw_only=True):
    """The cells of one dataset on two evaluation sets."""

    schema_version: int
    dataset: str
    metric: str
    x_set: str
    """The evaluation set that predicts."""
    y_set: str
    """The evaluation set that is predicted."""
    cells: list[CellOnTwoSets]
    """Those with a seed that has both."""
    line: Line | None
    """Through the cells' means and the published models; None of fewer than three points, and where
    all are alike on the first set.
    """
    without: int
    """Selected cells of the dataset without a seed that has both."""
    published: tuple[PublishedPair, ...] = ()
    """Models that a paper prints on both sets, where it was asked for."""


def two_sets(
    ledger: Ledger,
    selection: Selection,
    *,
    metric: str,
    x_set: str,
    y_set: str,
    published: str | None = None,
) -> list[TwoSets]:
    """Return what the selected cells score on two sets, for each dataset that has both.

    Args:
        ledger: where the results are.
        selection: of runs.
        metric: of both scores, at the last epoch.
        x_set: the set that predicts.
        y_set: the set that is predicted.
        published: a paper, or one of its tables, whose models are put beside the cells.

    Raises:
        BadInput: there is no such paper.
        NothingMatched: no run is selected, or the paper prints no model on both sets.
    """
    first, second = (
        report(ledger, selection, metric=metric, set_name=name) for name in (x_set, y_set)
    )
    return of_cells(first, second, x_set=x_set, y_set=y_set, published=published)


def of_cells(
    first: Sequence[Cell],
    second: Sequence[Cell],
    *,
    x_set: str,
    y_set: str,
    published: str | None = None,
) -> list[TwoSets]:
    """Return the same of cells that were read on both sets; see `two_sets`."""
    others = {cell.cell_id: cell for cell in second}
    by_dataset: dict[str, list[Cell]] = {}
    for cell in first:
        by_dataset.setdefault(cell.dataset, []).append(cell)
    every = [_of_dataset(cells, others, x_set, y_set, published) for cells in by_dataset.values()]
    found = [one for one in every if one.cells]
    if published is not None and found and not any(one.published for one in found):
        where = ", ".join(one.dataset for one in found)
        raise NothingMatched(
            f"{published} prints no model with {found[0].metric} on both {x_set} and {y_set} of"
            f" {where}"
        )
    return found


def _of_dataset(
    cells: list[Cell], others: dict[str, Cell], x_set: str, y_set: str, published: str | None
) -> TwoSets:
    pairs = [(cell, _both(cell, others[cell.cell_id])) for cell in cells]
    kept = [(cell, both) for cell, both in pairs if both]
    theirs: Sequence[PublishedPair] = ()
    if published is not None and kept:
        first = cells[0]
        theirs = published_pairs(
            published, dataset=first.dataset, metric=first.metric, x_set=x_set, y_set=y_set
        )
    line = line_through(
        [*(fmean(x for x, _ in both) for _, both in kept), *(one.x for one in theirs)],
        [*(fmean(y for _, y in both) for _, both in kept), *(one.y for one in theirs)],
    )
    return TwoSets(
        schema_version=SCHEMA_VERSION,
        dataset=cells[0].dataset,
        metric=cells[0].metric,
        x_set=x_set,
        y_set=y_set,
        cells=[_on_two_sets(cell, both, line) for cell, both in kept],
        line=line,
        without=len(cells) - len(kept),
        published=tuple(
            changed(one, residual=None if line is None else one.y - line.at(one.x))
            for one in theirs
        ),
    )


def _both(cell: Cell, other: Cell) -> list[tuple[float, float]]:
    return [(x, other.values[seed]) for seed, x in cell.values.items() if seed in other.values]


def _on_two_sets(cell: Cell, both: list[tuple[float, float]], line: Line | None) -> CellOnTwoSets:
    x, y = [pair[0] for pair in both], [pair[1] for pair in both]
    left = [] if line is None else [two - line.at(one) for one, two in both]
    return CellOnTwoSets(
        cell_id=cell.cell_id,
        backbone=cell.backbone,
        dataset=cell.dataset,
        head=cell.head,
        recipe=cell.recipe,
        stage=cell.stage,
        axes=cell.axes,
        n=len(both),
        x=fmean(x),
        y=fmean(y),
        x_std=_std(x),
        y_std=_std(y),
        residual=fmean(left) if left else None,
        residual_std=_std(left),
    )


def _std(values: list[float]) -> float | None:
    return stdev(values) if len(values) > 1 else None
