"""What more seeds can show beside a printed mean."""

import math

import numpy
import pytest
from scipy.stats import t as student

from vtjobs.analysis.stats.difference import (
    Difference,
    against_one,
    equivalence,
    welch_of_summaries,
)
from vtjobs.analysis.stats.tie import Fixed, least_margin, seeds_for_tie

SINGLE = Fixed(gap=0.1, n=5, std=1.0)
SEVERAL = Fixed(gap=0.1, n=5, std=0.5, std_printed=0.3, n_printed=5)


def test_beside_a_single_number_no_seeds_show_a_tie_within_one_deviation() -> None:
    # The next draw varies by one deviation, however well our mean is known.
    assert seeds_for_tie(SINGLE, 1.0) is None
    p = equivalence(against_one(0.1, 1.0, 10_000, 0.0), 1.0)
    assert p == pytest.approx(0.184, abs=1e-3)


def test_the_least_margin_is_the_limit_of_many_seeds() -> None:
    assert least_margin(SINGLE) == pytest.approx(0.1 + student.ppf(0.95, math.inf))
    assert least_margin(SEVERAL) == pytest.approx(0.1 + student.ppf(0.95, 4) * 0.3 / math.sqrt(5))


@pytest.mark.parametrize("n", [3, 7, 40, 1000])
@pytest.mark.parametrize("case", [SINGLE, SEVERAL])
def test_at_the_least_margin_the_test_of_equivalence_is_just_passed(case: Fixed, n: int) -> None:
    tested = found(case, case.gap, case.std, n)
    assert equivalence(tested, least_margin(case, n=n)) == pytest.approx(0.05)


def found(case: Fixed, mean: float, std: float, n: int) -> Difference:
    """Return the test of n seeds with this mean and deviation beside what is printed."""
    if case.std_printed is None:
        return against_one(mean, std, n, 0.0)
    return welch_of_summaries(mean, std, n, 0.0, case.std_printed, case.n_printed)


@pytest.mark.parametrize(
    ("case", "margin"),
    [(SEVERAL, 0.5), (SEVERAL, 0.6), (SEVERAL, 0.8), (SEVERAL, 1.5), (SINGLE, 2.0), (SINGLE, 3.0)],
)
def test_so_many_seeds_show_the_tie_in_four_of_five_cases(case: Fixed, margin: float) -> None:
    n = seeds_for_tie(case, margin)
    assert n is not None
    draws = numpy.random.default_rng(7).normal(case.gap, case.std, (4000, n))
    ties = [
        equivalence(found(case, float(mean), float(std), n), margin)
        for mean, std in zip(draws.mean(1), draws.std(1, ddof=1), strict=True)
    ]
    # Wanted is 0.8; the standard error of the share is 0.006.
    assert sum(tie is not None and tie <= 0.05 for tie in ties) / 4000 > 0.78
