"""On how many images classifiers decide differently: between methods, between seeds, between runs.

After the thesis (Touvron 2022), table 3.4. Two classifiers may be equally accurate and yet choose
other classes; how right they are is no part of this.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from ...jobs.documents import Document
from ...jobs.run.spec import Axes
from ...jobs.values import Value, changed
from ...jobs.workspace.paths import Workspace
from . import per_image
from .cell import Cell

SCHEMA_VERSION = 1
OTHER_IMAGES = "each seed holds out different images"


class _OfCell(Document, frozen=True, kw_only=True):
    """What names a cell."""

    cell_id: str
    backbone: str
    dataset: str
    head: str
    recipe: str
    stage: str
    axes: Axes


class Classifier(_OfCell, frozen=True, kw_only=True):
    """A row of the table: a cell with its seeds, or one run."""

    seeds: list[int]
    """Whose predictions count."""
    run_ids: list[str]
    """Of these seeds."""
    error: float
    """Images on which it is wrong, mean over the seeds, in percent."""


class Disagreement(Document, frozen=True, kw_only=True):
    """Which share of the same images classifiers decide differently."""

    schema_version: int
    set: str
    images: int
    """Of the set."""
    classifiers: list[Classifier]
    """In the order of the table's rows and columns."""
    rates: list[list[float | None]]
    """Images on which two classifiers choose different classes, in percent: the mean over the pairs
    of their runs that have different seeds. So two cells can be held against a cell with itself;
    runs of one seed begin alike, and differ less. None without such a pair; a run with itself: 0.
    """
    same_seed: list[list[float | None]]
    """The same over the pairs of runs with equal seeds; None without such a pair."""


class Without(_OfCell, frozen=True, kw_only=True):
    """A cell that is in no table."""

    why: str
    """What it lacks."""


class Disagreements(Document, frozen=True, kw_only=True):
    """All tables of a selection."""

    tables: list[Disagreement]
    """One for each set of images."""
    without: list[Without]
    """Cells that are part of none."""


class _Row(Value, frozen=True, kw_only=True):
    """A classifier with what its runs say of each image."""

    classifier: Classifier
    images: tuple[Any, ...]
    """Equal where the images are the same ones."""
    chosen: list[Any]
    """[J] whole numbers of each run."""


def disagreements(
    workspace: Workspace, cells: Sequence[Cell], *, by_run: bool = False
) -> Disagreements:
    """Return how often the cells of a report (with its `run_ids`) decide differently.

    Args:
        workspace: where the runs lie.
        cells: of any datasets; those that were scored on the same images share a table.
        by_run: a row for each run instead of each cell.
    """
    rows: list[_Row] = []
    without = []
    for cell in cells:
        own = _runs_of(workspace, cell)
        if not own:
            without.append(_left_out(cell, "no completed run has stored predictions"))
        elif by_run:
            rows += own
        elif len({row.images for row in own}) > 1:
            without.append(_left_out(cell, OTHER_IMAGES))
        else:
            rows.append(_merged(own))
    by_images: dict[tuple[Any, ...], list[_Row]] = {}
    for row in rows:
        by_images.setdefault(row.images, []).append(row)
    tables = [_table(cells[0].set, group, by_run) for group in by_images.values()]
    return Disagreements(tables=tables, without=without)


def rate(one: Any, other: Any) -> float:
    """Return the share of images for which two classifiers choose different classes, in percent.

    Args:
        one: [J] classes that the first chose.
        other: the same of the second.
    """
    return 100 * float((one != other).mean())


def _table(set_name: str, rows: Sequence[_Row], by_run: bool) -> Disagreement:
    places = [[_rates(one, other) for other in rows] for one in rows]
    apart = [[_mean(found.apart) for found in line] for line in places]
    alike = [[_mean(found.alike) for found in line] for line in places]
    if by_run:
        # A run has one seed: whichever pairs there are.
        apart = [
            [one if one is not None else other for one, other in zip(*lines, strict=True)]
            for lines in zip(apart, alike, strict=True)
        ]
    return Disagreement(
        schema_version=SCHEMA_VERSION,
        set=set_name,
        images=len(rows[0].chosen[0]),
        classifiers=[row.classifier for row in rows],
        rates=apart,
        same_seed=alike,
    )


class _Rates(NamedTuple):
    """Rates of disagreement over pairs of runs."""

    apart: list[float]
    """Of different seeds."""
    alike: list[float]
    """Of equal seeds."""


def _rates(one: _Row, other: _Row) -> _Rates:
    found = _Rates([], [])
    ours = zip(one.classifier.seeds, one.chosen, strict=True)
    theirs = zip(other.classifier.seeds, other.chosen, strict=True)
    for (seed, chosen), (their_seed, their_chosen) in itertools.product(ours, theirs):
        to = found.alike if seed == their_seed else found.apart
        to.append(rate(chosen, their_chosen))
    return found


def _runs_of(workspace: Workspace, cell: Cell) -> list[_Row]:
    assert cell.run_ids is not None, "the report was made without specs"
    found = []
    for seed, run_id in cell.run_ids.items():
        chosen = per_image.read_chosen(workspace, run_id, cell.set)
        right = per_image.read(workspace, run_id, cell.set)
        if chosen is None or right is None:
            continue
        classifier = Classifier(
            **_names(cell),
            seeds=[seed],
            run_ids=[run_id],
            error=100 * float(1 - right.mean()),
        )
        images = per_image.images_of(workspace, run_id, cell.set)
        found.append(_Row(classifier=classifier, images=images, chosen=[chosen]))
    return found


def _merged(rows: Sequence[_Row]) -> _Row:
    """Return a cell's runs as one row."""
    own = [row.classifier for row in rows]
    merged = changed(
        own[0],
        seeds=[seed for one in own for seed in one.seeds],
        run_ids=[run_id for one in own for run_id in one.run_ids],
        error=math.fsum(one.error for one in own) / len(own),
    )
    chosen = [classes for row in rows for classes in row.chosen]
    return _Row(classifier=merged, images=rows[0].images, chosen=chosen)


def _left_out(cell: Cell, why: str) -> Without:
    return Without(**_names(cell), why=why)


def _names(cell: Cell) -> dict[str, Any]:
    return {name: getattr(cell, name) for name in _OfCell.__struct_fields__}


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None
