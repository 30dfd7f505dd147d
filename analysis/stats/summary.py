"""What the seeds of one cell say: centre, spread, and how far either can be trusted.

Pure functions of plain numbers. What so few seeds cannot say is None, never NaN.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from functools import lru_cache

from ...jobs.documents import Document
from ...jobs.values import Value
from .distributions import chi2_quantile, t_quantile

LEVEL = 0.95
# Below it the interquartile mean is the mean, and a median absolute deviation says little.
ROBUST_FROM = 8
# Below it a bootstrap covers less than it says: of normal seeds 85 % at five, 90 % at ten and 92 %
# at twenty, where 95 % is meant.
BOOTSTRAP_FROM = 30
# With fewer seeds hardly any value can stand out.
OUTLIER_FROM = 5


class Outlier(Document, frozen=True, kw_only=True):
    """The seed that is farthest out (Grubbs 1969)."""

    seed: int
    """The seed."""
    g: float
    """Its distance from the mean, in standard deviations."""
    critical: float
    """The distance that chance exceeds with probability 1 - level."""
    flagged: bool
    """Whether it is farther than that."""


class Description(Document, frozen=True, kw_only=True):
    """What the seeds of one cell say. What so few seeds cannot say is None, never NaN."""

    n: int
    mean: float | None
    median: float | None
    """Over seeds."""
    std: float | None
    """Sample standard deviation (ddof 1)."""
    sem: float | None
    """Standard error of the mean."""
    min: float | None
    """The smallest value."""
    max: float | None
    """The largest value."""
    level: float
    """Of all intervals."""
    interval: list[float] | None
    """Of the mean, by Student's t, from three seeds on: that of two is 18 deviations wide."""
    std_interval: list[float] | None
    """Of the standard deviation, by χ², from three seeds on."""
    prediction: list[float] | None
    """Where one further seed falls, from three seeds on."""
    mad: float | None
    """Median absolute deviation, from eight seeds on."""
    iqm: float | None
    """Interquartile mean, from eight seeds on."""
    best_of_n: float | None
    """How far the best seed lies from the mean."""
    luck: float | None
    """How far the best of as many normal draws would lie from it, on average."""
    best_of: dict[str, float]
    """k -> the expected best of k of these seeds (Tang et al. 2020)."""
    outlier: Outlier | None
    """From five seeds on."""
    bca: list[float] | None
    """The bootstrap's interval of the mean (BCa), from thirty seeds on."""
    constant: bool
    """Whether all seeds agree."""
    seed_0: float | None
    """The value of seed 0."""
    seed_0_offset: float | None
    """Seed 0 minus the mean of the others: it is the one that is mostly reported."""


def describe(
    values: Mapping[int, float], *, better: str = "max", level: float = LEVEL
) -> Description:
    """Describe a cell.

    Args:
        values: seed -> finite value.
        better: max or min, for the best seed.
        level: of the intervals.
    """
    ordered = [values[seed] for seed in sorted(values)]
    n = len(ordered)
    mean = statistics.fmean(ordered) if n else None
    std = statistics.stdev(ordered) if n > 1 else None
    best = (max if better == "max" else min)(ordered, default=math.nan)
    spread = _Spread(ordered, mean, std, level) if mean is not None and std is not None else None
    ranked = sorted(ordered, reverse=better == "min")
    return Description(
        n=n,
        mean=mean,
        median=statistics.median(ordered) if n else None,
        std=std,
        sem=std / math.sqrt(n) if std is not None else None,
        min=min(ordered) if n else None,
        max=max(ordered) if n else None,
        level=level,
        interval=spread.interval() if spread else None,
        std_interval=spread.std_interval() if spread else None,
        prediction=spread.prediction() if spread else None,
        mad=_mad(ordered) if n >= ROBUST_FROM else None,
        iqm=_iqm(ordered) if n >= ROBUST_FROM else None,
        best_of_n=abs(best - mean) if mean is not None and n > 1 else None,
        luck=std / unbiased(n) * expected_best(n) if std is not None else None,
        best_of=(
            {str(k): best_of(ranked, k) for k in (2, 3, 5, 10, 30) if k <= n} if spread else {}
        ),
        outlier=_grubbs(values, spread, level) if spread and n >= OUTLIER_FROM and std else None,
        bca=_bca(ordered, level) if n >= BOOTSTRAP_FROM and std else None,
        constant=std == 0.0,
        seed_0=values.get(0),
        seed_0_offset=_seed_0_offset(values),
    )


class _Spread(Value, frozen=True):
    """At least two values, with the intervals that follow from their spread."""

    ordered: Sequence[float]
    mean: float
    std: float
    level: float

    @property
    def n(self) -> int:
        return len(self.ordered)

    def _around(self, half: float) -> list[float]:
        return [self.mean - half, self.mean + half]

    def interval(self) -> list[float] | None:
        if self.n < 3:
            return None
        return self._around(student(self.level, self.n - 1) * self.std / math.sqrt(self.n))

    def std_interval(self) -> list[float] | None:
        if self.n < 3:
            return None
        low, high = spread_factors(self.n, self.level)
        return [self.std * low, self.std * high]

    def prediction(self) -> list[float] | None:
        if self.n < 3:
            return None
        return self._around(student(self.level, self.n - 1) * self.std * math.sqrt(1 + 1 / self.n))


def best_of(ranked: Sequence[float], k: int) -> float:
    """Return the expected best of k of n values drawn without replacement, worst value first, k at
    most n.
    """
    n = len(ranked)
    return math.fsum(
        math.comb(place, k - 1) / math.comb(n, k) * value for place, value in enumerate(ranked)
    )


def _grubbs(values: Mapping[int, float], spread: _Spread, level: float) -> Outlier:
    """Name the farthest seed, and whether it is farther than chance would have it (Grubbs 1969)."""
    n = len(values)
    seed = max(sorted(values), key=lambda one: abs(values[one] - spread.mean))
    quantile = t_quantile(1 - (1 - level) / (2 * n), n - 2)
    critical = (n - 1) / math.sqrt(n) * math.sqrt(quantile**2 / (n - 2 + quantile**2))
    distance = abs(values[seed] - spread.mean) / spread.std
    return Outlier(seed=seed, g=distance, critical=critical, flagged=distance > critical)


def _bca(values: Sequence[float], level: float) -> list[float]:
    import numpy
    from scipy.stats import bootstrap

    draw = numpy.random.default_rng(0)
    found = bootstrap(
        (sorted(values),), numpy.mean, confidence_level=level, method="BCa", rng=draw
    ).confidence_interval
    return [float(found.low), float(found.high)]


def _seed_0_offset(values: Mapping[int, float]) -> float | None:
    others = [value for seed, value in values.items() if seed != 0]
    return values[0] - statistics.fmean(others) if 0 in values and others else None


def _mad(values: Sequence[float]) -> float:
    from scipy.stats import median_abs_deviation

    return float(median_abs_deviation(values))


def _iqm(values: Sequence[float]) -> float:
    from scipy.stats import trim_mean

    return float(trim_mean(values, 0.25))


@lru_cache(maxsize=4096)
def student(level: float, df: int) -> float:
    """Return the two-sided quantile of Student's t."""
    return t_quantile(0.5 + level / 2, df)


@lru_cache(maxsize=4096)
def spread_factors(n: int, level: float = LEVEL) -> tuple[float, float]:
    """Return the factors of the standard deviation that give its interval, for n ≥ 2."""
    df = n - 1
    high, low = chi2_quantile(0.5 + level / 2, df), chi2_quantile(0.5 - level / 2, df)
    return math.sqrt(df / high), math.sqrt(df / low)


@lru_cache(maxsize=4096)
def unbiased(n: int) -> float:
    """Return c4: the expected deviation of n ≥ 2 normal draws, as a share of the true one."""
    return math.sqrt(2 / (n - 1)) * math.exp(math.lgamma(n / 2) - math.lgamma((n - 1) / 2))


@lru_cache(maxsize=256)
def expected_best(n: int) -> float:
    """Return the expected maximum of n independent standard normal draws."""
    if n < 2:
        return 0.0
    from scipy.integrate import quad
    from scipy.stats import norm

    value, _ = quad(
        lambda x: x * n * norm.pdf(x) * norm.cdf(x) ** (n - 1), -12.0, 12.0, epsabs=1e-12, limit=200
    )
    return float(value)
