"""Figure of cells on two evaluation sets, with the line through them."""

from collections.abc import Sequence
from typing import Any

from ...findings.two_sets import TwoSets
from ..wording import columns, label_of
from .canvas import COLOURS, GREY, Drawn, new_figure, styled

VALUES = ("n", "x", "y", "x_std", "y_std", "residual", "residual_std")
# Numbered points of a panel, in its legend; the CSV file names all.
MOST_LABELS = 28


def scatter(found: Sequence[TwoSets]) -> Drawn:
    """Draw a point for each cell, deviations over seeds as bars, a panel per dataset.

    Args:
        found: at least one.
    """
    every = [cell for one in found for cell in one.cells]
    names = [name for name in columns(every) if name != "dataset"]
    rows = [
        [one.dataset, label_of(cell, names), *(getattr(cell, name) for name in VALUES)]
        for one in found
        for cell in one.cells
    ]
    rows += [
        [one.dataset, f"{model.backbone} {model.method} (table {model.table})"]
        + [getattr(model, name, None) for name in VALUES]
        for one in found
        for model in one.published
    ]
    with styled():
        figure = new_figure(4.6 * len(found))
        panels = figure.subplots(len(found), 1, squeeze=False)[:, 0]
        for axes, one in zip(panels, found, strict=True):
            _panel(axes, one, names)
    first = found[0]
    rest = f" The first {MOST_LABELS} cells of a dataset are numbered; the CSV file names all."
    more = rest if max(len(one.cells) for one in found) > MOST_LABELS else ""
    dots = " Grey dots: models that the paper prints." if first.published else ""
    text = (
        f"{first.metric} on {first.y_set} against {first.x_set}: a point for each cell, its mean "
        "over the seeds that have both; bars: one standard deviation over seeds. Line: least "
        "squares through the points. A cell below the line scores less on "
        f"{first.y_set} than its score on {first.x_set} lets expect. Colours: heads.{dots}{more}"
    )
    return Drawn(
        name="two-sets",
        title=f"{first.y_set} against {first.x_set}",
        text=text,
        heading=["dataset", "cell", *VALUES],
        rows=rows,
        figure=figure,
    )


def _panel(axes: Any, one: TwoSets, names: Sequence[str]) -> None:
    heads = list(dict.fromkeys(cell.head for cell in one.cells))
    if one.published:
        axes.plot(
            [model.x for model in one.published],
            [model.y for model in one.published],
            ".",
            color=GREY,
            markersize=3,
            zorder=0,
        )
    for number, cell in enumerate(one.cells, start=1):
        colour = COLOURS[heads.index(cell.head) % len(COLOURS)]
        axes.errorbar(
            [cell.x],
            [cell.y],
            xerr=[cell.x_std or 0.0],
            yerr=[cell.y_std or 0.0],
            fmt="o",
            color=colour,
            elinewidth=0.8,
            markersize=3,
            label=f"{number}  {label_of(cell, names)}",
        )
        if number <= MOST_LABELS:
            axes.annotate(
                str(number),
                (cell.x, cell.y),
                xytext=(3, 3),
                textcoords="offset points",
                fontsize=7,
                color=colour,
            )
    if one.line is not None:
        every = [*(cell.x for cell in one.cells), *(model.x for model in one.published)]
        ends = [min(every), max(every)]
        axes.plot(ends, [one.line.at(x) for x in ends], color=GREY, linewidth=1)
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(
        handles[:MOST_LABELS],
        labels[:MOST_LABELS],
        loc="upper left",
        bbox_to_anchor=(1, 1),
        fontsize=7,
    )
    axes.set(
        title=one.dataset,
        xlabel=f"{one.metric} on {one.x_set}",
        ylabel=f"{one.metric} on {one.y_set}",
    )
