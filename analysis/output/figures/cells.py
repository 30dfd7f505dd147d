"""Figures of cells: which runs are there, and what their seeds say."""

import math
from collections.abc import Mapping, Sequence, Set
from statistics import quantiles, stdev
from typing import Any

from ...findings.cell import Cell
from ...stats.curves import Agreement, agreement
from ..wording import columns, label_of, score
from .canvas import COLOURS, FAINT, GREY, STATE_COLOURS, Drawn, cut, new_figure, styled

# Fewer values make no histogram.
DISTRIBUTION_FROM = 30


def completeness(lines: Sequence[tuple[str, Mapping[str, str]]]) -> Drawn:
    """Draw a tile for each run in the colour of its state, a line per cell.

    Args:
        lines: what a cell is called, and seed -> state; of a study of streams the place in its
            design.
    """
    shown, more = cut(lines, "cells")
    seeds = sorted({int(seed) for _, own in lines for seed in own})
    rows = [[label, int(seed), state] for label, own in lines for seed, state in own.items()]
    with styled():
        figure = new_figure(0.9 + 0.22 * len(shown))
        axes = figure.add_subplot()
        column = {seed: index for index, seed in enumerate(seeds)}
        for line, (_, own) in enumerate(shown):
            for seed, state in own.items():
                axes.add_patch(_tile(column[int(seed)], line, STATE_COLOURS.get(state, FAINT)))
        axes.set(
            xlim=(-0.5, max(len(seeds), 1) - 0.5),
            ylim=(max(len(shown), 1) - 0.5, -0.5),
            xlabel="seed",
        )
        every = max(1, -(-len(seeds) // 20))
        axes.set_xticks(range(0, len(seeds), every), [str(seed) for seed in seeds[::every]])
        axes.set_yticks(range(len(shown)), [label for label, _ in shown])
        axes.tick_params(length=0)
        for side in ("left", "bottom"):
            axes.spines[side].set_visible(False)
        _legend_of_states(axes, {state for _, own in shown for state in own.values()})
    done = sum(row[2] == "completed" for row in rows)
    text = f"{done} of {len(rows)} runs have completed.{more}"
    return Drawn(
        name="completeness",
        title="Run status",
        text=text,
        heading=["cell", "seed", "state"],
        rows=rows,
        figure=figure,
    )


def _legend_of_states(axes: Any, used: Set[str]) -> None:
    known = [state for state in STATE_COLOURS if state in used]
    if known:
        axes.legend(
            handles=[_tile(0, 0, STATE_COLOURS[state]) for state in known],
            labels=known,
            ncols=len(known),
            loc="lower left",
            bbox_to_anchor=(0, 1),
        )


def _tile(x: float, y: float, colour: str) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle(
        (x - 0.45, y - 0.4), 0.9, 0.8, facecolor=colour, edgecolor="#999999", linewidth=0.4
    )


def strip(cells: Sequence[Cell]) -> Drawn:
    """Draw every run as a dot, the mean as a tick and its t interval as a bar, a panel per dataset.

    Args:
        cells: of a report, each with its `description`.
    """
    names = [name for name in columns(list(cells)) if name != "dataset"]
    shown, more = cut(cells, "cells")
    datasets = list(dict.fromkeys(cell.dataset for cell in shown))
    rows = [
        [cell.dataset, label_of(cell, names), seed, value]
        for cell in cells
        for seed, value in cell.values.items()
    ]
    with styled():
        sizes = [sum(cell.dataset == dataset for cell in shown) for dataset in datasets]
        figure = new_figure(0.5 + sum(0.3 * size + 0.55 for size in sizes))
        panels = figure.subplots(
            len(datasets), 1, squeeze=False, height_ratios=[size + 1 for size in sizes]
        )[:, 0]
        for axes, dataset in zip(panels, datasets, strict=True):
            mine = [cell for cell in shown if cell.dataset == dataset]
            for line, cell in enumerate(mine):
                _draw_seeds(axes, line, cell)
            axes.set(ylim=(len(mine) - 0.5, -0.5), title=dataset)
            axes.set_yticks(
                range(len(mine)), [f"{label_of(cell, names)}  n={cell.n}" for cell in mine]
            )
            axes.margins(x=0.08)
        panels[-1].set_xlabel(f"{cells[0].metric} on {cells[0].set}")
    said = "; ".join(
        f"{cell.dataset} {label_of(cell, names)} {score(cell.mean, cell.std)}, n={cell.n}"
        for cell in shown[:12]
    )
    text = f"Every run as a dot, the mean as a line, its 95 % t interval as a bar. {said}.{more}"
    return Drawn(
        name="seeds",
        title="Every seed",
        text=text,
        heading=["dataset", "cell", "seed", "value"],
        rows=rows,
        figure=figure,
    )


def _draw_seeds(axes: Any, line: int, cell: Cell) -> None:
    from matplotlib.transforms import blended_transform_factory

    values = list(cell.values.values())
    colour = GREY if cell.is_baseline else COLOURS[0]
    interval = cell.described.interval
    if len(values) >= 10:
        low, middle, high = quantiles(values, n=4)
        axes.plot([low, high], [line, line], color=FAINT, linewidth=14, solid_capstyle="butt")
        axes.plot([middle] * 2, [line - 0.25, line + 0.25], color="white", linewidth=1.5)
    if interval is not None:
        axes.plot(
            interval, [line, line], color=colour, linewidth=5, alpha=0.25, solid_capstyle="butt"
        )
    if cell.mean is not None:
        axes.plot([cell.mean] * 2, [line - 0.32, line + 0.32], color=colour, linewidth=1.5)
    # Spread a little, so that equal values are seen to be several.
    offsets = [0.16 * ((index % 3) - 1) for index in range(len(values))]
    axes.plot(
        values, [line + offset for offset in offsets], "o", color=colour, markersize=3, alpha=0.7
    )
    at_edge = blended_transform_factory(axes.transAxes, axes.transData)
    if diverged := cell.states.get("diverged", 0):
        axes.plot(
            [0.005] * 1, [line], "x", color="black", markersize=5, transform=at_edge, clip_on=False
        )
        axes.text(0.02, line, f"{diverged} diverged", transform=at_edge, va="center", fontsize=7)
    if failed := cell.states.get("failed", 0):
        axes.text(
            1.0,
            line,
            f"{failed} failed",
            transform=at_edge,
            va="center",
            ha="right",
            fontsize=7,
            color=GREY,
        )


def distribution(cell: Cell, label: str) -> Drawn | None:
    """Draw the histogram of many seeds with a normal fit, and their quantiles against a normal's.

    Args:
        cell: of a report, with its `description`.
        label: what the cell is called.

    Returns:
        The figure (Touvron's thesis, figure 6.8), or None below thirty seeds.
    """
    values = sorted(cell.values.values())
    if len(values) < DISTRIBUTION_FROM or not cell.std or cell.mean is None:
        return None
    import numpy
    from scipy.stats import norm

    mean, std = cell.mean, cell.std
    normal = norm.ppf((numpy.arange(len(values)) + 0.5) / len(values))
    with styled():
        figure = new_figure(2.8)
        left, right = figure.subplots(1, 2)
        left.hist(values, bins="auto", density=True, color=COLOURS[0], alpha=0.35)
        reach = numpy.linspace(mean - 4 * std, mean + 4 * std, 200)
        left.plot(reach, norm.pdf(reach, mean, std), color=COLOURS[0])
        left.plot(values, [0.0] * len(values), "|", color="black", markersize=6)
        left.set(
            title=f"n={len(values)}, normal fit",
            xlabel=f"{cell.metric} on {cell.set}",
            ylabel="density",
        )
        right.plot(normal, values, "o", color=COLOURS[0], markersize=3)
        right.plot(normal[[0, -1]], mean + std * normal[[0, -1]], color=GREY)
        right.set(title="quantiles", xlabel="of a standard normal", ylabel=cell.metric)
    luck = cell.described.luck
    text = (
        f"{label}: {len(values)} seeds from {values[0]:.2f} to {values[-1]:.2f}, mean {mean:.2f}, "
        f"standard deviation {std:.2f}. The best seed is {cell.described.best_of_n:.2f} "
        f"away from the mean; {luck:.2f} is expected by chance for as many normal draws."
    )
    rows = [[seed, value] for seed, value in cell.values.items()]
    return Drawn(
        name=f"distribution-{cell.cell_id[:8]}",
        title=f"Distribution over seeds: {label}",
        text=text,
        heading=["seed", "value"],
        rows=rows,
        figure=figure,
    )


def sets(
    cell: Cell,
    name: str,
    other: Mapping[int, float],
    label: str,
    sizes: tuple[int, int] | None,
) -> Drawn | None:
    """Draw one test set against another, a dot per seed, the best of each ringed.

    Args:
        cell: of a report on the first set.
        name: the second set.
        other: seed -> value of the same cell on it.
        label: what the cell is called.
        sizes: images of both sets, for the binomial error of one accuracy; None where it is none.

    Returns:
        The figure (Touvron's thesis, figure 6.7), or None below five common seeds.
    """
    values = cell.values
    seeds = sorted(values.keys() & other.keys())
    if len(seeds) < 5:
        return None
    agreed = agreement(values, other, better=cell.better)
    x, y = [values[seed] for seed in seeds], [other[seed] for seed in seeds]
    rows = [[seed, a, b] for seed, a, b in zip(seeds, x, y, strict=True)]
    choose = min if cell.better == "min" else max
    with styled():
        figure = new_figure(3.6, width=4.6)
        axes = figure.add_subplot()
        axes.plot(x, y, "o", color=COLOURS[0], markersize=3.5, alpha=0.8)
        for scores, colour in ((x, COLOURS[1]), (y, COLOURS[2])):
            best = scores.index(choose(scores))
            ring = {"markersize": 9, "markerfacecolor": "none", "markeredgecolor": colour}
            axes.plot(x[best], y[best], "o", **ring)
        if len(seeds) <= 25:
            for seed, *point in rows:
                style = {"xytext": (4, 3), "fontsize": 6, "color": GREY}
                axes.annotate(str(seed), point, textcoords="offset points", **style)
        if sizes is not None:
            _binomial_cross(axes, x, y, sizes)
        axes.set(xlabel=f"{cell.metric} on {cell.set}", ylabel=f"{cell.metric} on {name}")
        axes.set_title(_correlation(agreed))
    text = (
        f"{label}: {_correlation(agreed)}. Seed {agreed.best} is the best on {cell.set} and"
        f" number {agreed.rank} on {name}."
    )
    if sizes is not None:
        text += _expected_by_size((cell.set, name), (stdev(x), stdev(y)), sizes)
    return Drawn(
        name=f"sets-{cell.set}-{name}-{cell.cell_id[:8]}",
        title=f"{cell.set} against {name}: {label}",
        text=text,
        heading=["seed", cell.set, name],
        rows=rows,
        figure=figure,
    )


def _expected_by_size(
    names: tuple[str, str], spreads: tuple[float, float], sizes: tuple[int, int]
) -> str:
    """Say what spread the second set would have if that of the first came from its size alone."""
    if spreads[0] <= 0:
        return ""
    # Errors on a finite set that are independent between seeds shrink with the root of its size.
    expected = spreads[0] * math.sqrt(sizes[0] / sizes[1])
    return (
        f" Standard deviation {spreads[0]:.2f} on {sizes[0]:,} images of {names[0]}, "
        f"{spreads[1]:.2f} on {sizes[1]:,} of {names[1]}. If the spread came from the finite set "
        f"alone, {expected:.2f} would be expected on {names[1]}."
    )


def _correlation(agreement: Agreement) -> str:
    if agreement.r is None:
        return f"n={agreement.n}, correlation undefined"
    interval = agreement.interval
    bounds = f", 95 % CI {interval[0]:.2f} to {interval[1]:.2f}" if interval else ""
    return f"r={agreement.r:.2f}{bounds}, n={agreement.n}"


def _binomial_cross(axes: Any, x: list[float], y: list[float], sizes: tuple[int, int]) -> None:
    """Show in the corner how far one accuracy is off by the choice of images alone."""
    errors = []
    for values, size in zip((x, y), sizes, strict=True):
        share = math.fsum(values) / len(values) / 100
        errors.append(100 * math.sqrt(max(0.0, share * (1 - share)) / size))
    low, top = axes.get_xlim()[0], axes.get_ylim()[1]
    corner = (low + errors[0] * 1.3, top - errors[1] * 1.3)
    axes.errorbar(*corner, xerr=errors[0], yerr=errors[1], color=GREY, capsize=2, linewidth=0.8)
    axes.annotate(
        "binomial error", corner, textcoords="offset points", xytext=(5, -9), fontsize=6, color=GREY
    )
