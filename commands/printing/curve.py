"""Learning curves on a terminal: a chart, and below it a line for each cell."""

import shutil
import string
from collections.abc import Sequence
from typing import Any

from ...analysis.findings.curves import CellCurve
from ...analysis.output import wording
from ...jobs.names import printable
from . import terminal

_COLOURS = ("blue", "red", "green", "magenta", "yellow", "cyan")
# So many cells are drawn; each has a line in the table.
MOST_DRAWN = len(_COLOURS)
_BARS = "▁▂▃▄▅▆▇█"
_ASCII_BARS = ".:-=+*#@"
_BRAILLE_BLANK = "\u2800"
# The labels below a chart at its widest.
TICKS = 10
# Columns of a sparkline.
_SPARK = 24


def print_curves(
    curves: Sequence[CellCurve],
    *,
    single: bool = False,
    height: int = 16,
    title: str = "",
    first: int = 0,
) -> None:
    """Print the chart of the first cells and the table of all.

    Args:
        curves: of the cells.
        single: whether each seed is drawn, instead of mean and deviation.
        height: of the chart, in lines.
        title: what stands above the chart, if anything.
        first: the epoch at which the chart begins.
    """
    known = [curve for curve in curves if curve.points]
    if title:
        terminal.write(title)
    if known:
        drawing = chart(known[:MOST_DRAWN], single=single, height=height, first=first)
        terminal.write_coloured(drawing)
    names = wording.columns(curves)
    letters = dict(zip([curve.cell_id for curve in known], string.ascii_uppercase, strict=False))
    drawn = {curve.cell_id for curve in known[:MOST_DRAWN]}
    gained = curves[0].over is not None
    rows = [
        [
            letters.get(curve.cell_id, "") if curve.cell_id in drawn else "",
            *wording.labels(curve, names),
            *_last(curve),
            *([_passes(curve)] if gained else []),
            sparkline([point.mean for point in curve.points]),
        ]
        for curve in curves
    ]
    what = ["GAIN ± STD", "PASSES"] if gained else ["MEAN ± STD"]
    heading = ["", *map(str.upper, names), "SEEDS", "EPOCH", *what, "CURVE"]
    right = (len(names) + 1, len(names) + 2)
    terminal.print_table(heading, rows, right=right)


def notes(curves: Sequence[CellCurve], *, single: bool) -> list[str]:
    """Return what the chart and the table mean."""
    first = curves[0]
    what = "lines: single seeds" if single else "lines: mean over seeds; dots: mean ± std"
    metric = first.metric if first.over is None else f"gain in {first.metric}"
    found = [f"{metric} on {first.set} by epoch; {what}."]
    if first.over is not None:
        found.append(
            "PASSES: the first epoch at which the mean is as good as the other cell's at its last"
            " one (in brackets)."
        )
    if any(not _is_whole(curve) for curve in curves):
        found.append("Some seeds are missing; an epoch's mean is over those that have it.")
    return found


def _is_whole(curve: CellCurve) -> bool:
    return bool(curve.points) and curve.points[-1].n == curve.planned


def _last(curve: CellCurve) -> list[str]:
    if not curve.points:
        return [f"0/{curve.planned}", f"0/{curve.epochs}", "—"]
    last = curve.points[-1]
    score = wording.score(last.mean, last.std)
    return [f"{last.n}/{curve.planned}", f"{last.epoch}/{curve.epochs}", score]


def _passes(curve: CellCurve) -> str:
    """Return the epoch at which a cell passes another one's end, and that end."""
    found = curve.passing
    if found is None:
        return "—"
    end = f"{found.level:.{wording.DECIMALS}f} at {found.at}"
    return f"never ({end})" if found.epoch is None else f"{found.epoch} ({end})"


def sparkline(values: Sequence[float]) -> str:
    """Return values as a line of bars, the lowest and the highest of them at its ends."""
    if not values:
        return ""
    step = max(1.0, len(values) / _SPARK)
    shown = [values[int(index * step)] for index in range(min(len(values), _SPARK))]
    shown[-1] = values[-1]
    bars = _BARS if terminal.can_print(_BARS) else _ASCII_BARS
    low, high = min(shown), max(shown)
    span = (high - low) or 1.0
    return "".join(bars[round((value - low) / span * (len(bars) - 1))] for value in shown)


def chart(
    curves: Sequence[CellCurve],
    *,
    single: bool,
    height: int,
    width: int | None = None,
    coloured: bool | None = None,
    first: int = 0,
) -> str:
    """Return the chart as lines of text, in braille, or in letters where that cannot be printed.

    Args:
        curves: of the cells.
        single: whether each seed is drawn, instead of mean and deviation.
        height: of the chart, in lines.
        width: columns that there are; None: those of the terminal.
        coloured: by escape sequences; None: where a person watches.
        first: the epoch at which it begins.
    """
    import plotille

    width = min(100, width or shutil.get_terminal_size().columns) - 16
    figure = plotille.Figure()
    figure.width, figure.height = max(20, width), height
    figure.color_mode = "names"
    figure.origin = False
    figure.with_colors = terminal.is_terminal() if coloured is None else coloured
    figure.x_label, figure.y_label = "epoch", printable(curves[0].metric)
    figure.register_label_formatter(float, _number)
    figure.register_label_formatter(int, _number)
    is_plain = not terminal.can_print(_BRAILLE_BLANK)
    low, high = _bounds(curves, single=single)
    last = max(first + 1, *(point.epoch for curve in curves for point in curve.points))
    # The upper limit is left out of the chart: a little more than the last epoch.
    figure.set_x_limits(first, last + (last - first) / (2 * figure.width))
    # Labels stand at equal distances, and so seldom at whole epochs.
    digits = 0 if last - first >= 5 * TICKS else 1
    figure.x_ticks_fkt = lambda value, _: f"{value:.{digits}f}"
    figure.set_y_limits(low, high)
    for index, curve in enumerate(curves):
        letter = string.ascii_uppercase[index]
        colour = _COLOURS[index] if figure.with_colors else None
        for line in _lines(curve, single=single):
            if not is_plain:
                figure.plot([*line], [*line.values()], lc=colour)
            # A line is known by its letter, with and without colours.
            marked = [*line] if is_plain else _marked([*line], index, len(curves))
            figure.scatter(marked, [line[at] for at in marked], lc=colour, marker=letter)
        if not single and not is_plain:
            _draw_band(figure, curve, colour)
    lines = [line.replace(_BRAILLE_BLANK, " ").rstrip() for line in figure.show().split("\n")]
    return "\n".join(lines)


def _lines(curve: CellCurve, *, single: bool) -> list[dict[int, float]]:
    if single:
        return [dict(sorted(own.items())) for _, own in sorted(curve.curves.items())]
    return [{point.epoch: point.mean for point in curve.points}]


def _marked(epochs: list[int], index: int, lines: int) -> list[int]:
    """Return the epochs at which a line has its letter, others than its neighbours have."""
    every = max(1, len(epochs) // 3)
    return epochs[every * index // lines :: every] or epochs[-1:]


def _draw_band(figure: Any, curve: CellCurve, colour: str | None) -> None:
    known = [point for point in curve.points if point.std]
    for sign in (-1, 1):
        epochs = [point.epoch for point in known]
        edge = [point.mean + sign * (point.std or 0.0) for point in known]
        if known:
            figure.scatter(epochs, edge, lc=colour)


def _bounds(curves: Sequence[CellCurve], *, single: bool) -> tuple[float, float]:
    values = []
    for curve in curves:
        for point in curve.points:
            spread = point.std or 0.0
            values += (
                [point.min, point.max] if single else [point.mean - spread, point.mean + spread]
            )
    low, high = min(values), max(values)
    margin = (high - low) * 0.05 or abs(high) * 0.05 or 1.0
    return low - margin, high + margin


def _number(value: float, chars: int, delta: float, left: bool = False) -> str:
    text = f"{value:.4g}"
    return text.ljust(chars) if left else text.rjust(chars)
