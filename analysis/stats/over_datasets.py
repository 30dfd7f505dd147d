"""Ranks of methods over datasets (Demšar 2006).

Only where there are enough datasets, each a block. Pure.
"""

import math
from collections.abc import Mapping

from ...jobs.documents import Document, changed
from .difference import ALPHA

# With fewer blocks the approximation of Friedman's statistic is none.
FROM = 5


class Ranking(Document, frozen=True, kw_only=True):
    """Mean ranks of methods over datasets."""

    datasets: list[str]
    """Those that have every method."""
    without: list[str]
    """Those left out."""
    methods: int
    """How many."""
    ranks: dict[str, float]
    """Method -> mean rank, 1 is the best."""
    f: float | None
    """Iman and Davenport's."""
    p: float | None
    """Of the test that all mean ranks are equal."""
    cd: float | None
    """Critical difference of Nemenyi's test."""
    why_not: str
    """Why they are not ranked."""


def ranks(
    means: Mapping[str, Mapping[str, float]], *, better: str = "max", alpha: float = ALPHA
) -> Ranking:
    """Rank methods on each dataset and ask whether the mean ranks differ.

    Args:
        means: dataset -> method -> unrounded mean over seeds.
        better: max or min.
        alpha: of the critical difference.
    """
    methods = sorted({method for row in means.values() for method in row})
    whole = {name: row for name, row in sorted(means.items()) if set(row) == set(methods)}
    found = Ranking(
        datasets=sorted(whole),
        without=sorted(means.keys() - whole.keys()),
        methods=len(methods),
        ranks={},
        f=None,
        p=None,
        cd=None,
        why_not="",
    )
    if len(methods) < 2:
        return changed(found, why_not="needs at least two methods")
    if len(whole) < FROM:
        why_not = f"only {len(whole)} datasets have every method; {FROM} are needed"
        return changed(found, why_not=why_not)
    if len(found.without) > 0.2 * len(means):
        why_not = "more than a fifth of the datasets lack results for a method"
        return changed(found, why_not=why_not)
    from scipy.stats import f as fisher
    from scipy.stats import rankdata, studentized_range

    n, k = len(whole), len(methods)
    sign = -1 if better == "max" else 1
    table = [rankdata([sign * row[method] for method in methods]) for row in whole.values()]
    mean_ranks = [math.fsum(float(row[place]) for row in table) / n for place in range(k)]
    chi_square = (
        12 * n / (k * (k + 1)) * (math.fsum(rank**2 for rank in mean_ranks) - k * (k + 1) ** 2 / 4)
    )
    by_rank = sorted(zip(methods, mean_ranks, strict=True), key=lambda one: (one[1], one[0]))
    quantile = float(studentized_range.ppf(1 - alpha, k, math.inf)) / math.sqrt(2)
    found = changed(found, ranks=dict(by_rank), cd=quantile * math.sqrt(k * (k + 1) / (6 * n)))
    rest = n * (k - 1) - chi_square
    if rest <= 1e-9:
        # All datasets agree: one order of k! on the first, and the same on the others.
        return changed(found, p=math.factorial(k) ** (1.0 - n))
    f = (n - 1) * chi_square / rest
    return changed(found, f=f, p=max(5e-324, float(fisher.sf(f, k - 1, (k - 1) * (n - 1)))))
