"""What order alone says of two cells.

Exact rank tests with their floor, and how often one beats the other. Pure.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ...jobs.documents import Document
from .difference import exactly
from .summary import LEVEL

# From here on a side has enough seeds for the interval of a probability.
INTERVAL_FROM = 8
# Splits of all seeds into two sides that are gone through one by one; beyond, the normal
# approximation is good.
MOST_SPLITS = 20_000


class RankTest(Document, frozen=True, kw_only=True):
    """What order alone says of two cells, where more is better."""

    p: float | None
    """Two-sided: Mann and Whitney's, exact with ties too; of pairs Wilcoxon's signed ranks."""
    floor: float | None
    """The smallest p that so many seeds can give."""
    wins: int
    """Pairs of one value each in which the cell's is larger."""
    draws: int
    """Pairs in which both are equal."""
    pairs: int
    """All of them."""
    improvement: float | None
    """P(value > baseline) + ½ P(equal)."""
    interval: list[float] | None
    """Of the improvement, from eight seeds a side (Brunner and Munzel 2000), within 0 and 1."""


def of_two(values: Sequence[float], baseline: Sequence[float], *, level: float = LEVEL) -> RankTest:
    """Compare two independent samples by ranks.

    Args:
        values: one finite value per seed.
        baseline: the same of the other cell.
        level: of the interval.
    """
    n, m = len(values), len(baseline)
    wins = sum(own > other for own in values for other in baseline)
    draws = sum(own == other for own in values for other in baseline)
    is_tested = min(n, m) >= 2
    return RankTest(
        p=_mann_whitney(values, baseline) if is_tested else None,
        floor=2 / math.comb(n + m, n) if is_tested else None,
        wins=wins,
        draws=draws,
        pairs=n * m,
        improvement=(wins + draws / 2) / (n * m) if n and m else None,
        interval=_brunner_munzel(values, baseline, level) if min(n, m) >= INTERVAL_FROM else None,
    )


def of_pairs(values: Mapping[int, float], baseline: Mapping[int, float]) -> RankTest:
    """Compare seed by seed: exact signed ranks (Wilcoxon 1945).

    Args:
        values: seed -> value.
        baseline: the same of the other cell.
    """
    seeds = sorted(values.keys() & baseline.keys())
    n = len(seeds)
    both = [*(values[seed] for seed in seeds), *(baseline[seed] for seed in seeds)]
    each = exactly([values[seed] - baseline[seed] for seed in seeds], both)
    wins, draws = sum(one > 0 for one in each), sum(one == 0 for one in each)
    is_tested = n >= 2 and draws < n
    return RankTest(
        p=_wilcoxon(each, draws) if is_tested else None,
        floor=2 / 2**n if is_tested else None,
        wins=wins,
        draws=draws,
        pairs=n,
        improvement=(wins + draws / 2) / n if n else None,
        interval=None,
    )


def _wilcoxon(each: Sequence[float], draws: int) -> float:
    from scipy.stats import PermutationMethod, wilcoxon

    n = len(each)
    tied = draws or len({abs(one) for one in each}) < n
    method = (
        "approx" if tied and n > 17 else PermutationMethod(n_resamples=2**18) if tied else "exact"
    )
    with_zeros = "pratt" if draws else "wilcox"
    p = wilcoxon(
        each, method=method if n <= 1000 or tied else "approx", zero_method=with_zeros
    ).pvalue
    return min(1.0, float(p))


def _mann_whitney(values: Sequence[float], baseline: Sequence[float]) -> float:
    from scipy.stats import mannwhitneyu, permutation_test, rankdata

    n, m = len(values), len(baseline)
    if len({*values, *baseline}) == n + m:
        method = "exact" if n * m <= 10_000 else "asymptotic"
        return float(mannwhitneyu(values, baseline, alternative="two-sided", method=method).pvalue)
    if math.comb(n + m, n) > MOST_SPLITS:
        return float(
            mannwhitneyu(values, baseline, alternative="two-sided", method="asymptotic").pvalue
        )
    ranks = rankdata([*values, *baseline])
    if min(ranks) == max(ranks):
        return 1.0

    def distance(own: Any, _: Any, axis: int) -> Any:
        return abs(own.sum(axis=axis) - n * (n + m + 1) / 2)

    exact = permutation_test(
        (ranks[:n], ranks[n:]),
        distance,
        vectorized=True,
        n_resamples=math.inf,
        alternative="greater",
    )
    return float(exact.pvalue)


def _brunner_munzel(
    values: Sequence[float], baseline: Sequence[float], level: float
) -> list[float] | None:
    """Return the interval of P(value > baseline) + ½ P(equal).

    None where one side wins every pair.
    """
    import numpy
    from scipy.stats import rankdata, t

    n, m = len(values), len(baseline)
    joint = rankdata([*values, *baseline])
    # Where each value stands among the other side's.
    placements = (joint[:n] - rankdata(values), joint[n:] - rankdata(baseline))
    variances = [float(numpy.var(one, ddof=1)) for one in placements]
    parts = variances[0] / (n * m**2), variances[1] / (m * n**2)
    if sum(parts) == 0.0:
        return None
    df = sum(parts) ** 2 / (parts[0] ** 2 / (n - 1) + parts[1] ** 2 / (m - 1))
    centre = float(placements[0].mean()) / m
    half = float(t.ppf(0.5 + level / 2, df)) * math.sqrt(sum(parts))
    return [max(0.0, centre - half), min(1.0, centre + half)]
