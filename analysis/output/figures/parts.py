"""Figures of where the spread comes from."""

from collections.abc import Sequence
from typing import Any

from ...findings.study import AnyStudy, design_of
from ...stats.components import Arms, Part, StreamPart
from ..study_table import arms_of, others
from .canvas import COLOURS, GREY, Drawn, new_figure, styled


def shares(study: AnyStudy, label: str, name: str) -> Drawn | None:
    """Draw each stream's own share and its share with interactions, with intervals; never a pie.

    Args:
        study: of `study.study`, complete.
        label: what the cell is called.
        name: the stem of the files.

    Returns:
        The figure, or None where the study is not complete.
    """
    parts = study.parts
    if parts is None:
        return None
    if isinstance(parts, Arms):
        return _arms(study, parts, label, name)
    lines: list[tuple[str, Part]] = [(one.stream, one) for one in parts.streams]
    lines += [(name.replace(" and", "\nand"), one) for name, one in others(parts)]
    rows = [
        [
            stem.replace("\n", " "),
            one.variance,
            one.share,
            *(one.share_interval or (None, None)),
            *_with_others(one),
        ]
        for stem, one in lines
    ]
    with styled():
        figure = new_figure(0.9 + 0.5 * len(lines))
        axes = figure.add_subplot()
        for y, (_, one) in enumerate(lines):
            _bars(axes, y, one)
        axes.set(ylim=(len(lines) - 0.5, -0.5), xlim=(0, 100), xlabel="share of the variance, %")
        axes.set_yticks(range(len(lines)), [stem for stem, _ in lines])
        handles, labels = axes.get_legend_handles_labels()
        unique = dict(zip(labels, handles, strict=True))
        axes.legend(
            unique.values(), unique.keys(), ncols=2, loc="lower left", bbox_to_anchor=(0, 1)
        )
    said = "; ".join(f"{row[0]} {100 * row[2]:.0f} %" for row in rows if row[2] is not None)
    text = (
        f"{label}, {study.used} runs, {design_of(study)}: own shares {said}. Bars with 95 %"
        " intervals."
    )
    own = ["variance", "share", "low", "high"]
    return Drawn(
        name=name,
        title=f"Where the spread comes from: {label}",
        text=text,
        heading=["part", *own, "with_interactions", "with_low", "with_high"],
        rows=rows,
        figure=figure,
    )


def _with_others(part: Part) -> tuple[float | None, float | None, float | None]:
    """Return a stream's share with interactions and its bounds; nothing of any other part."""
    if not isinstance(part, StreamPart):
        return None, None, None
    return part.total_share, *(part.total_share_interval or (None, None))


def _bars(axes: Any, y: int, part: Part) -> None:
    """Draw a part's own share and, of a stream, its share with interactions below."""
    _bar(axes, y - 0.17, part.share, part.share_interval, COLOURS[0], "its own")
    total, *bounds = _with_others(part)
    _bar(axes, y + 0.17, total, bounds, COLOURS[4], "with interactions")
    if part.variance < 0:
        estimate = f"estimate {part.variance:.3g}"
        axes.text(0.5, y - 0.17, estimate, va="center", fontsize=6, color=GREY)


def _bar(
    axes: Any,
    y: float,
    share: float | None,
    interval: Sequence[float | None] | None,
    colour: str,
    label: str,
) -> None:
    bounds = [100 * bound for bound in interval or () if bound is not None]
    if share is None or not bounds:
        return
    axes.barh(y, 100 * share, height=0.3, color=colour, alpha=0.6, label=label)
    axes.plot(bounds, [y, y], color="black", linewidth=1)


def _arms(study: AnyStudy, parts: Arms, label: str, name: str) -> Drawn:
    arms = arms_of(parts)
    with styled():
        figure = new_figure(0.9 + 0.3 * len(arms))
        axes = figure.add_subplot()
        for y, one in enumerate(arms):
            axes.plot(one.std, y, "o", color=COLOURS[0], markersize=4)
            if one.std_interval:
                axes.plot(one.std_interval, [y, y], color=COLOURS[0], linewidth=1.2)
        axes.set(
            ylim=(len(arms) - 0.5, -0.5),
            xlim=(0, None),
            xlabel=f"standard deviation of {study.metric}",
        )
        axes.set_yticks(range(len(arms)), [f"{one.stream}  n={one.n}" for one in arms])
    said = "; ".join(f"{one.stream} {one.std:.2f}" for one in arms)
    text = f"{label}: standard deviation when one stream varies and the others are fixed: {said}."
    rows = [
        [one.stream, one.n, one.std, *(one.std_interval or (None, None)), one.ratio] for one in arms
    ]
    return Drawn(
        name=name,
        title=f"One stream at a time: {label}",
        text=text,
        heading=["stream", "n", "std", "low", "high", "ratio_to_all"],
        rows=rows,
        figure=figure,
    )
