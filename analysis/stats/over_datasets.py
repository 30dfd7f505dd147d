"""Ranks of methods over datasets (Demšar 2006).

Only where there are enough datasets, each a block. Pure.
"""

import math
from collections.abc import Mapping
from typing import Any

from .difference import ALPHA

# With fewer blocks the approximation of Friedman's statistic is none.
FROM = 5


def ranks(
    means: Mapping[str, Mapping[str, float]], *, better: str = "max", alpha: float = ALPHA
) -> dict[str, Any]:
    """Rank methods on each dataset and ask whether the mean ranks differ.

    Args:
        means: dataset -> method -> unrounded mean over seeds.
        better: max or min.
        alpha: of the critical difference.

    Returns:
        `datasets` that have every method, those left out in `without`; `ranks`, method -> mean
        rank, 1 is the best; Iman and Davenport's `f` and `p`; the critical difference `cd` of
        Nemenyi's test; or `why_not`.
    """
    methods = sorted({method for row in means.values() for method in row})
    whole = {name: row for name, row in sorted(means.items()) if set(row) == set(methods)}
    found: dict[str, Any] = {
        "datasets": sorted(whole),
        "without": sorted(means.keys() - whole.keys()),
        "methods": len(methods),
        "ranks": {},
        "f": None,
        "p": None,
        "cd": None,
        "why_not": "",
    }
    if len(methods) < 2:
        return found | {"why_not": "needs at least two methods"}
    if len(whole) < FROM:
        return found | {
            "why_not": f"only {len(whole)} datasets have every method; {FROM} are needed"
        }
    if len(found["without"]) > 0.2 * len(means):
        return found | {"why_not": "more than a fifth of the datasets lack results for a method"}
    from scipy.stats import f as fisher
    from scipy.stats import rankdata, studentized_range

    n, k = len(whole), len(methods)
    sign = -1 if better == "max" else 1
    table = [rankdata([sign * row[method] for method in methods]) for row in whole.values()]
    mean_ranks = [math.fsum(float(row[place]) for row in table) / n for place in range(k)]
    chi_square = (
        12 * n / (k * (k + 1)) * (math.fsum(rank**2 for rank in mean_ranks) - k * (k + 1) ** 2 / 4)
    )
    found["ranks"] = dict(
        sorted(zip(methods, mean_ranks, strict=True), key=lambda one: (one[1], one[0]))
    )
    quantile = float(studentized_range.ppf(1 - alpha, k, math.inf)) / math.sqrt(2)
    found["cd"] = quantile * math.sqrt(k * (k + 1) / (6 * n))
    rest = n * (k - 1) - chi_square
    if rest <= 1e-9:
        # All datasets agree: one order of k! on the first, and the same on the others.
        found["p"] = math.factorial(k) ** (1.0 - n)
    else:
        found["f"] = (n - 1) * chi_square / rest
        found["p"] = max(5e-324, float(fisher.sf(found["f"], k - 1, (k - 1) * (n - 1))))
    return found
