"""What the seeds of one cell say of its mean and its spread: pure functions of plain numbers."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

LEVEL = 0.95
# From so many values on, one that lies apart can be told from chance (Grubbs' G cannot exceed (n - 1)/√n).
FEWEST_FOR_OUTLIERS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """Two bounds, `low` never above `high`."""

    low: float
    high: float

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """One cell's final values over seeds; what the number of seeds does not allow is None."""

    n: int
    mean: float | None = None
    median: float | None = None
    std: float | None = None
    # Sample standard deviation, ddof 1.
    least: float | None = None
    most: float | None = None
    mean_interval: Interval | None = None
    # Of the mean, by Student's t.
    std_interval: Interval | None = None
    # Of the standard deviation, by chi square.
    next_interval: Interval | None = None
    # Where the value of one more seed would lie.
    luck: float | None = None
    # The best seed minus the mean: what reporting one's best run would add.
    flags: tuple[str, ...] = ()


def describe(values: Sequence[float], *, better: str = "max", level: float = LEVEL) -> Description:
    """Describe the values of one cell.

    Args:
        values: one finite value per seed, in any order.
        better: "max" or "min".
        level: of the intervals, between 0 and 1.

    Raises:
        ValueError: a value is not finite.
    """
    ordered = sorted(values)
    if not all(map(math.isfinite, ordered)):
        raise ValueError("only finite values can be described")
    n = len(ordered)
    if n == 0:
        return Description(n=0)
    mean, median = _mean(ordered), statistics.median(ordered)
    least, most = ordered[0], ordered[-1]
    if n == 1:
        return Description(n=1, mean=mean, median=median, least=least, most=most, flags=("one seed: no spread",))
    if least == most:
        flag = "all seeds gave the same value: is the seed wired in?"
        return Description(n=n, mean=mean, median=median, std=0.0, least=least, most=most, luck=0.0, flags=(flag,))
    std = statistics.stdev(ordered)
    return Description(
        n=n,
        mean=mean,
        median=median,
        std=std,
        least=least,
        most=most,
        mean_interval=mean_interval(mean, std, n, level=level),
        std_interval=std_interval(std, n, level=level),
        next_interval=next_interval(mean, std, n, level=level),
        luck=(mean - least) if better == "min" else (most - mean),
        flags=("two seeds: the interval is 9 std to each side",) if n == 2 else (),
    )


def mean_interval(mean: float, std: float, n: int, *, level: float = LEVEL) -> Interval:
    """Return the t interval of a mean of n ≥ 2 values with this sample standard deviation."""
    return _around(mean, _t(n - 1, level) * std / math.sqrt(n))


def next_interval(mean: float, std: float, n: int, *, level: float = LEVEL) -> Interval:
    """Return where one more value lies with this probability, n ≥ 2 (as Crawford and Howell 1998 compare one case)."""
    return _around(mean, _t(n - 1, level) * std * math.sqrt(1 + 1 / n))


def std_interval(std: float, n: int, *, level: float = LEVEL) -> Interval:
    """Return the chi-square interval of a standard deviation over n ≥ 2 values; it trusts in normal tails."""
    from scipy.stats import chi2

    tail = (1 - level) / 2
    low, high = (std * math.sqrt((n - 1) / float(chi2.ppf(share, n - 1))) for share in (1 - tail, tail))
    return Interval(low=low, high=high)


def best_of(values: Sequence[float], k: int) -> float:
    """Return the expected maximum of k of these values, drawn without replacement (Tang et al. 2020, unbiased).

    Raises:
        ValueError: k is not within 1…n.
    """
    ordered, n = sorted(values), len(values)
    if not 1 <= k <= n:
        raise ValueError(f"the best of {k} needs 1 ≤ {k} ≤ {n}")
    ways = (math.comb(rank - 1, k - 1) * value for rank, value in enumerate(ordered, start=1))
    return math.fsum(ways) / math.comb(n, k)


def outlier(values: Sequence[float], *, alpha: float = 0.05) -> tuple[float, float, float] | None:
    """Return the value farthest from the mean, Grubbs' G of it, and the critical G (two-sided); None for n < 5.

    It annotates and never removes: with n values |z| cannot exceed (n - 1)/√n, whatever happened to one of them.
    """
    n = len(values)
    if n < FEWEST_FOR_OUTLIERS or min(values) == max(values):
        return None
    from scipy.stats import t

    mean, std = _mean(sorted(values)), statistics.stdev(values)
    far = max(sorted(values), key=lambda value: abs(value - mean))
    quantile = float(t.ppf(1 - alpha / (2 * n), n - 2))
    critical = (n - 1) / math.sqrt(n) * math.sqrt(quantile**2 / (n - 2 + quantile**2))
    return far, abs(far - mean) / std, critical


def _mean(ordered: Sequence[float]) -> float:
    # A mean of equal values is that value, whatever rounding says.
    return min(max(statistics.fmean(ordered), ordered[0]), ordered[-1])


def _around(middle: float, half: float) -> Interval:
    return Interval(low=middle - half, high=middle + half)


def _t(df: int, level: float) -> float:
    from scipy.stats import t

    return float(t.ppf((1 + level) / 2, df))
