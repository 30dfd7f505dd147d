"""What order alone says of two cells.

Exact rank tests with their floor, and how often one beats the other. Pure.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from .difference import exactly
from .summary import LEVEL

# From here on a side has enough seeds for the interval of a probability.
INTERVAL_FROM = 8
# Splits of all seeds into two sides that are gone through one by one; beyond, the normal
# approximation is good.
MOST_SPLITS = 20_000


def of_two(
    values: Sequence[float], baseline: Sequence[float], *, level: float = LEVEL
) -> dict[str, Any]:
    """Compare two independent samples by ranks.

    Args:
        values: one finite value per seed.
        baseline: the same of the other cell.
        level: of the interval.

    Returns, where more is better:
        `p` of the two-sided Mann-Whitney test, exact with ties too, and `floor`, the smallest that
        so many seeds can give; `wins` and `draws` of the `pairs` of one value each; `improvement`,
        P(value > baseline) + ½ P(equal), and from eight seeds a side its `interval` (Brunner and
        Munzel 2000), within 0 and 1.
    """
    n, m = len(values), len(baseline)
    wins = sum(own > other for own in values for other in baseline)
    draws = sum(own == other for own in values for other in baseline)
    found: dict[str, Any] = {"p": None, "floor": None, "wins": wins, "draws": draws, "pairs": n * m}
    found |= {"improvement": (wins + draws / 2) / (n * m) if n and m else None, "interval": None}
    if min(n, m) < 2:
        return found
    found |= {"p": _mann_whitney(values, baseline), "floor": 2 / math.comb(n + m, n)}
    if min(n, m) >= INTERVAL_FROM:
        found["interval"] = _brunner_munzel(values, baseline, level)
    return found


def of_pairs(values: Mapping[int, float], baseline: Mapping[int, float]) -> dict[str, Any]:
    """Compare seed by seed: exact signed ranks (Wilcoxon 1945), in the form of `of_two`.

    Args:
        values: seed -> value.
        baseline: the same of the other cell.
    """
    from scipy.stats import PermutationMethod, wilcoxon

    seeds = sorted(values.keys() & baseline.keys())
    n = len(seeds)
    both = [*(values[seed] for seed in seeds), *(baseline[seed] for seed in seeds)]
    each = exactly([values[seed] - baseline[seed] for seed in seeds], both)
    wins, draws = sum(one > 0 for one in each), sum(one == 0 for one in each)
    found: dict[str, Any] = {
        "p": None,
        "floor": None,
        "wins": wins,
        "draws": draws,
        "pairs": n,
        "interval": None,
    }
    found["improvement"] = (wins + draws / 2) / n if n else None
    if n < 2 or draws == n:
        return found
    tied = draws or len({abs(one) for one in each}) < n
    method = (
        "approx" if tied and n > 17 else PermutationMethod(n_resamples=2**18) if tied else "exact"
    )
    with_zeros = "pratt" if draws else "wilcox"
    p = wilcoxon(
        each, method=method if n <= 1000 or tied else "approx", zero_method=with_zeros
    ).pvalue
    return found | {"p": min(1.0, float(p)), "floor": 2 / 2**n}


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
