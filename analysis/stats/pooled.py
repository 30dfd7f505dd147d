"""One difference over several datasets, from the difference and its error on each. Pure.

Of two questions one has to be chosen: whether a head is better on these datasets, where chance is
that of the seeds; or on datasets like these, where chance is also which datasets were taken.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from ...jobs.values import Value, changed
from .difference import ALPHA, Difference, Interval, tested
from .distributions import t_quantile

# With fewer datasets a deviation over them says next to nothing.
DATASETS_FROM = 3
# With fewer seeds a bootstrap covers less than it says.
BOOTSTRAP_FROM = 10
DRAWS = 2000


class Part(Value, frozen=True):
    """The difference on one dataset."""

    difference: float
    error: float
    """Its standard error, above 0."""
    df: float


def over_these(parts: Sequence[Part], *, alpha: float = ALPHA) -> Difference:
    """Return the mean difference over the datasets, as the seeds alone let it vary.

    Datasets are fixed. The error is made of those on each dataset, with Satterthwaite's degrees of
    freedom.

    Args:
        parts: of each dataset, at least one.
        alpha: 1 - the level of the interval.
    """
    squares = [part.error**2 for part in parts]
    total = math.fsum(squares)
    df = total**2 / math.fsum(
        square**2 / part.df for square, part in zip(squares, parts, strict=True)
    )
    mean = statistics.fmean(part.difference for part in parts)
    return tested(
        mean, math.sqrt(total) / len(parts), df, alpha, n=len(parts), n_baseline=len(parts)
    )


def over_datasets_like_these(parts: Sequence[Part], *, alpha: float = ALPHA) -> Difference:
    """Return the mean difference, as seeds and datasets let it vary.

    Datasets are a random factor, as is what head and dataset do together. Where all datasets have
    as many seeds and one deviation, this is the mixed model by REML, in which a head's difference
    varies by τ²/D + σ²/(nD) with D - 1 degrees of freedom; where they have not, it holds still.

    Args:
        parts: of each dataset.
        alpha: 1 - the level of the interval.
    """
    n, each = len(parts), [part.difference for part in parts]
    mean = statistics.fmean(each)
    if n < DATASETS_FROM:
        why = f"needs {DATASETS_FROM} datasets"
        return Difference(n=n, n_baseline=n, difference=mean, why_not=why)
    std = statistics.stdev(each)
    if std == 0.0:
        why = "all datasets show the same difference"
        return Difference(n=n, n_baseline=n, difference=mean, why_not=why)
    found = tested(mean, std / math.sqrt(n), n - 1, alpha, n=n, n_baseline=n)
    return changed(found, std=std)


def between_datasets(parts: Sequence[Part]) -> float:
    """Return τ: the standard deviation over datasets of the true differences, by REML.

    Fisher scoring (Viechtbauer 2005, equation 13); 0 where the seeds explain all of the spread.

    Args:
        parts: of at least two datasets.
    """
    import numpy

    seen = numpy.array([part.difference for part in parts])
    errors = numpy.array([part.error**2 for part in parts])
    square = max(0.0, float(seen.var(ddof=1) - errors.mean()))
    for _ in range(200):
        weights = 1 / (errors + square)
        whole = weights.sum()
        # P of the restricted likelihood, applied to the differences; the traces of P and PP.
        applied = weights * (seen - (weights * seen).sum() / whole)
        trace = whole - (weights**2).sum() / whole
        of_square = (
            (weights**2).sum() - 2 * (weights**3).sum() / whole + ((weights**2).sum() / whole) ** 2
        )
        step = float(((applied**2).sum() - trace) / of_square)
        last, square = square, max(0.0, square + step)
        if abs(square - last) <= 1e-12 * (1 + square):
            break
    return math.sqrt(square)


def prediction(parts: Sequence[Part], tau: float, *, alpha: float = ALPHA) -> Interval | None:
    """Return where the true difference on one further dataset falls (Higgins, Thompson and
    Spiegelhalter 2009, equation 12); None below three datasets.

    Args:
        parts: of each dataset.
        tau: of `between_datasets`.
        alpha: 1 - the level.
    """
    found = over_datasets_like_these(parts, alpha=alpha)
    if found.error is None or found.difference is None:
        return None
    half = t_quantile(1 - alpha / 2, len(parts) - 2) * math.hypot(tau, found.error)
    return Interval(low=found.difference - half, high=found.difference + half)


def interquartile(
    sides: Mapping[str, tuple[Sequence[float], Sequence[float]]], *, alpha: float = ALPHA
) -> tuple[float, Interval | None]:
    """Return the difference of the interquartile means over all runs, scored as the gain over the
    baseline's mean on their dataset, and its interval by a stratified bootstrap: runs are drawn
    anew on each dataset (Agarwal et al. 2021).

    Args:
        sides: dataset -> values of the cell and of its baseline.
        alpha: 1 - the level. There is an interval from ten seeds on each side on.
    """
    import numpy

    found = _iqm_difference(
        [tuple(numpy.asarray(side, dtype=float)[None] for side in pair) for pair in sides.values()]
    )
    if min(len(side) for pair in sides.values() for side in pair) < BOOTSTRAP_FROM:
        return float(found[0]), None
    generator = numpy.random.default_rng(0)
    drawn = [
        tuple(
            numpy.asarray(side, dtype=float)[generator.integers(0, len(side), (DRAWS, len(side)))]
            for side in pair
        )
        for _, pair in sorted(sides.items())
    ]
    low, high = numpy.quantile(_iqm_difference(drawn), [alpha / 2, 1 - alpha / 2])
    return float(found[0]), Interval(low=float(low), high=float(high))


def _iqm_difference(pairs: Sequence[tuple[Any, ...]]) -> Any:
    """Return [draws] differences of the interquartile means.

    Args:
        pairs: of each dataset, [draws, seeds] values of the cell and of its baseline.
    """
    import numpy
    from scipy.stats import trim_mean

    gains = [
        [side - baseline.mean(1, keepdims=True) for side in (own, baseline)]
        for own, baseline in pairs
    ]
    own, other = (numpy.concatenate(side, axis=1) for side in zip(*gains, strict=True))
    return trim_mean(own, 0.25, axis=1) - trim_mean(other, 0.25, axis=1)
