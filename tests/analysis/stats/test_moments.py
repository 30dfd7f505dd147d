"""Mean and deviation of a cell, against Python's exact ones."""

import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtjobs.analysis.stats.moments import moments

SCORES = st.floats(-1e6, 1e6, allow_subnormal=False)


@given(st.lists(SCORES, min_size=2, max_size=20))
def test_mean_and_deviation_are_those_of_exact_arithmetic(values: list[float]) -> None:
    mean, std = moments(tuple(values))
    assert mean == statistics.fmean(values)
    largest = max(map(abs, values))
    assert std == pytest.approx(statistics.stdev(values), rel=1e-12, abs=1e-15 * largest)


@pytest.mark.parametrize("values", [(1e200, 2e200), (-1e308, 1e308), (1e-200, 2e-200), (3.0, 3.0)])
def test_numbers_whose_squares_no_float_holds_have_a_deviation_too(
    values: tuple[float, float],
) -> None:
    assert moments(values)[1] == statistics.stdev(values)


@given(SCORES, st.integers(1, 20))
def test_equal_values_have_no_deviation_at_all(value: float, count: int) -> None:
    assert moments((value,) * count)[1] == 0.0


def test_scores_far_from_zero_keep_the_digits_of_their_deviation() -> None:
    values = tuple(1e6 + part for part in (0.0, 1e-6, 3e-6))
    assert moments(values)[1] == pytest.approx(statistics.stdev(values), rel=1e-12)


@given(st.lists(SCORES, min_size=2, max_size=20), st.randoms())
def test_the_order_of_the_values_changes_no_bit(values: list[float], draw: random.Random) -> None:
    other = list(values)
    draw.shuffle(other)
    assert moments(tuple(values)) == moments(tuple(other))
