"""Centre and spread of a cell against certified and published numbers, and what few seeds cannot
say.
"""

import itertools
import json
import math
import statistics
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtjobs.analysis.stats.summary import (
    Description,
    best_of,
    describe,
    expected_best,
    spread_factors,
)
from vtjobs.jobs.documents import to_plain

# R's `sleep`, group 1: t.test(extra)$conf.int.
SLEEP = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]


def _of(values: list[float], first: int = 1, **more: Any) -> Description:
    return describe(dict(enumerate(values, start=first)), **more)


# NIST's reference data NumAcc1 to NumAcc4, whose certified mean and deviation these are.
@pytest.mark.paper("RV-26", "PC-12", "VA-03")
@pytest.mark.parametrize(
    ("values", "mean", "std"),
    [
        ([10000001.0, 10000003.0, 10000002.0], 10000002.0, 1.0),
        ([1.2] + [1.1, 1.3] * 500, 1.2, 0.1),
        ([1000000.2] + [1000000.1, 1000000.3] * 500, 1000000.2, 0.1),
        ([10000000.2] + [10000000.1, 10000000.3] * 500, 10000000.2, 0.1),
    ],
)
def test_mean_and_deviation_are_nists(values: list[float], mean: float, std: float) -> None:
    found = _of(values)
    assert found.mean == pytest.approx(mean, rel=1e-14)
    assert found.std == pytest.approx(std, rel=1e-7)


def test_the_interval_of_the_mean_is_rs() -> None:
    assert _of(SLEEP).interval == pytest.approx([-0.5297804, 2.0297804], abs=5e-8)


# By any table of χ².
@pytest.mark.parametrize(
    ("n", "low", "high"), [(3, 0.52, 6.28), (5, 0.60, 2.87), (100, 0.88, 1.16)]
)
def test_few_seeds_leave_the_deviation_wide_open(n: int, low: float, high: float) -> None:
    assert spread_factors(n) == pytest.approx((low, high), abs=0.005)


@pytest.mark.parametrize("n", [3, 5])
def test_the_best_of_a_few_seeds_is_on_average_as_lucky_as_is_said(n: int) -> None:
    draws = numpy.random.default_rng(3).normal(80.0, 1.0, (2000, n))
    found = [describe(dict(enumerate(map(float, row)))) for row in draws]
    excess = [one.best_of_n - one.luck for one in found]
    assert abs(statistics.fmean(excess)) < 4 * statistics.stdev(excess) / len(draws) ** 0.5


# Expected largest of n normal draws: Harter 1961, table 1.
@pytest.mark.paper("VA-10")
@pytest.mark.parametrize(
    ("n", "best"),
    [(1, 0.0), (2, 0.56419), (3, 0.84628), (5, 1.16296), (10, 1.53875), (100, 2.50759)],
)
def test_the_best_of_n_draws_is_lucky_by_harters_table(n: int, best: float) -> None:
    assert expected_best(n) == pytest.approx(best, abs=5e-6)


@pytest.mark.paper("VA-15")
def test_one_seed_has_no_spread_two_have_no_interval() -> None:
    none, one, two = _of([]), _of([3.0]), _of([3.0, 4.0])
    assert (none.n, none.mean, none.interval) == (0, None, None)
    assert (one.mean, one.std, one.interval, one.luck) == (3.0, None, None, None)
    # Of two values the interval would be 18 deviations wide.
    assert (two.std, two.interval) == (pytest.approx(0.7071, abs=1e-4), None)
    assert two.prediction is None and two.std_interval is None


def test_seeds_that_all_agree_are_marked() -> None:
    found = _of([5.0, 5.0, 5.0])
    assert (found.std, found.constant, found.interval) == (0.0, True, [5.0, 5.0])


@pytest.mark.paper("PC-12", "VA-03")
def test_seed_0_is_measured_against_the_others() -> None:
    found = _of([4.0, 1.0, 3.0], first=0)
    assert (found.seed_0, found.seed_0_offset) == (4.0, 2.0)
    assert _of([1.0, 2.0]).seed_0_offset is None


def test_the_best_is_the_smallest_where_less_is_better() -> None:
    assert _of([1.0, 2.0, 6.0]).best_of_n == 3.0
    assert describe({1: 1.0, 2: 2.0, 3: 6.0}, better="min").best_of_n == 2.0


def test_outliers_move_the_interquartile_mean_little() -> None:
    found = _of([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 800.0])
    assert (found.iqm, found.mad, found.median) == (4.5, 2.0, 4.5)
    assert _of([1.0, 2.0, 3.0]).iqm is None


@given(
    st.lists(st.integers(-1000, 1000), max_size=12),
    st.integers(-50, 50),
    st.sampled_from([2.0, 4.0]),
)
def test_shifts_and_scales_move_what_they_should_and_no_number_is_nan(
    values: list[int], shift: int, scale: float
) -> None:
    plain, moved = (
        to_plain(_of([float(value) for value in values])),
        to_plain(_of([scale * value + shift for value in values])),
    )
    for name, value in plain.items():
        if name in ("n", "level", "constant", "seed_0", "seed_0_offset") or value is None:
            continue
        if name == "outlier":
            assert {**moved[name], "g": 0, "seed": 0} == {**value, "g": 0, "seed": 0}
            assert moved[name]["g"] == pytest.approx(value["g"])
            continue
        if name == "best_of":
            value, moved[name] = list(value.values()), list(moved[name].values())
        offset = (
            0.0
            if name in ("std", "sem", "std_interval", "mad", "best_of_n", "luck")
            else float(shift)
        )
        wanted = (
            [scale * part + offset for part in value]
            if isinstance(value, list)
            else scale * value + offset
        )
        assert moved[name] == pytest.approx(wanted, rel=1e-9, abs=1e-6)
    json.dumps(moved, allow_nan=False)


@given(st.permutations(list(enumerate([1.5, 2.25, 0.1, 7.0, 3.3, 3.4, 9.0, -2.0, 4.0]))))
def test_the_order_of_the_seeds_changes_no_bit(pairs: list[tuple[int, float]]) -> None:
    assert describe(dict(pairs)) == describe(dict(sorted(pairs)))


@pytest.mark.parametrize(
    ("n", "cells"),
    [(3, 1000), (5, 1000), (9, 1000), pytest.param(10, 4000, marks=pytest.mark.long)],
)
def test_the_intervals_cover_as_often_as_they_say(n: int, cells: int) -> None:
    """Cells of n normal seeds: 95 % ± 4 standard errors. From ten seeds on each is bootstrapped."""
    draw = numpy.random.default_rng(0)
    mean, spread, next_one = 0, 0, 0
    for _ in range(cells):
        *values, other = draw.normal(50.0, 2.0, n + 1)
        found = _of([float(value) for value in values])
        mean += found.interval[0] <= 50.0 <= found.interval[1]
        spread += found.std_interval[0] <= 2.0 <= found.std_interval[1]
        next_one += found.prediction[0] <= other <= found.prediction[1]
    for covered in (mean, spread, next_one):
        assert covered / cells == pytest.approx(0.95, abs=4 * math.sqrt(0.95 * 0.05 / cells))


# Best of k, outliers, bootstrap -------------------------------------------------------------------


@given(st.lists(st.integers(0, 100).map(float), min_size=2, max_size=7), st.data())
def test_the_best_of_k_is_the_mean_over_all_choices_of_k_seeds(
    values: list[float], data: st.DataObject
) -> None:
    k = data.draw(st.integers(1, len(values)))
    choices = [max(chosen) for chosen in itertools.combinations(values, k)]
    assert best_of(sorted(values), k) == pytest.approx(statistics.fmean(choices))
    smallest = [min(chosen) for chosen in itertools.combinations(values, k)]
    assert best_of(sorted(values, reverse=True), k) == pytest.approx(statistics.fmean(smallest))


def test_an_outlier_is_the_one_of_nists_handbook() -> None:
    # Section 1.3.5.17.1, mass spectrometry of a uranium isotope: G = 2.4687, critical value 2.032
    # for two sides.
    values = [199.31, 199.53, 200.19, 200.82, 201.92, 201.95, 202.18, 245.57]
    found = _of(values).outlier
    assert (values[found.seed - 1], found.flagged) == (245.57, True)
    assert found.g == pytest.approx(2.4687, abs=1e-4)
    # Its table is for one side at 0.05, which is two at 0.1.
    one_sided = describe(dict(enumerate(values)), level=0.9).outlier
    assert one_sided.critical == pytest.approx(2.032, abs=5e-4)


def test_an_outlier_stays_in_every_number() -> None:
    values = [80.0, 80.1, 79.9, 80.05, 79.95, 90.0]
    found = _of(values)
    assert found.outlier.flagged and found.mean == pytest.approx(statistics.fmean(values))
    assert _of(values[:4]).outlier is None and _of([80.0] * 6).outlier is None


def test_the_bootstrap_is_there_from_thirty_seeds_on_and_does_not_depend_on_their_order() -> None:
    values = [80.0 + math.sin(seed) for seed in range(30)]
    one, other = _of(values).bca, _of(values[::-1]).bca
    assert one == other and one[0] < statistics.fmean(values) < one[1]
    assert _of(values[:29]).bca is None and _of([80.0] * 30).bca is None
