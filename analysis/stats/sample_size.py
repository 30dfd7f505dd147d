"""How many seeds a test needs, and what a number of seeds can find.

Pure functions of plain numbers. Effects and margins are in standard deviations: of two samples in
their common deviation, of pairs in that of the differences.
"""

import math
from collections.abc import Callable
from functools import lru_cache

from .difference import ALPHA, EFFECT_VARIANCE
from .distributions import chi2_quantile, t_quantile

POWER = 0.8
# Nobody buys more seeds than this for one comparison.
MOST_SEEDS = 10_000
# Of the one-sided limit of a deviation that seeds are counted with. Counted with the deviation of
# three seeds itself, "80 %" is 74 %; this is the smallest level, in tens, that gives 80 %.
STD_LEVEL = 0.6


def upper_std(std: float, df: float, level: float = STD_LEVEL) -> float:
    """Return the one-sided upper confidence limit of a standard deviation (Browne 1995).

    Args:
        std: the sample's.
        df: degrees of freedom of its square.
        level: how often the limit is above the true deviation.
    """
    return std * max(1.0, math.sqrt(df / chi2_quantile(1 - level, df)))


def power(
    effect: float, n: int, *, alpha: float = ALPHA, pairs: bool = False, anytime: bool = False
) -> float:
    """Return the power of a two-sided t test.

    Args:
        effect: the true difference, in standard deviations.
        n: values per sample, or pairs, at least 2.
        alpha: its size.
        pairs: whether seeds are paired.
        anytime: by the e-value of n pairs, at one look; further looks find more.
    """
    from scipy.stats import nct

    df, shift = _of_t(effect, n, pairs=pairs or anytime)
    if anytime and not pairs:
        # A pair's difference has twice the variance of its sides.
        shift /= math.sqrt(2)
    critical = _critical(df, n, alpha, anytime=anytime)
    if math.isinf(critical):
        return 0.0
    upper = float(nct.sf(critical, df, shift))
    lower = float(nct.cdf(-critical, df, shift))
    # Of very large effects scipy's tail is not a number; the power is 1 then.
    return upper + (0.0 if math.isnan(lower) else lower) if not math.isnan(upper) else 1.0


def _of_t(effect: float, n: int, *, pairs: bool) -> tuple[int, float]:
    """Return a t test's degrees of freedom, and its noncentrality."""
    if pairs:
        return n - 1, abs(effect) * math.sqrt(n)
    return 2 * n - 2, abs(effect) * math.sqrt(n / 2)


def _critical(df: int, n: int, alpha: float, *, anytime: bool) -> float:
    """Return the smallest |t| that is significant; inf where none is."""
    if anytime:
        # The e-value of `difference.e_value`, solved for t.
        wider = 1 + n * EFFECT_VARIANCE
        ratio = math.exp(2 * (math.log(1 / alpha) + 0.5 * math.log(wider)) / (df + 1))
        return math.sqrt(df * (ratio - 1) / (1 - ratio / wider)) if ratio < wider else math.inf
    return t_quantile(1 - alpha / 2, df)


@lru_cache(maxsize=1024)
def seeds_for(
    effect: float,
    *,
    alpha: float = ALPHA,
    wanted: float = POWER,
    pairs: bool = False,
    anytime: bool = False,
) -> int | None:
    """Return how many seeds per side find an effect (as in `power`) so often; None above 10,000."""

    def enough(n: int) -> bool:
        return power(effect, n, alpha=alpha, pairs=pairs, anytime=anytime) >= wanted

    return None if effect == 0.0 else _smallest(enough, pairs=pairs or anytime)


@lru_cache(maxsize=1024)
def seeds_for_equivalence(
    margin: float,
    *,
    gap: float = 0.0,
    alpha: float = ALPHA,
    wanted: float = POWER,
    pairs: bool = False,
) -> int | None:
    """Return how many seeds per side show a tie (as in `power_of_equivalence`) so often.

    None above 10,000.
    """

    def enough(n: int) -> bool:
        return power_of_equivalence(margin, n, gap=gap, alpha=alpha, pairs=pairs) >= wanted

    return None if abs(gap) >= margin else _smallest(enough, pairs=pairs)


def _smallest(enough: Callable[[int], bool], *, pairs: bool) -> int | None:
    """Return the smallest number of seeds that is enough; None above 10,000."""
    if not enough(MOST_SEEDS):
        return None
    # A paired test needs three pairs.
    low, high = 3 if pairs else 2, MOST_SEEDS
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle + 1, high)
    return low


def power_of_equivalence(
    margin: float, n: int, *, gap: float = 0.0, alpha: float = ALPHA, pairs: bool = False
) -> float:
    """Return how often two one-sided t tests show that a difference is within ± a margin.

    Exact for normal values: the normal probability, over the distribution of the sample's deviation
    (Phillips 1990).

    Args:
        margin: in standard deviations, above 0.
        n: values per sample, or pairs, at least 2.
        gap: the true difference, in standard deviations.
        alpha: size of each test.
        pairs: whether seeds are paired.
    """
    import numpy
    from scipy.stats import chi2, norm

    df, per_unit = _of_t(1.0, n, pairs=pairs)
    # Quantiles of the deviation, in equal steps of probability.
    deviations = numpy.sqrt(chi2.ppf((numpy.arange(_STEPS) + 0.5) / _STEPS, df) / df)
    room = margin * per_unit - t_quantile(1 - alpha, df) * deviations
    shift = gap * per_unit
    inside = norm.cdf(room - shift) - norm.cdf(-room - shift)
    return float(numpy.where(room > 0, inside, 0.0).mean())


# Of the integral over the sample's deviation: its error is below 0.001.
_STEPS = 2000


@lru_cache(maxsize=1024)
def detectable(
    n: int,
    *,
    alpha: float = ALPHA,
    wanted: float = POWER,
    pairs: bool = False,
) -> float:
    """Return the smallest effect (as in `power`) that n ≥ 2 seeds per side find so often."""
    low, high = 0.0, 64.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (
            (low, middle)
            if power(middle, n, alpha=alpha, pairs=pairs) >= wanted
            else (middle, high)
        )
    return high
