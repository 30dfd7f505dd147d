"""Comparisons over all datasets as text: a line for each dataset, and one for all of them."""

from ..findings.comparisons import Comparisons
from ..findings.pooled import DatasetDifference, PooledComparison
from .layout import Table
from .notes import comparison_notes
from .wording import DECIMALS, columns, labels, p_value


def of_pooled(document: Comparisons, *, decimals: int = DECIMALS) -> Table:
    """Return each dataset's difference, then the mean over all with its p and verdict."""
    found = document.pooled
    names = [name for name in columns(found) if name != "dataset"]
    level = f"{100 * (1 - document.alpha):g}% CI"
    over = len({one.baseline_head for one in found}) > 1
    body: list[list[str]] = []
    for one in found:
        label = [*labels(one, names), *([one.baseline_head] if over else [])]
        for part in one.datasets:
            body.append(
                [
                    *label,
                    part.dataset,
                    f"{part.n}, {part.n_baseline}",
                    _signed(part.difference, decimals),
                    _ends(part.interval, decimals),
                    "",
                    part.why_not,
                ]
            )
        body.append(
            [
                *label,
                f"all {len(one.datasets)}",
                "",
                _signed(one.difference, decimals),
                _ends(one.interval, decimals),
                p_value(one.p_adjusted),
                one.verdict + (f": {one.detail}" if one.detail else ""),
            ]
        )
    heading = [*names, *(["over"] if over else []), "dataset", "n"]
    heading += ["difference" if over else f"− {found[0].baseline_head}", level, "p", "verdict"]
    said = [_beside(one, names, decimals) for one in found if one.difference is not None]
    return Table(
        heading=heading,
        body=body,
        notes=[*comparison_notes(document), *said],
        labels=len(names) + over + 1,
    )


def lines(document: Comparisons) -> list[tuple[PooledComparison, DatasetDifference | None]]:
    """Return the lines of a forest plot: of each head its datasets, then None for all of them."""
    return [(one, part) for one in document.pooled for part in (*one.datasets, None)]


def _signed(value: float | None, decimals: int) -> str:
    return "—" if value is None else f"{value:+.{decimals}f}"


def _ends(interval: list[float] | None, decimals: int) -> str:
    if interval is None:
        return ""
    return f"[{interval[0]:+.{decimals}f}, {interval[1]:+.{decimals}f}]"


def _beside(one: PooledComparison, names: list[str], decimals: int) -> str:
    """Return the other intervals of a comparison, in a line."""
    parts = [
        ("fixed", _ends(one.fixed, decimals)),
        ("random", _ends(one.random, decimals)),
        ("τ", "" if one.tau is None else f"{one.tau:.{decimals}f}"),
        ("new", _ends(one.prediction, decimals)),
        (
            "interquartile mean",
            f"{_signed(one.iqm, decimals)} {_ends(one.iqm_interval, decimals)}".strip(),
        ),
    ]
    said = ", ".join(f"{name} {text}" for name, text in parts if text)
    return f"{' '.join(labels(one, names))}: {said}."
