"""Figures of gains against an axis of the grid: epochs, pairs of tokens, the weight of a head."""

import math
from collections.abc import Sequence

from ...findings.comparisons import Comparison, Comparisons
from ..wording import columns, labels
from .canvas import COLOURS, GREY, Drawn, new_figure, styled

# Fewer values are told by the figure of differences.
FEWEST = 3
# From this ratio of the largest value to the smallest one on, the axis is logarithmic.
WIDE = 10


def over_axes(document: Comparisons) -> list[Drawn]:
    """Draw the gains against each axis that has at least three numbers as its values.

    Args:
        document: of `verdict.compare`.
    """
    found = [one for one in document.comparisons if one.difference is not None]
    axes = dict.fromkeys(name for one in found for name in one.axes)
    return [drawn for axis in axes if (drawn := _over(document, found, axis)) is not None]


def _over(document: Comparisons, found: Sequence[Comparison], axis: str) -> Drawn | None:
    baselines = list(dict.fromkeys(one.baseline_head for one in found))
    baseline = baselines[0] if len(baselines) == 1 else "the other head"
    lines = _lines(found, axis, each=len(baselines) > 1)
    values = sorted({value for line in lines.values() for value in line})
    if len(values) < FEWEST:
        return None
    shown = dict(list(lines.items())[: len(COLOURS)])
    with styled():
        figure = new_figure(3.2)
        plot = figure.add_subplot()
        plot.axhline(0, color=GREY, linewidth=0.8)
        for (name, line), colour in zip(shown.items(), COLOURS, strict=False):
            gains = [one.difference for one in line.values()]
            plot.plot([*line], gains, "o-", color=colour, markersize=4, linewidth=1, label=name)
            for value, one in line.items():
                if one.interval:
                    plot.plot([value, value], one.interval, color=colour, linewidth=1, alpha=0.6)
        if values[0] > 0 and values[-1] / values[0] >= WIDE:
            plot.set_xscale("log")
            plot.set_xticks(values, [f"{value:g}" for value in values])
        plot.set(xlabel=axis, ylabel=f"difference in {found[0].metric} from {baseline}")
        plot.legend(fontsize=6)
    more = ""
    if len(lines) > len(shown):
        more = f" The first {len(shown)} of {len(lines)} lines are drawn; the CSV file has all."
    level = f"{100 * (1 - document.alpha):g} %"
    return Drawn(
        name=f"over-{axis.replace('.', '-')}",
        title=f"Differences over {axis}",
        text=f"Differences from {baseline} over {axis}, with unadjusted {level} intervals.{more}",
        heading=["line", axis, "n", "n_baseline", "difference", "low", "high"],
        rows=[
            [name, value, one.n, one.n_baseline, one.difference, *(one.interval or (None, None))]
            for name, line in lines.items()
            for value, one in line.items()
        ],
        figure=figure,
    )


def _lines(
    found: Sequence[Comparison], axis: str, *, each: bool
) -> dict[str, dict[float, Comparison]]:
    """Return line -> value of the axis -> comparison, lines of one point left out.

    Args:
        found: comparisons with a difference.
        axis: of the grid.
        each: whether a head is compared with several others, which the lines then name.
    """
    names = [name for name in columns(found) if name != axis]
    lines: dict[str, dict[float, Comparison]] = {}
    for one in found:
        if (value := _number(one.axes.get(axis))) is not None:
            called = " ".join(labels(one, names)) + (f" − {one.baseline_head}" if each else "")
            lines.setdefault(called, {})[value] = one
    return {name: dict(sorted(line.items())) for name, line in lines.items() if len(line) > 1}


def _number(value: object) -> float | None:
    """Return an axis' value as a number; None of a switch, a name or nothing."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)
