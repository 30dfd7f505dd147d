"""Our cells beside a paper's printed numbers: what may be compared, and what the difference says.

A printed mean with a deviation over runs is compared by Welch's test, at the worst over its
rounding and over ddof 0; a single printed number is one more draw (Crawford and Howell 1998).
Numbers of other epochs, recipes or settings are not compared.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...jobs.documents import Document
from ...jobs.grid import fidelity
from ...jobs.units import plural
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
from .matching import LOWRES, RECIPES, Ours, is_recorded, of_cell
from .more_seeds import what_helps
from .published import SELECTION, Published, deviations, largest, select

SCHEMA_VERSION = 1


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


def against(
    name: str, cells: Sequence[Cell], *, alpha: float = ALPHA, margin: float | None = None
) -> Against:
    """Put each printed accuracy of a paper's table beside ours.

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
    ours = [of_cell(cell, rule) for cell in cells]
    pairs: list[_Pair] = []
    for record in select(name):
        if record.metric == "top1":
            found: list[Ours | None] = [one for one in ours if is_recorded(one, record, paper)]
            pairs += [_pair(record, one, alpha) for one in found or [None]]
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


@dataclass(frozen=True, slots=True)
class _Pair:
    """A printed number, the cell that it is compared with, and what came of it."""

    record: Published
    one: Ours | None
    found: Difference
    comparable: bool


def _pair(record: Published, one: Ours | None, alpha: float) -> _Pair:
    why = _why_not(record, one)
    if one is None or why:
        return _Pair(record, one, Difference(n=0, n_baseline=0, why_not=why), comparable=False)
    found = _test(one, record.mean, record.std, record.n_seeds, alpha)
    return _Pair(record, one, found, comparable=True)


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
        cell_id=one.cell.cell_id if one else None,
        ours=one.mean if one else None,
        ours_std=one.std if one else None,
        ours_n=one.cell.n if one else 0,
        ours_planned=one.cell.planned if one else 0,
        ours_last=one.cell.mean if one else None,
        ours_last_std=one.cell.std if one else None,
        fidelity=one.cell.fidelity if one else {},
        comparable=pair.comparable,
        difference=found.difference,
        interval=[found.interval.low, found.interval.high] if found.interval else None,
        p=found.p,
        p_worst=worst,
        p_adjusted=adjusted,
        word=word,
        detail=detail,
    )


def _why_not(record: Published, one: Ours | None) -> str:
    """Return why a cell says nothing of a record, or nothing."""
    if one is None or not one.cell.n:
        return "our cell has no finished run" if one is not None else "no matching cell among ours"
    reasons = []
    lowres = record.protocol == LOWRES
    recipe = "deit3-finetune" if lowres else RECIPES.get(record.recipe or "")
    epochs = (one.first_recipe if lowres else one.recipe).epochs
    if recipe is None:
        reasons.append(f"recipe {record.recipe or 'unknown'} is not in vtjobs' catalogue")
    elif one.cell.recipe != recipe:
        reasons.append(f"our recipe is {one.cell.recipe}, the paper's is {recipe}")
    if record.epochs is not None and epochs != record.epochs:
        reasons.append(f"{epochs} epochs, the paper's {record.epochs}")
    changed = [
        setting.name
        for setting in fidelity.of_recipe(one.recipe, one.cell.recipe, one.dataset)
        if setting.source == fidelity.CHANGED and setting.name not in _NO_DIFFERENCE
    ]
    if lost := len(one.cell.diverged_seeds):
        # Without them the mean would be that of the runs that went well.
        reasons.append(f"{plural(lost, 'diverged run')} without a score")
    if one.rule == "best" and one.cell.evaluations not in ([], [epochs]):
        # The best of few epochs is lower than the best of many by chance alone.
        few = " or ".join(map(str, one.cell.evaluations or ()))
        reasons.append(f"our best is of {few} of {epochs} epochs: set evaluate_every: 1")
    # What an ablation changes is what its record says.
    reasons += [
        f"{name if '.' in name else f'train.{name}'} was changed"
        for name in changed
        if "change" not in record.variant
    ]
    return "; ".join(reasons)


# Epochs are told apart; the others decide how a step is computed, not what it is meant to be.
_NO_DIFFERENCE = (
    "epochs",
    "virtual_ranks",
    "precision",
    "tf32",
    "channels_last",
    "compile",
    "deterministic",
    "pipeline",
)


def _test(one: Ours, mean: float, std: float | None, n: int | None, alpha: float) -> Difference:
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


def _worst(record: Published, one: Ours, alpha: float) -> float | None:
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
