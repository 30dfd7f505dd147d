"""Cells and comparisons as text, with what must be said beside them.

Rounding happens here and only here.
"""

from collections.abc import Sequence

from ...jobs.run.spec import EACH
from ..findings.cell import Cell
from ..findings.comparisons import Comparison, Comparisons
from ..findings.per_image import CellSplit
from ..findings.power import Needs
from ..stats.sample_size import STD_LEVEL
from ..stats.summary import Description
from . import tried
from .layout import Table
from .notes import comparison_notes, interval_notes, notes, report_notes
from .wording import DECIMALS, as_range, columns, count, label_of, labels, p_value, score


def of_cells(cells: Sequence[Cell], *, decimals: int = DECIMALS) -> Table:
    """Return a report as text: `97.10 ± 0.31`, `n=3/5, 1 failed`, gains with their sign."""
    names = columns(cells)
    gains = [f"gain over {cells[0].baseline_head}"] if cells[0].baseline_head != EACH else []
    heading = [*names, cells[0].metric, "n", *gains, _BIAS[cells[0].select]]
    body = [
        [
            *labels(cell, names),
            score(cell.mean, cell.std, decimals) + (" †" if cell.marked.dagger else ""),
            _count(cell),
            *([_gain(cell, decimals)] if gains else []),
            "" if cell.best_minus_last is None else f"{cell.best_minus_last:.{decimals}f}",
        ]
        for cell in cells
    ]
    bold = frozenset((row, len(names)) for row, cell in enumerate(cells) if cell.marked.best)
    said = [*report_notes(cells, decimals), *interval_notes(cells)]
    return Table(heading=heading, body=body, notes=said, labels=len(names), bold=bold)


def _count(cell: Cell) -> str:
    return count(cell.n, cell.planned, cell.states, len(cell.imported_values), cell.values)


def _gain(cell: Cell, decimals: int) -> str:
    if cell.gain is None:
        return ""
    interval = cell.gain_interval
    ends = f"[{interval[0]:+.{decimals}f}, {interval[1]:+.{decimals}f}]" if interval else ""
    return " ".join(filter(None, [f"{cell.gain:+.{decimals}f}", ends]))


# What choosing the best epoch on the reported set would add.
_BIAS = {
    "last": "best − last epoch",
    "ema_last": "best − last epoch",
    "best_val": "best on this set − last epoch",
}


def of_descriptions(cells: Sequence[Cell], *, decimals: int = DECIMALS) -> Table:
    """Return what `report --detail` shows.

    How far mean and spread can be trusted, and the luck of the best seed.
    """
    names = columns(cells)
    level = f"{100 * cells[0].described.level:g}% CI"
    spread = [f"{level} of the mean", f"{level} of the std", "prediction interval", "min … max"]
    heading = [*names, cells[0].metric, "n", *spread, "|best − mean|", "expected by chance"]
    body = [
        [
            *labels(cell, names),
            score(cell.mean, cell.std, decimals),
            _count(cell),
            *_spread_of(cell.described, decimals),
        ]
        for cell in cells
    ]
    said = [
        (
            "Confidence intervals: t for the mean, χ² for the std, assuming roughly normal runs,"
            " from three seeds on. Prediction interval: where one further seed falls, at the same"
            " level."
        ),
        (
            "All of these assume that the number of seeds did not depend on the results. Where it"
            " was counted from the deviation of the first three to five (topup --half-width), the"
            " interval of the mean covers 90 to 93 %."
        ),
        "Expected by chance: how far the best of n normal draws with this std lies from the mean.",
    ]
    said += [text for cell in cells if (text := _outlier_of(cell))]
    constant = [cell for cell in cells if cell.described.constant]
    if constant:
        said.append(
            f"In {len(constant)} cell(s) all seeds score the same. Does the seed change anything?"
        )
    found = [*notes(cells), *tried.of_cells(cells), *said]
    return Table(heading=heading, body=body, notes=found, labels=len(names))


def _spread_of(found: Description, decimals: int) -> list[str]:
    """Return a cell's intervals, its extremes and the luck of its best seed as texts."""
    ranges = [
        as_range(bounds, decimals)
        for bounds in (found.interval, found.std_interval, found.prediction)
    ]
    extremes = "" if found.min is None else f"{found.min:.{decimals}f} … {found.max:.{decimals}f}"
    luck = [
        "" if value is None else f"{value:.{decimals}f}" for value in (found.best_of_n, found.luck)
    ]
    return [*ranges, extremes, *luck]


def _outlier_of(cell: Cell) -> str:
    """Return the sentence about a cell's outlier; empty where it has none."""
    outlier = cell.described.outlier
    if not outlier or not outlier.flagged:
        return ""
    return (
        f"{label_of(cell)}: seed {outlier.seed} is an outlier ({outlier.g:.2f} standard deviations"
        f" from the mean; critical value of Grubbs' test: {outlier.critical:.2f}). It is included"
        " in all numbers."
    )


def of_comparisons(document: Comparisons, *, decimals: int = DECIMALS) -> Table:
    """Return comparisons as text: the difference with its interval, the adjusted p, the verdict."""
    found = document.comparisons
    names = columns(found)
    level = f"{100 * (1 - document.alpha):g}% CI"
    each = len({one.baseline_head for one in found}) > 1
    over = "difference" if each else f"− {found[0].baseline_head}"
    heading = [*names, *(["over"] if each else []), "n", over, level, "g", "p", "verdict"]
    body = [
        [
            *labels(one, names),
            *([one.baseline_head] if each else []),
            f"{one.n}, {one.n_baseline}",
            "—" if one.difference is None else f"{one.difference:+.{decimals}f}",
            (
                ""
                if one.interval is None
                else "[{:+.{d}f}, {:+.{d}f}]".format(*one.interval, d=decimals)
            ),
            _effect(one),
            p_value(one.p_adjusted),
            one.verdict + (f": {one.detail}" if one.detail else ""),
        ]
        for one in found
    ]
    return Table(
        heading=heading, body=body, notes=comparison_notes(document), labels=len(names) + each
    )


def _effect(one: Comparison) -> str:
    """Return Hedges' g with its interval."""
    if one.effect is None:
        return ""
    return " ".join(filter(None, [f"{one.effect:+.1f}", as_range(one.effect_interval, 1)]))


def of_variances(rows: Sequence[CellSplit]) -> Table:
    """Return how spread over seeds splits as text, in percentage points."""
    names = columns(rows)
    spread = ["std over seeds", "model", "test set", "binomial", "disagreement", "vs baseline"]
    heading = [*names, "n", "images", *spread]
    body = [
        [
            *labels(row, names),
            str(row.n),
            str(row.images or ""),
            *_parts_of(row),
        ]
        for row in rows
    ]
    notes = [
        (
            "Percentage points. std² over seeds = model² + test set². Model: the part that would"
            " persist on new images, with its 95 % confidence interval. Test set: the part due to"
            " the finite number of test images, from errors that are independent between runs and"
            " images."
        ),
        (
            "Binomial: standard error of a single accuracy. Disagreement: % of images that exactly"
            " one of two seeds classifies correctly. vs baseline: % of images that exactly one of"
            " the two methods classifies correctly, at equal seeds."
        ),
    ]
    for row in rows:
        label = label_of(row)
        if row.why_not:
            notes.append(f"{label}: {row.why_not}.")
        elif row.variance_carries is not None and row.variance_carries < 0:
            notes.append(
                f"{label}: the estimated model variance is negative ({row.variance_carries:.4f})"
                " and shown as 0."
            )
    return Table(heading=heading, body=body, notes=notes, labels=len(names))


def _parts_of(row: CellSplit) -> list[str]:
    std, model, *others = (
        "—" if value is None else f"{value:.2f}"
        for value in (
            row.std,
            row.std_carries,
            row.std_test_set,
            row.std_binomial,
            row.disagreement,
            row.disagreement_baseline,
        )
    )
    return [std, " ".join(filter(None, [model, as_range(row.std_carries_interval)])), *others]


COUNTED = (
    f"Seeds are counted for the upper {100 * STD_LEVEL:.0f} % confidence limit of the standard "
    "deviation so far"
)
STRICTEST = ", and for the strictest step of Holm's correction."


def of_needs(document: Needs) -> Table:
    """Return what `power` and `topup` show."""
    rows = document.cells
    names = columns(rows)
    heading = [*names, "n", "std", "needed", "more", "GPU-hours", "seeds"]
    body = [
        [
            *labels(row, names),
            count(row.n, row.planned, {}),
            "—" if row.std is None else f"{row.std:.2f}",
            "—" if row.needed is None else str(row.needed),
            "" if row.more is None else str(row.more),
            "" if row.gpu_hours is None else f"{row.gpu_hours:.2f}",
            row.why_not or as_seeds(row.new_seeds),
        ]
        for row in rows
    ]
    is_timed = any(need.run_hours is not None for need in document.cells if need.more)
    cost = (
        f"estimated cost {document.run_hours:.2f} run-hours, {document.gpu_hours:.2f} "
        "GPU-hours (from the same cells' past runs)"
        if is_timed or not document.runs
        else "their cost is not known, as no run of these cells was timed"
    )
    notes = [
        f"{document.metric} on {document.set}: {_goal(document)}.",
        f"{document.runs} more runs needed; {cost}.",
    ]
    if document.effect is not None or document.margin is not None:
        notes.insert(1, COUNTED + (STRICTEST if document.effect is not None else "."))
    notes += [f"Submit them: {document.command}"] if document.command else []
    return Table(heading=heading, body=body, notes=notes, labels=len(names))


def _goal(document: Needs) -> str:
    """Return what the seeds are counted for."""
    if document.half_width is not None:
        return (
            f"half-width of each mean's 95 % CI at most {document.half_width:g} "
            "(Stein's rule, standard deviation so far)"
        )
    if document.margin is not None:
        return f"80 % power to show a tie within ±{document.margin:g}, if there is no difference"
    if document.effect is None:
        sizes = ", ".join(map(str, document.looks))
        return (
            f"the next interim analysis of the undecided comparisons (declared at {sizes} seeds per"
            " side)"
        )
    return f"80 % power for a difference of {document.effect:g} at α = {document.alpha:.2g}"


def as_seeds(seeds: Sequence[int]) -> str:
    """Return ascending seeds as text: `4…59, 61`."""
    spans: list[list[int]] = []
    for seed in seeds:
        if spans and spans[-1][1] == seed - 1:
            spans[-1][1] = seed
        else:
            spans.append([seed, seed])
    return ", ".join(str(low) if low == high else f"{low}…{high}" for low, high in spans)
