"""Our cells beside a paper's printed numbers: what may be compared, and what the difference says.

A printed mean with a deviation over runs is compared by Welch's test, at the worst over its
rounding and over ddof 0; a single printed number is one more draw (Crawford and Howell 1998).
A cell is compared where its settings are those of the table's ready grid; else they are named.
"""

import math
from collections.abc import Sequence
from enum import StrEnum
from statistics import fmean, stdev
from typing import Any

from ...jobs.documents import Document
from ...jobs.errors import NothingMatched
from ...jobs.units import plural
from ...jobs.values import Value
from ..stats.difference import (
    ALPHA,
    Difference,
    against_one,
    equivalence,
    holm,
    welch_of_summaries,
)
from ..stats.tie import Fixed
from .cell import Cell
from .matching import Made, Reading, is_recorded, reading_of
from .more_seeds import what_helps
from .published import SELECTION, Published, deviations, largest, select
from .ready_grids import Reference, differences, presets_of, references, why_none

SCHEMA_VERSION = 2


class Standing(StrEnum):
    """How far a printed number is from a comparison with ours."""

    COMPARED = "compared"
    NO_SCORE = "no_score"
    """A cell was made as the paper's run, and has no score that may be compared."""
    MADE_OTHERWISE = "made_otherwise"
    """A cell is alike by its names, and differs in a setting."""
    NOT_RUN = "not_run"
    """A ready grid has the cell, and ours have not."""
    NO_GRID = "no_grid"


class Row(Document, frozen=True, kw_only=True):
    """One printed number beside ours."""

    id: str
    """Of the record."""
    table: str
    """In the paper."""
    dataset: str
    backbone: str
    method: str
    """Such as supervised, drloc or relvit."""
    epochs: int | None
    """Of training, as the paper says."""
    metric: str
    variant: dict[str, Any]
    """What tells the record from others of its kind, such as lambda."""
    printed: float
    """The paper's mean."""
    printed_std: float | None
    """The paper's standard deviation over runs."""
    printed_n: int | None
    """Runs of the paper's."""
    doubtful: str
    """Why a look is needed before the printed number is used, or nothing."""
    cited: bool
    """Whether the paper took the number from another one."""
    grid: str | None
    """The ready grid that runs what is behind the number; null where there is none."""
    cell_id: str | None
    ours: float | None
    """Our mean, scored as the paper scores its own."""
    ours_std: float | None
    """Over our seeds."""
    ours_n: int
    """Our seeds."""
    ours_planned: int
    """Our runs."""
    ours_last: float | None
    """Our mean at the last epoch."""
    ours_last_std: float | None
    """Over our seeds, at the last epoch."""
    fidelity: dict[str, str]
    """Name of a published recipe or head -> whose figures it has."""
    standing: Standing
    """How far the number is from a comparison with ours."""
    comparable: bool
    """Whether our cell was made as the paper's was."""
    difference: float | None
    """Ours minus the paper's."""
    interval: list[float] | None
    """Of the difference, at 1 - alpha."""
    p: float | None
    p_worst: float | None
    """The largest p that the rounding of the printed numbers, and ddof 0, leave open."""
    p_adjusted: float | None
    """For the number of comparable rows (Holm)."""
    word: str
    """The verdict."""
    detail: str
    """What stands behind the verdict."""


class Against(Document, frozen=True, kw_only=True):
    """What `vtjobs against` finds."""

    schema_version: int
    paper: str
    """Paper and table."""
    selection: str
    """best, or last: which epoch the paper scores."""
    alpha: float
    margin: float | None
    rows: list[Row]
    """The printed numbers, in the table's order."""


def readings_of(name: str) -> list[Reading]:
    """Return the evaluation sets and metrics of a table's numbers.

    Raises:
        BadInput: there is no such paper.
        NothingMatched: it has no such table, or the table has no numbers that vtjobs measures.
    """
    records = select(name)
    found = dict.fromkeys(filter(None, map(reading_of, records)))
    if not found:
        metrics = ", ".join(sorted({record.metric for record in records}))
        raise NothingMatched(f"{name} has no scores to compare. It has: {metrics}")
    return list(found)


def against(
    name: str, cells: Sequence[Cell], *, alpha: float = ALPHA, margin: float | None = None
) -> Against:
    """Put each printed score of a paper's table beside ours.

    Args:
        name: `drloc:4`.
        cells: a report's, with their descriptions.
        alpha: of the tests, adjusted for their number (Holm), and of the intervals.
        margin: in points; a difference within ± this counts as none. Without it nothing is ever
            reproduced.

    Raises:
        BadInput: there is no such paper.
        NothingMatched: it has no such table.
    """
    paper = name.partition(":")[0]
    rule = SELECTION.get(paper, "last")
    # Of imported runs nobody knows how they were trained, and a printed number is compared with a
    # run that was trained as its own was.
    ours = [_of_cell(cell, rule) for cell in cells if cell.specs]
    pairs = [
        pair
        for record in select(name)
        if reading_of(record) is not None
        for pair in _pairs(record, ours, paper, alpha)
    ]
    worst = [
        _worst(pair.record, pair.one, alpha)
        for pair in pairs
        if pair.one is not None
        if pair.comparable
    ]
    adjusted = iter(zip(worst, holm(worst), strict=True))
    rows = [
        _row(pair, *next(adjusted), alpha, margin)
        if pair.comparable
        else _row(pair, None, None, alpha, margin)
        for pair in pairs
    ]
    return Against(
        schema_version=SCHEMA_VERSION,
        paper=name,
        selection=rule,
        alpha=alpha,
        margin=margin,
        rows=rows,
    )


class _Ours(Value, frozen=True, kw_only=True):
    """A cell of a report, scored as the paper scores its own."""

    cell: Cell
    made: Made
    mean: float | None
    std: float | None
    rule: str
    """best, or last: which epoch counts."""


class _Pair(Value, frozen=True, kw_only=True):
    """A printed number, the cell that it is compared with, and what came of it."""

    record: Published
    grid: str | None
    one: _Ours | None
    found: Difference
    standing: Standing

    @property
    def comparable(self) -> bool:
        return self.standing is Standing.COMPARED


def _of_cell(cell: Cell, rule: str) -> _Ours:
    """Read a cell of a report that was made with specs.

    Args:
        cell: of the report.
        rule: `best`: it is scored by each run's best epoch on the reported set, as the paper's own
            numbers are, for this table alone; else as in the report.
    """
    assert cell.specs is not None, "the report was made without specs"
    mean, std = cell.mean, cell.std
    if rule == "best" and cell.n:
        values = list((cell.best_values or {}).values())
        mean, std = fmean(values), stdev(values) if len(values) > 1 else None
    made = Made(
        backbone=cell.backbone,
        dataset=cell.dataset,
        recipe=cell.recipe,
        axes=cell.axes,
        stages=cell.specs,
    )
    return _Ours(cell=cell, made=made, mean=mean, std=std, rule=rule)


def _pairs(record: Published, ours: Sequence[_Ours], paper: str, alpha: float) -> list[_Pair]:
    """Return a record beside each cell that was made as its run was.

    Where there is none, beside each that is alike by its names, with what differs.
    """
    known = references(paper, record)
    grid = known[0].grid if known else None

    def pair(one: _Ours | None, standing: Standing, why: str) -> _Pair:
        found = Difference(n=0, n_baseline=0, why_not=why)
        if one is not None and standing is Standing.COMPARED:
            found = _test(one, record.mean, record.std, record.n_seeds, alpha)
        return _Pair(record=record, grid=grid, one=one, found=found, standing=standing)

    if grid is None:
        return [pair(None, Standing.NO_GRID, why_none(record))]
    same, alike = [], []
    by_presets: dict[tuple[str, ...], list[Reference]] = {}
    for one in ours:
        if (one.cell.set, one.cell.metric) != reading_of(record):
            continue
        presets = presets_of(one.made)
        if presets not in by_presets:
            by_presets[presets] = references(paper, record, presets)
        differing = _least_differing(one, by_presets[presets])
        why = _why_no_score(one)
        if differing == []:
            same.append(pair(one, Standing.NO_SCORE if why else Standing.COMPARED, why))
        elif differing is not None and is_recorded(one.made, record, paper):
            told = "; ".join(filter(None, [*differing, why]))
            alike.append(pair(one, Standing.MADE_OTHERWISE, told))
    none = pair(None, Standing.NOT_RUN, f"no matching cell among ours; {grid} runs it")
    return same or alike or [none]


def _least_differing(one: _Ours, known: Sequence[Reference]) -> list[str] | None:
    """Return how a cell differs from the ready grid's cell that is most like it."""
    dataset = one.made.stages[0].dataset.name
    found = [
        differences(one.made, theirs)
        for theirs in known
        if theirs.made.stages[0].dataset.name == dataset
    ]
    return min(found, key=len, default=None)


def _why_no_score(one: _Ours) -> str:
    """Return why the score of a cell that was made as the record's says nothing, or nothing."""
    if not one.cell.n:
        usual = (one.cell.set, one.cell.metric) == ("test", "top1")
        score = "a score" if one.cell.metric == "top1" else one.cell.metric
        return "our cell has no finished run" + (
            "" if usual else f" with {score} on {one.cell.set}"
        )
    reasons = []
    if lost := len(one.cell.diverged_seeds):
        # Without them the mean would be that of the runs that went well.
        reasons.append(f"{plural(lost, 'diverged run')} without a score")
    epochs = one.made.stages[0].recipe.epochs
    if one.rule == "best" and one.cell.evaluations not in ([], [epochs]):
        # The best of few epochs is lower than the best of many by chance alone.
        few = " or ".join(map(str, one.cell.evaluations or ()))
        reasons.append(f"our best is of {few} of {epochs} epochs: set evaluate_every: 1")
    return "; ".join(reasons)


def _row(
    pair: _Pair, worst: float | None, adjusted: float | None, alpha: float, margin: float | None
) -> Row:
    record, one, found = pair.record, pair.one, pair.found
    word, detail = "not comparable", found.why_not
    if pair.comparable:
        word, detail = _word(pair, adjusted, alpha, margin)
    return Row(
        id=record.id,
        table=record.table,
        dataset=record.dataset,
        backbone=record.backbone,
        method=record.method,
        epochs=record.epochs,
        metric=record.metric,
        variant=record.variant,
        printed=record.mean,
        printed_std=record.std,
        printed_n=record.n_seeds,
        doubtful=record.doubtful,
        cited=record.cited,
        grid=pair.grid,
        cell_id=one.cell.cell_id if one else None,
        ours=one.mean if one else None,
        ours_std=one.std if one else None,
        ours_n=one.cell.n if one else 0,
        ours_planned=one.cell.planned if one else 0,
        ours_last=one.cell.mean if one else None,
        ours_last_std=one.cell.std if one else None,
        fidelity=one.cell.fidelity if one else {},
        standing=pair.standing,
        comparable=pair.comparable,
        difference=found.difference,
        interval=[found.interval.low, found.interval.high] if found.interval else None,
        p=found.p,
        p_worst=worst,
        p_adjusted=adjusted,
        word=word,
        detail=detail,
    )


def _test(one: _Ours, mean: float, std: float | None, n: int | None, alpha: float) -> Difference:
    assert one.mean is not None
    own, ours = one.std, one.cell.n
    if own is not None and std is not None and (n or 0) > 1 and own + std > 0:
        return welch_of_summaries(one.mean, own, ours, mean, std, n or 0, alpha=alpha)
    if own is not None and std is None:
        return against_one(one.mean, own, ours, mean, alpha=alpha)
    unknown = std is not None and n is None
    too_few = "needs two runs of ours that differ"
    why = "the paper's number of runs is unknown" if unknown else too_few
    return Difference(n=ours, n_baseline=n or 0, difference=one.mean - mean, why_not=why)


def _worst(record: Published, one: _Ours, alpha: float) -> float | None:
    """Return the largest p that rounding of the printed numbers, and a deviation with ddof 0, leave
    open.
    """
    assert one.mean is not None
    gap = one.mean - record.mean
    nearest = one.mean - math.copysign(max(0.0, abs(gap) - record.half_unit), gap)
    return largest(_test(one, nearest, std, record.n_seeds, alpha).p for std in deviations(record))


def _word(pair: _Pair, p: float | None, alpha: float, margin: float | None) -> tuple[str, str]:
    found = pair.found
    if p is None:
        return "inconclusive", found.why_not
    tie = equivalence(found, margin) if margin is not None else None
    equal = tie is not None and tie <= alpha
    if p <= alpha:
        shift = "reproduced with a shift", "significant, but within the margin"
        return shift if equal else ("differs", "")
    if equal:
        return "reproduced", ""
    if margin is None:
        return "inconclusive", "no margin was given"
    assert pair.one is not None and pair.one.std is not None and found.difference is not None
    case = Fixed(
        gap=found.difference,
        n=found.n,
        std=pair.one.std,
        std_printed=pair.record.std,
        n_printed=pair.record.n_seeds or 1,
    )
    return "inconclusive", what_helps(case, margin, alpha=alpha)
