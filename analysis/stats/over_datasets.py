"""Ranks of methods over datasets (Demšar 2006).

Only where there are enough datasets, each a block. Two methods are compared by the exact sign test
and by signed ranks, more by permutations of Friedman's statistic: with few datasets its
approximations are wrong, and stronger evidence may get a larger p. Pure.
"""

import math
from collections.abc import Mapping

from ...jobs.documents import Document
from ...jobs.values import changed
from .difference import ALPHA
from .rank_tests import of_pairs

# With fewer datasets nothing is significant between two methods.
FROM = 5
# Permutations that are drawn for the p of more than two methods, with one seed, so that a report
# says the same each time.
DRAWS = 20_000


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
    """Iman and Davenport's, of three and more methods."""
    p: float | None
    """That all methods are alike: of two the exact sign test's, ties left out; of more that of
    permutations of Friedman's statistic.
    """
    cd: float | None
    """Critical difference of Nemenyi's test, of three and more methods."""
    why_not: str
    """Why they are not ranked."""
    p_signed_ranks: float | None = None
    """Wilcoxon's, of two methods: it counts by how much one is better, too."""


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
    from scipy.stats import rankdata

    n, k = len(whole), len(methods)
    sign = -1 if better == "max" else 1
    table = [
        [float(rank) for rank in rankdata([sign * row[method] for method in methods])]
        for row in whole.values()
    ]
    mean_ranks = [math.fsum(row[place] for row in table) / n for place in range(k)]
    by_rank = sorted(zip(methods, mean_ranks, strict=True), key=lambda one: (one[1], one[0]))
    found = changed(found, ranks=dict(by_rank))
    if k == 2:
        sides = [dict(enumerate(row[method] for row in whole.values())) for method in methods]
        paired = of_pairs(*sides)
        return changed(
            found, p=_sign_test(paired.wins, paired.pairs - paired.draws), p_signed_ranks=paired.p
        )
    return changed(
        found,
        f=_iman_davenport(mean_ranks, n),
        p=_permuted(table),
        cd=_critical_difference(k, n, alpha),
    )


def _sign_test(wins: int, untied: int) -> float:
    """Return the exact two-sided p of so many wins among so many datasets without a tie."""
    from scipy.stats import binomtest

    return float(binomtest(wins, untied).pvalue) if untied else 1.0


def _iman_davenport(mean_ranks: list[float], n: int) -> float | None:
    """Return their F; None where all datasets agree, and it is infinite."""
    k = len(mean_ranks)
    square = math.fsum(rank**2 for rank in mean_ranks) - k * (k + 1) ** 2 / 4
    chi_square = 12 * n / (k * (k + 1)) * square
    rest = n * (k - 1) - chi_square
    return (n - 1) * chi_square / rest if rest > 1e-9 else None


def _critical_difference(k: int, n: int, alpha: float) -> float:
    from scipy.stats import studentized_range

    quantile = float(studentized_range.ppf(1 - alpha, k, math.inf)) / math.sqrt(2)
    return quantile * math.sqrt(k * (k + 1) / (6 * n))


def _permuted(table: list[list[float]]) -> float:
    """Return the share of orders, drawn on each dataset by themselves, in which the methods' sums
    of ranks are as far apart as they are; those that were seen count as one of the draws.
    """
    import numpy

    ranks = numpy.array(table)
    n, k = ranks.shape
    seen = float((ranks.sum(0) ** 2).sum())
    if (ranks == ranks[0]).all() and len(set(table[0])) == k:
        # All datasets agree: one order of k! on the first, and the same on the others.
        return float(math.factorial(k) ** (1.0 - n))
    generator = numpy.random.default_rng(0)
    as_far = 1
    # In parts, which fit into memory.
    part = max(1, 2_000_000 // (n * k))
    for start in range(0, DRAWS, part):
        count = min(part, DRAWS - start)
        drawn = generator.permuted(numpy.broadcast_to(ranks, (count, n, k)), axis=2)
        as_far += int((((drawn.sum(1)) ** 2).sum(1) >= seen - 1e-9).sum())
    return as_far / (DRAWS + 1)
