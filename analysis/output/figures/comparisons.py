"""Figures of comparisons.

Differences with their intervals, ranks over datasets, what more seeds would buy.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ...findings.cell import Cell
from ...findings.comparisons import Comparison, Comparisons
from ...findings.pooled import DatasetDifference, PooledComparison
from ...stats.over_datasets import Ranking
from ...stats.summary import LEVEL, student
from ...stats.verdict import Verdict
from ..over_datasets import lines
from ..wording import columns, label_of, labels, p_value
from .canvas import COLOURS, FAINT, GREY, Drawn, cut, new_figure, styled

VERDICT_COLOURS: dict[Verdict, str] = {
    Verdict.SEPARABLE: COLOURS[0],
    Verdict.TIE: COLOURS[2],
    Verdict.INCONCLUSIVE: GREY,
    Verdict.NOT_TESTABLE: "#AAAAAA",
}


def forest(document: Comparisons) -> Drawn:
    """Draw each difference to the baseline with its interval, and the verdict beside it.

    Args:
        document: of `verdict.compare`.
    """
    found = document.comparisons
    names = columns(found)
    shown, more = cut(found, "comparisons")
    each = len({one.baseline_head for one in found}) > 1
    called = [label_of(one, names) + (f" − {one.baseline_head}" if each else "") for one in shown]
    with styled():
        figure = new_figure(0.9 + 0.26 * len(shown))
        axes = figure.add_subplot()
        if document.min_effect:
            axes.axvspan(
                -document.min_effect, document.min_effect, color=FAINT, alpha=0.5, linewidth=0
            )
        axes.axvline(0, color="black", linewidth=0.8)
        for height, one in enumerate(shown):
            _difference(axes, height, one)
        other = "the other head" if each else found[0].baseline_head
        axes.set(
            ylim=(len(shown) - 0.5, -0.5), xlabel=f"difference in {found[0].metric} from {other}"
        )
        ticks = [
            f"{name}  n={one.n}, {one.n_baseline}" for name, one in zip(called, shown, strict=True)
        ]
        axes.set_yticks(range(len(shown)), ticks)
    numbers = ["over", "n", "n_baseline", "difference", "low", "high", "p_adjusted", "verdict"]
    rows = [
        [
            *labels(one, names),
            one.baseline_head,
            one.n,
            one.n_baseline,
            one.difference,
            *(one.interval or (None, None)),
            one.p_adjusted,
            one.verdict,
        ]
        for one in found
    ]
    return Drawn(
        name="differences",
        title="Differences from the baseline",
        text=_said(document, list(zip(called, shown, strict=True))) + more,
        heading=[*names, *numbers],
        rows=rows,
        figure=figure,
    )


def _said(document: Comparisons, shown: Sequence[tuple[str, Comparison]]) -> str:
    """Say what the first differences of a forest plot are, and what is shaded in it."""
    said = "; ".join(f"{name} {_signed(one.difference)}: {one.verdict}" for name, one in shown[:12])
    text = f"Differences with unadjusted {100 * (1 - document.alpha):g} % intervals. {said}."
    if document.min_effect:
        text += f" Shaded: smaller than the declared minimum effect of {document.min_effect:g}."
    return text


def _difference(axes: Any, height: int, one: Comparison) -> None:
    """Draw one difference of a forest plot, with its interval and verdict."""
    colour = VERDICT_COLOURS[one.verdict]
    if one.interval:
        axes.plot(one.interval, [height, height], color=colour, linewidth=1.5)
    if one.difference is not None:
        axes.plot(
            one.difference,
            height,
            "o" if one.interval else "D",
            color=colour,
            markersize=4,
            markerfacecolor=colour if one.interval else "none",
        )
    _write_verdict(axes, height, one)


def pooled_forest(document: Comparisons) -> Drawn:
    """Draw the difference on each dataset, and as a diamond that over all of them."""
    found = lines(document)
    names = [name for name in columns(document.pooled) if name != "dataset"]
    shown, more = cut(found, "lines")
    with styled():
        figure = new_figure(0.9 + 0.26 * len(shown))
        axes = figure.add_subplot()
        axes.axvline(0, color="black", linewidth=0.8)
        for height, (one, part) in enumerate(shown):
            _line(axes, height, one, part)
        xlabel = f"difference in {document.pooled[0].metric} from the baseline"
        axes.set(ylim=(len(shown) - 0.5, -0.5), xlabel=xlabel)
        ticks = [
            f"{part.dataset}  n={part.n}, {part.n_baseline}"
            if part
            else f"{' '.join(labels(one, names))}, all {len(one.datasets)}"
            for one, part in shown
        ]
        axes.set_yticks(range(len(shown)), ticks)
    rows = [
        [
            *labels(one, names),
            one.baseline_head,
            part.dataset if part else "",
            (part or one).difference,
            *((part or one).interval or (None, None)),
            None if part else one.p_adjusted,
            "" if part else one.verdict,
        ]
        for one, part in found
    ]
    ends = ["over", "dataset", "difference", "low", "high", "p_adjusted", "verdict"]
    return Drawn(
        name="differences",
        title="Differences over datasets",
        text=_said_of_all(document, names) + more,
        heading=[*names, *ends],
        rows=rows,
        figure=figure,
    )


def _said_of_all(document: Comparisons, names: Sequence[str]) -> str:
    """Say what the first differences over all datasets are, and for which datasets they hold."""
    said = "; ".join(
        f"{' '.join(labels(one, names))} {_signed(one.difference)}: {one.verdict}"
        for one in document.pooled[:12]
    )
    kind = "these datasets" if document.over_datasets == "fixed" else "datasets like these"
    return (
        f"Differences on each dataset with unadjusted {100 * (1 - document.alpha):g} % intervals;"
        f" diamonds: the mean over all, as it holds for {kind}. {said}."
    )


def _line(axes: Any, height: int, one: PooledComparison, part: DatasetDifference | None) -> None:
    """Draw a line of a forest plot."""
    shown = part or one
    colour = GREY if part else VERDICT_COLOURS[one.verdict]
    if shown.interval:
        axes.plot(shown.interval, [height, height], color=colour, linewidth=1.2 if part else 2.0)
    if shown.difference is not None:
        axes.plot(
            shown.difference,
            height,
            "o" if part else "D",
            color=colour,
            markersize=4 if part else 6,
        )
    if part is None:
        _write_verdict(axes, height, one)


def _write_verdict(axes: Any, height: int, one: Comparison | PooledComparison) -> None:
    """Write verdict and p to the right of a line."""
    p = f"  p={p_value(one.p_adjusted)}" if one.p_adjusted is not None else ""
    axes.text(
        1.01,
        height,
        f"{one.verdict}{p}",
        transform=axes.get_yaxis_transform(),
        va="center",
        fontsize=7,
        color=VERDICT_COLOURS[one.verdict],
    )


def _signed(value: float | None) -> str:
    return "no value" if value is None else f"{value:+.2f}"


def critical_difference(found: Ranking, label: str, name: str) -> Drawn | None:
    """Draw mean ranks over datasets and join methods that the critical difference does not tell
    apart (Demšar 2006).

    Args:
        found: of `over_datasets.ranks`; None is drawn where it has a `why_not`.
        label: what the methods have in common.
        name: the stem of the files.
    """
    if found.why_not:
        return None
    methods = list(found.ranks.items())
    with styled():
        figure = new_figure(0.9 + 0.24 * len(methods))
        axes = figure.add_subplot()
        for line, (method, rank) in enumerate(methods):
            axes.plot([rank], [line], "o", color=COLOURS[0], markersize=4)
            axes.text(rank, line - 0.28, f"{method} {rank:.2f}", ha="center", fontsize=7)
        groups = _groups([rank for _, rank in methods], found.cd) if found.cd else []
        for number, (first, last) in enumerate(groups):
            height = len(methods) + 0.3 * number
            axes.plot(
                [methods[first][1], methods[last][1]], [height, height], color="black", linewidth=3
            )
        bottom = len(methods) + 0.3 * len(groups)
        axes.set(
            ylim=(bottom, -1),
            xlim=(0.8, len(methods) + 0.2),
            xlabel="mean rank (1 = best)",
            yticks=[],
        )
        axes.spines["left"].set_visible(False)
        distance = "" if found.cd is None else f", critical difference {found.cd:.2f}"
        axes.set_title(f"{len(found.datasets)} datasets{distance}")
    said = ", ".join(f"{method} {rank:.2f}" for method, rank in methods)
    text = (
        f"{label}: mean ranks over {len(found.datasets)} datasets: {said}{distance}. {_test(found)}"
    )
    return Drawn(
        name=name,
        title=f"Ranks over datasets: {label}",
        text=text,
        heading=["method", "mean rank"],
        rows=[list(one) for one in methods],
        figure=figure,
    )


def _test(found: Ranking) -> str:
    """Return the sentence of the test that the methods are alike."""
    if found.p is None:
        return ""
    if found.methods > 2:
        return f"Friedman's test by permutation: p={p_value(found.p)}."
    signed = found.p_signed_ranks
    wilcoxon = "" if signed is None else f"; signed ranks: p={p_value(signed)}"
    return f"Exact sign test: p={p_value(found.p)}{wilcoxon}."


def _groups(ranks: Sequence[float], distance: float) -> list[tuple[int, int]]:
    """Return the longest stretches of sorted ranks within a distance, as first and last index."""
    found: list[tuple[int, int]] = []
    for first, rank in enumerate(ranks):
        last = max(index for index, other in enumerate(ranks) if other - rank < distance)
        if last > first and not (found and found[-1][1] >= last):
            found.append((first, last))
    return found


def allocation(
    cells: Sequence[Cell],
    hours: Mapping[str, float],
    looks: Sequence[int],
    *,
    metric: str,
) -> Drawn | None:
    """Draw how the half-width of each mean's interval would fall with more seeds, at the deviation
    found so far.

    Args:
        cells: of a report.
        hours: cell -> hours of a run so far.
        looks: declared numbers of seeds.
        metric: its name.

    Returns:
        The figure, or None where no cell has two seeds.
    """
    known = [cell for cell in cells if cell.std]
    if not known:
        return None
    names = columns(list(cells))
    # The most uncertain ones are those that seeds are bought for.
    known = sorted(known, key=lambda cell: -_half(cell, cell.n))
    shown = known[: len(COLOURS)]
    most = max(20, 2 * max(cell.n for cell in shown))
    sizes = range(max(3, min(cell.n for cell in shown) // 3), most + 1)
    rows = [
        [label_of(cell, names), n, _half(cell, n), hours.get(cell.cell_id)]
        for cell in known
        for n in range(2, most + 1)
    ]
    with styled():
        figure = new_figure(3.2)
        axes = figure.add_subplot()
        for cell, colour in zip(shown, COLOURS, strict=False):
            cost = f", {hours[cell.cell_id]:.2g} h per seed" if cell.cell_id in hours else ""
            label = f"{label_of(cell, names)}{cost}"
            halves = [_half(cell, n) for n in sizes]
            axes.plot(sizes, halves, color=colour, linewidth=1, label=label)
            axes.plot(cell.n, _half(cell, cell.n), "o", color=colour, markersize=5)
        for look in looks:
            axes.axvline(look, color=GREY, linestyle=":", linewidth=0.8)
        axes.set(xlabel="seeds", ylabel=f"95 % CI half-width ({metric})", ylim=(0, None))
        axes.legend(fontsize=7)
    said = "; ".join(
        f"{label_of(cell, names)} ±{_half(cell, cell.n):.2f} at n={cell.n}" for cell in shown
    )
    rest = (
        f" The {len(shown)} widest of {len(known)} cells are drawn."
        if len(known) > len(shown)
        else ""
    )
    lines = " Dotted lines: declared interim analyses." if looks else ""
    text = f"Half-width of the 95 % interval: {said}.{lines}{rest}"
    return Drawn(
        name="allocation",
        title="Precision gained with more seeds",
        text=text,
        heading=["cell", "seeds", "half_width", "hours_per_run"],
        rows=rows,
        figure=figure,
    )


def _half(cell: Cell, n: int) -> float:
    """Return the half-width at n seeds, at the deviation found so far."""
    assert cell.std is not None
    return student(LEVEL, n - 1) * cell.std / math.sqrt(n)
