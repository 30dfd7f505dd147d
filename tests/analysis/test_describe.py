"""One cell's numbers, against printed examples and by properties."""

import itertools
import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtjobs.analysis.describe import best_of, describe, mean_interval, next_interval, outlier, std_interval

SCORES = st.lists(st.floats(0, 100, allow_nan=False).map(lambda x: round(x, 2)), min_size=2, max_size=12)


def test_no_seed_and_one_seed_have_no_spread() -> None:
    assert describe([]).mean is None
    one = describe([82.5])
    assert (one.n, one.mean, one.std, one.mean_interval, one.std_interval) == (1, 82.5, None, None, None)


def test_two_seeds_are_described_and_flagged() -> None:
    two = describe([80.0, 82.0])
    assert two.std == pytest.approx(math.sqrt(2))
    assert two.mean_interval is not None and two.mean_interval.high - 81 == pytest.approx(12.706204736)
    assert two.flags


def test_equal_values_have_no_interval_and_a_question() -> None:
    found = describe([91.1, 91.1, 91.1])
    assert (found.mean, found.std, found.mean_interval) == (91.1, 0.0, None)
    assert "seed" in found.flags[0]


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_not_finite_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        describe([1.0, value])


def test_the_interval_of_a_mean_is_that_of_the_nist_handbook() -> None:
    # NIST/SEMATECH e-Handbook 1.3.5.2, heat flow meter data ZARR13.
    interval = mean_interval(9.261460, 0.02278881, 195)
    assert (interval.low, interval.high) == pytest.approx((9.258242, 9.264679), abs=2e-6)


@pytest.mark.parametrize(("n", "low", "high"), [(3, 0.52, 6.28), (5, 0.60, 2.87), (100, 0.88, 1.16)])
def test_how_well_few_seeds_know_their_spread(n: int, low: float, high: float) -> None:
    found = std_interval(1.0, n)
    assert (round(found.low, 2), round(found.high, 2)) == (low, high)


def test_one_more_seed_lies_in_a_wider_interval_than_the_mean() -> None:
    assert next_interval(0.0, 1.0, 5).high == pytest.approx(mean_interval(0.0, 1.0, 5).high * math.sqrt(6))


def test_the_outlier_of_the_nist_handbook_is_flagged() -> None:
    # NIST/SEMATECH e-Handbook 1.3.5.17.1: G = 2.4687.
    values = [199.31, 199.53, 200.19, 200.82, 201.92, 201.95, 202.18, 245.57]
    found = outlier(values)
    assert found is not None
    far, g, critical = found
    assert far == 245.57 and g == pytest.approx(2.468765, abs=1e-6) and g > critical


def test_four_seeds_cannot_show_an_outlier() -> None:
    assert outlier([1.0, 1.1, 0.9, 99.0]) is None


@given(SCORES.filter(lambda values: len(values) <= 7), st.data())
def test_the_best_of_k_is_the_mean_over_all_choices_of_k(values: list[float], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(values)))
    expected = statistics.fmean(max(chosen) for chosen in itertools.combinations(values, k))
    assert best_of(values, k) == pytest.approx(expected)


def test_the_best_of_more_than_there_are_is_refused() -> None:
    with pytest.raises(ValueError, match="best of 3"):
        best_of([1.0, 2.0], 3)


@given(SCORES, st.randoms(use_true_random=False))
def test_the_order_of_seeds_changes_nothing(values: list[float], chance: "object") -> None:
    shuffled = values.copy()
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    assert describe(values) == describe(shuffled)


@given(SCORES)
def test_the_luck_of_the_best_seed_is_never_negative(values: list[float]) -> None:
    for better in ("max", "min"):
        luck = describe(values, better=better).luck
        assert luck is not None and luck >= 0
