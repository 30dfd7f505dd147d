"""Differences of gains as text: a line for each head and two levels of a factor."""

from ...jobs.run.comparing import Family
from ..findings.between import GainDifference
from ..findings.comparisons import Comparisons
from .csv_text import csv_text
from .layout import Table
from .wording import DECIMALS, p_value

# Columns of what two gains have in common, before the axes.
_FIRST = ("dataset", "backbone", "recipe", "stage")


def of_between(document: Comparisons, *, decimals: int = DECIMALS) -> Table:
    """Return each head's two gains, their difference with its interval, and the adjusted p.

    Args:
        document: with differences of gains.
        decimals: of all numbers but p.
    """
    found = document.between
    names = _columns(found)
    level = f"{100 * (1 - document.alpha):g}% CI"
    body = [
        [
            *(str(one.where.get(name, "")) for name in names),
            one.head,
            one.baseline_head,
            *one.levels,
            *(_signed(gain, decimals) for gain in one.gains),
            _signed(one.difference, decimals),
            (
                ""
                if one.interval is None
                else "[{:+.{d}f}, {:+.{d}f}]".format(*one.interval, d=decimals)
            ),
            p_value(one.p_adjusted),
            _verdict(one),
        ]
        for one in found
    ]
    heading = [*names, "head", "over", found[0].factor, "and", "gain", "and", "difference", level]
    m = len(found)
    test = "t test with Satterthwaite's degrees of freedom"
    if any(one.by_seed for one in found):
        test = "t test of the differences seed by seed, since stages may share their first runs"
    over = f"m={m}" if document.family is Family.TABLE else "the lines of a dataset"
    notes = [
        f"Gain: head − baseline. Difference: the first gain minus the second. {test}, two-sided; "
        f"p Holm-corrected over {over}; α = {document.alpha:g}. Confidence intervals are not "
        "corrected.",
        "Exploratory: no grid declares a difference of gains.",
    ]
    return Table(heading=[*heading, "p", "verdict"], body=body, notes=notes, labels=len(names) + 4)


def csv_of_between(document: Comparisons) -> str:
    """Return the same as data, a row for each line."""
    names = _columns(document.between)
    numbers = ("difference", "df", "p", "p_adjusted")
    rows = [
        [
            *(one.where.get(name, "") for name in names),
            one.head,
            one.baseline_head,
            one.factor,
            *one.levels,
            *("" if gain is None else gain for gain in one.gains),
            *("" if (value := getattr(one, name)) is None else value for name in numbers),
            *(one.interval or ("", "")),
            one.is_significant,
            one.why_not,
        ]
        for one in document.between
    ]
    heading = [*names, "head", "over", "factor", "level", "other_level", "gain", "other_gain"]
    return csv_text([*heading, *numbers, "low", "high", "is_significant", "why_not"], rows)


def _columns(found: tuple[GainDifference, ...]) -> list[str]:
    """Return what the gains have in common, where it differs from line to line."""
    axes = sorted({name for one in found for name in one.where} - {*_FIRST})
    every = [name for name in (*_FIRST, *axes) if any(name in one.where for one in found)]
    return [
        name
        for name in every
        if name in _FIRST[:2] or len({str(one.where.get(name)) for one in found}) > 1
    ]


def _signed(value: float | None, decimals: int) -> str:
    return "—" if value is None else f"{value:+.{decimals}f}"


def _verdict(one: GainDifference) -> str:
    if one.why_not:
        return one.why_not
    return "the gains differ" if one.is_significant else "not significantly different"
