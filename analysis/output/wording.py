"""How a cell, its labels and its numbers are written. Rounding happens here and only here."""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from ...jobs.names import one_line
from ...jobs.run.spec import Axes
from ..findings.cell import LABELS

DECIMALS = 2


class Labelled(Protocol):
    """A document about one cell: of a report, a comparison, a need…"""

    @property
    def backbone(self) -> str: ...
    @property
    def head(self) -> str: ...
    @property
    def recipe(self) -> str: ...
    @property
    def axes(self) -> Axes: ...


def columns(cells: Sequence[Labelled]) -> list[str]:
    """Return the headings: axes that the cells differ in come after the head."""
    # An axis of recipes is the recipe's own column.
    axes = sorted({name for cell in cells for name in cell.axes} - {"recipe"})
    varied = [name for name in axes if len({str(cell.axes.get(name)) for cell in cells}) > 1]
    others = [
        name
        for name in ("recipe", "stage")
        if len({getattr(cell, name, None) for cell in cells}) > 1
    ]
    return ["backbone", "dataset", "head", *varied, *others]


def labels(row: Labelled, names: Sequence[str]) -> list[str]:
    """Return what names a cell."""
    return [
        one_line(str(getattr(row, name, "") if name in LABELS else row.axes.get(name, "")))
        for name in names
    ]


def label_of(row: Labelled, names: Sequence[str] = ("backbone", "dataset", "head")) -> str:
    """Return what a cell is called in a sentence."""
    return " ".join(labels(row, names))


def title_of(row: Labelled, names: Sequence[str]) -> str:
    """Return what a cell is called where no heading says which axis a value belongs to."""
    words = [
        text if name in LABELS else f"{name}={text}"
        for name, text in zip(names, labels(row, names), strict=True)
    ]
    return " ".join(filter(None, words))


def p_value(p: float | None) -> str:
    """Return a p value as text; none is printed as 0."""
    if p is None:
        return ""
    return f"{p:.3f}" if p >= 0.001 else f"{p:.0e}" if p >= 1e-16 else "<1e-16"


def as_range(bounds: Sequence[float] | None, decimals: int = DECIMALS) -> str:
    return "" if bounds is None else f"[{bounds[0]:.{decimals}f}, {bounds[1]:.{decimals}f}]"


def score(mean: float | None, std: float | None, decimals: int = DECIMALS) -> str:
    """Return mean ± sample standard deviation over seeds; no ± at n = 1."""
    if mean is None:
        return "—"
    if std is None:
        return f"{mean:.{decimals}f}"
    # A spread that is there is never printed as none, nor none as one that was rounded away.
    unit = 10**-decimals
    small = f"<{unit:.{decimals}f}" if std < unit / 2 else f"{std:.{decimals}f}"
    return f"{mean:.{decimals}f} ± {'0' if std == 0 else small}"


def count(
    n: int,
    planned: int,
    states: Mapping[str, int],
    imported: int = 0,
    seeds: Collection[int] = (),
) -> str:
    """Return `n=3` where all planned seeds are in, else `n=3/5, 1 failed, 1 running`.

    Of a single run its seed is told: `n=1 (seed 0)`.

    Args:
        n: seeds with a value.
        planned: all seeds.
        states: of the others -> how many.
        imported: how many of those with a value were trained elsewhere.
        seeds: of those with a value, where they are known.
    """
    parts = [f"n={n}" if n == planned else f"n={n}/{planned}"]
    if len(seeds) == 1:
        parts[0] += f" (seed {next(iter(seeds))})"
    if n != planned:
        parts += [f"{number} {state}" for state, number in sorted(states.items())]
    if imported:
        parts.append("imported" if imported == n else f"{imported} imported")
    return ", ".join(parts)
