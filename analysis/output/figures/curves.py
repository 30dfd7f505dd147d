"""Figures of learning curves over seeds."""

from collections.abc import Mapping, Sequence
from typing import Any

from ...stats.curves import PERSISTENCE_FROM, Curves, Point, band, persistence
from .canvas import COLOURS, GREY, Drawn, new_figure, styled

# Panels of one figure; its data has every cell.
MOST_PANELS = 12


def learning(
    panels: Mapping[str, Mapping[str, Curves]],
    breaks: Mapping[str, Sequence[int]],
    *,
    metric: str,
    set_name: str,
    gained: bool = False,
) -> Drawn | None:
    """Draw every seed thin, the mean and its t interval, and below them how many seeds each epoch
    rests on.

    Args:
        panels: panel -> line -> curves of its seeds.
        breaks: panel -> epochs at which runs were interrupted.
        metric: of the scores.
        set_name: that they were made on.
        gained: whether the values are gains, so that zero has a line.

    Returns:
        The figure, or None where nothing was scored.
    """
    rows = [
        [
            panel,
            line,
            row.epoch,
            row.n,
            row.mean,
            row.std,
            *(row.interval or (None, None)),
        ]
        for panel, lines in panels.items()
        for line, curves in lines.items()
        for row in band(curves)
    ]
    if not rows:
        return None
    shown = {panel: panels[panel] for panel in list(panels)[:MOST_PANELS]}
    with styled():
        figure = _all_panels(shown, breaks, f"gain in {metric}" if gained else metric, gained)
    rest = f" The first {MOST_PANELS} of {len(panels)} panels are drawn; the CSV file has all."
    more = rest if len(panels) > len(shown) else ""
    if max(map(len, panels.values())) > len(COLOURS):
        more += f" Each panel shows its first {len(COLOURS)} lines."
    text = (
        f"{'Gain in ' if gained else ''}{metric} on {set_name} by epoch. Thin lines: single seeds; "
        "thick line: their mean; shaded: its pointwise 95 % t interval, for three seeds or more. "
        f"Lower panel: number of seeds. Ticks at the top: interrupted runs.{more}"
    )
    heading = ["panel", "line", "epoch", "n", "mean", "std", "low", "high"]
    return Drawn(
        name="curves", title="Learning curves", text=text, heading=heading, rows=rows, figure=figure
    )


def _all_panels(
    panels: Mapping[str, Mapping[str, Curves]],
    breaks: Mapping[str, Sequence[int]],
    ylabel: str,
    gained: bool,
) -> Any:
    """Return a figure of up to two panels across, each with its numbers of seeds below."""
    across = min(2, len(panels))
    down = -(-len(panels) // across)
    figure = new_figure(2.9 * down)
    grid = figure.add_gridspec(2 * down, across, height_ratios=[5, 1] * down)
    for index, (panel, lines) in enumerate(panels.items()):
        upper = figure.add_subplot(grid[2 * (index // across), index % across])
        lower = figure.add_subplot(grid[2 * (index // across) + 1, index % across], sharex=upper)
        _panel(upper, lower, lines, breaks.get(panel, ()))
        upper.set(title=panel, ylabel=ylabel)
        if gained:
            upper.axhline(0, color=GREY, linewidth=0.8)
        upper.tick_params(labelbottom=False)
        lower.set_xlabel("epoch")
    return figure


def _panel(upper: Any, lower: Any, lines: Mapping[str, Curves], breaks: Sequence[int]) -> None:
    for (line, curves), colour in zip(lines.items(), COLOURS, strict=False):
        for _, curve in sorted(curves.items()):
            epochs = sorted(curve)
            upper.plot(
                epochs, [curve[epoch] for epoch in epochs], color=colour, linewidth=0.5, alpha=0.35
            )
        rows = band(curves)
        epochs = [row.epoch for row in rows]
        upper.plot(epochs, [row.mean for row in rows], color=colour, linewidth=1.6, label=line)
        known = [(row.epoch, *row.interval) for row in rows if row.interval]
        upper.fill_between(
            [epoch for epoch, _, _ in known],
            [low for _, low, _ in known],
            [high for _, _, high in known],
            color=colour,
            alpha=0.2,
            linewidth=0,
        )
        lower.step(epochs, [row.n for row in rows], color=colour, where="mid", linewidth=1)
    for epoch in breaks:
        upper.plot(
            epoch, 0.98, "|", color=GREY, markersize=6, transform=upper.get_xaxis_transform()
        )
    upper.legend(fontsize=7, loc="lower right")
    lower.set(ylabel="n", ylim=(0, None))
    lower.yaxis.get_major_locator().set_params(integer=True, nbins=2)


def spread(cells: Mapping[str, Curves], *, metric: str) -> Drawn | None:
    """Draw the deviation over seeds by epoch, and from when on the final order of the seeds shows.

    Args:
        cells: label -> curves of its seeds.
        metric: of the scores.

    Returns:
        The figure (Touvron's thesis, figures 6.9 and 6.10), or None where no cell has two seeds.
    """
    known = {label: curves for label, curves in cells.items() if len(curves) > 1}
    if not known:
        return None
    bands = {
        label: [row for row in band(curves) if row.std is not None]
        for label, curves in known.items()
    }
    order = {
        label: {row.epoch: row.rho for row in persistence(curves)}
        for label, curves in known.items()
    }
    rows = [
        [label, row.epoch, row.n, row.std, order[label].get(row.epoch)]
        for label, found in bands.items()
        for row in found
    ]
    shown = list(known)[: len(COLOURS)]
    with styled():
        figure = new_figure(3.0)
        left, right = figure.subplots(1, 2)
        _deviations(left, {label: bands[label] for label in shown}, metric)
        _correlations(right, {label: order[label] for label in shown})
    captions = [
        "Left: standard deviation over seeds by epoch.",
        "Right: Spearman's rank correlation with the last epoch.",
        *[_caption(label, order[label]) for label in shown if order[label]],
    ]
    if len(known) > len(shown):
        captions.append(f"The first {len(shown)} of {len(known)} cells are drawn.")
    return Drawn(
        name="spread",
        title="When the ranking of seeds settles",
        text=" ".join(captions),
        heading=["cell", "epoch", "n", "std", "rho"],
        rows=rows,
        figure=figure,
    )


# Shares of the epochs at which an early accuracy is drawn: 150, 250 and 290 of 300.
EARLY = (1 / 2, 5 / 6, 29 / 30)


def early(cells: Mapping[str, Curves], *, metric: str) -> Drawn | None:
    """Draw each seed's score at three early epochs against its score at the end.

    Args:
        cells: label -> curves of its seeds.
        metric: of the scores.

    Returns:
        The figure (Touvron's thesis, figure 6.10), or None where no cell has five seeds with the
        same last epoch and an epoch before it.
    """
    known = {label: found for label, curves in cells.items() if (found := _whole(curves))}
    if not known:
        return None
    shown = list(known)[: len(COLOURS)]
    epochs = {label: _early_epochs(curves) for label, curves in known.items()}
    order = {
        label: {row.epoch: row.rho for row in persistence(curves)}
        for label, curves in known.items()
    }
    rows = [
        [label, epoch, seed, curve[epoch], curve[max(curve)], order[label][epoch]]
        for label, curves in known.items()
        for epoch in epochs[label]
        for seed, curve in curves.items()
    ]
    with styled():
        figure = new_figure(2.6 + 0.07 * len(shown))
        panels = figure.subplots(1, len(EARLY), sharey=True)
        for number, axes in enumerate(panels):
            for label, colour in zip(shown, COLOURS, strict=False):
                epoch = epochs[label][min(number, len(epochs[label]) - 1)]
                points = [(curve[epoch], curve[max(curve)]) for curve in known[label].values()]
                rho = order[label][epoch]
                told = f"epoch {epoch}" + ("" if rho is None else f", ρ={rho:.2f}")
                axes.plot(*zip(*points, strict=True), ".", color=colour, markersize=4, label=told)
            axes.set(xlabel=f"{metric}, early")
            axes.legend(fontsize=6)
        panels[0].set(ylabel=f"{metric} at the end")
        dots = panels[0].get_lines()
        figure.legend(dots, shown, loc="outside lower center", fontsize=6, ncols=2)
    text = (
        f"A point for each seed: its {metric} at an early epoch, and at the end. ρ: Spearman's rank"
        " correlation. Where it is low, stopping the seeds that are behind at that epoch would stop"
        " good ones."
    )
    if len(known) > len(shown):
        text += f" The first {len(shown)} of {len(known)} cells are drawn."
    return Drawn(
        name="early",
        title="Early scores against final ones",
        text=text,
        heading=["cell", "epoch", "seed", "early", "final", "rho"],
        rows=rows,
        figure=figure,
    )


def _whole(curves: Curves) -> dict[int, Mapping[int, float]]:
    """Return the curves of the seeds that reached the last epoch; none below five of them."""
    last = max((max(curve) for curve in curves.values() if curve), default=0)
    found = {seed: curve for seed, curve in curves.items() if curve and max(curve) == last}
    common = set.intersection(*map(set, found.values())) if found else set()
    if len(found) < PERSISTENCE_FROM or len(common) < 2:
        return {}
    return {seed: {epoch: curve[epoch] for epoch in common} for seed, curve in found.items()}


def _early_epochs(curves: Curves) -> list[int]:
    """Return the epochs before the last that are nearest to the shares of `EARLY`."""
    epochs = sorted(next(iter(curves.values())))
    last = epochs.pop()
    nearest = [min(epochs, key=lambda epoch: abs(epoch - share * last)) for share in EARLY]
    return list(dict.fromkeys(nearest))


def _deviations(axes: Any, bands: Mapping[str, Sequence[Point]], metric: str) -> None:
    """Draw the standard deviation over seeds by epoch, a line for each cell."""
    for (label, found), colour in zip(bands.items(), COLOURS, strict=False):
        epochs, values = [row.epoch for row in found], [row.std for row in found]
        axes.plot(epochs, values, color=colour, linewidth=1.2, label=label)
    title = "standard deviation over seeds"
    axes.set(title=title, xlabel="epoch", ylabel=f"std of {metric}", ylim=(0, None))
    axes.legend(fontsize=6)


def _correlations(axes: Any, order: Mapping[str, Mapping[int, float | None]]) -> None:
    """Draw how each epoch's order of the seeds agrees with the last one, a line for each cell."""
    axes.axhline(0, color=GREY, linewidth=0.6)
    title = "rank correlation with the last epoch"
    axes.set(title=title, xlabel="epoch", ylim=(-1.05, 1.05))
    for rhos, colour in zip(order.values(), COLOURS, strict=False):
        points = [(epoch, rho) for epoch, rho in rhos.items() if rho is not None]
        if points:
            axes.plot(*zip(*points, strict=True), color=colour, linewidth=1.2)
    if not any(order.values()):
        said = "needs at least five seeds"
        axes.text(0.5, 0.6, said, transform=axes.transAxes, ha="center", color=GREY)


def _caption(label: str, order: Mapping[int, float | None]) -> str:
    """Say from which epoch on the order of the seeds is nearly the final one."""
    epochs = sorted(order)
    settled = epochs[-1]
    for epoch in reversed(epochs):
        rho = order[epoch]
        if rho is None or rho < 0.9:
            break
        settled = epoch
    return (
        f"{label}: the correlation stays above 0.9 only from epoch {settled} of {epochs[-1]}. "
        "No run is stopped early for its scores."
    )
