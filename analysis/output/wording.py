"""How a cell, its labels and its numbers are written. Rounding happens here and only here."""

from collections.abc import Sequence
from typing import Any


def columns(cells: list[dict[str, Any]]) -> list[str]:
    """Return the headings: axes that the cells differ in come after the head."""
    axes = sorted({name for cell in cells for name in cell["axes"]})
    varied = [name for name in axes if len({str(cell["axes"].get(name)) for cell in cells}) > 1]
    others = [name for name in ("recipe", "stage") if len({cell.get(name) for cell in cells}) > 1]
    return ["backbone", "dataset", "head", *varied, *others]


DECIMALS = 2


def labels(row: dict[str, Any], names: list[str]) -> list[str]:
    """Return what names a cell."""
    return [str(row.get(name, row["axes"].get(name, ""))) for name in names]


def label_of(row: dict[str, Any], names: Sequence[str] = ("backbone", "dataset", "head")) -> str:
    """Return what a cell is called in a sentence."""
    return " ".join(labels(row, list(names)))


def p_value(p: float | None) -> str:
    """Return a p value as text; none is printed as 0."""
    if p is None:
        return ""
    return f"{p:.3f}" if p >= 0.001 else f"{p:.0e}" if p >= 1e-16 else "<1e-16"


def as_range(bounds: list[float] | None, decimals: int = DECIMALS) -> str:
    return "" if bounds is None else f"[{bounds[0]:.{decimals}f}, {bounds[1]:.{decimals}f}]"


def score(cell: dict[str, Any], decimals: int = DECIMALS) -> str:
    """Return mean ± sample standard deviation over seeds; no ± at n = 1."""
    if cell["mean"] is None:
        return "—"
    if cell["std"] is None:
        return f"{cell['mean']:.{decimals}f}"
    # A spread that is there is never printed as none, nor none as one that was rounded away.
    unit = 10**-decimals
    small = f"<{unit:.{decimals}f}" if cell["std"] < unit / 2 else f"{cell['std']:.{decimals}f}"
    return f"{cell['mean']:.{decimals}f} ± {'0' if cell['std'] == 0 else small}"


def count(cell: dict[str, Any]) -> str:
    """Return `n=3` where all planned seeds are in, else `n=3/5, 1 failed, 1 running`."""
    if cell["n"] == cell["planned"]:
        return f"n={cell['n']}"
    missing = ", ".join(f"{number} {state}" for state, number in sorted(cell["states"].items()))
    return f"n={cell['n']}/{cell['planned']}" + (f", {missing}" if missing else "")
