"""How many seeds a test needs, against R, PowerTOST and Cohen's tables, and by simulation."""

import math
import statistics

import numpy
import pytest

from vtjobs.analysis.stats.difference import e_value, equivalence, paired, welch
from vtjobs.analysis.stats.sample_size import (
    detectable,
    power,
    power_of_equivalence,
    seeds_for,
    seeds_for_equivalence,
    upper_std,
)


def test_power_is_rs() -> None:
    # power.t.test(n = 20, delta = 1, sd = 1) and power.t.test(power = .90, delta = 1)
    assert power(1.0, 20) == pytest.approx(0.868953, abs=1e-6)
    assert seeds_for(1.0, wanted=0.90) == 23


@pytest.mark.parametrize(
    ("effect", "seeds"), [(0.5, 64), (1.0, 17), (1.5, 9), (2.0, 6), (3.0, 4), (4.0, 3), (40.0, 2)]
)
def test_how_many_seeds_an_effect_needs(effect: float, seeds: int) -> None:
    assert seeds_for(effect) == seeds


@pytest.mark.parametrize(
    ("n", "effect"), [(2, 5.65), (3, 3.07), (5, 2.02), (10, 1.32), (100, 0.40)]
)
def test_what_so_many_seeds_can_find(n: int, effect: float) -> None:
    assert round(detectable(n), 2) == effect


def test_pairs_find_as_often_as_their_power_says() -> None:
    import numpy as np

    draws = np.random.default_rng(11).normal(1.2, 1.0, size=(4000, 6))
    rows = (dict(enumerate(map(float, row))) for row in draws)
    hits = statistics.fmean((paired(row, dict.fromkeys(row, 0.0)).p or 1.0) <= 0.05 for row in rows)
    # Four standard errors of 4,000 draws.
    assert hits == pytest.approx(power(1.2, 6, pairs=True), abs=0.03)
    needed = seeds_for(1.2, pairs=True)
    assert needed is not None and power(1.2, needed, pairs=True) >= 0.8 > power(
        1.2, needed - 1, pairs=True
    )


def test_no_number_of_seeds_finds_nothing() -> None:
    assert seeds_for(0.0) is None and seeds_for(0.001) is None


def test_pairs_are_at_least_three_as_the_paired_test_needs_them() -> None:
    assert seeds_for(1000.0, pairs=True) == 3
    assert seeds_for(1000.0) == 2


def test_power_of_equivalence_is_that_of_powertost() -> None:
    # sampleN.TOST(CV = 0.3, theta0 = 0.95): 40 in a crossover, power 0.815845, which has the error
    # and the degrees of freedom of two groups of 20.
    std = math.sqrt(math.log(1.09)) / math.sqrt(2)
    margin, gap = math.log(1.25) / std, math.log(0.95) / std
    assert power_of_equivalence(margin, 20, gap=gap) == pytest.approx(0.815845, abs=1e-4)
    assert seeds_for_equivalence(margin, gap=gap) == 20


def test_ties_are_shown_as_often_as_their_power_says() -> None:
    draw = numpy.random.default_rng(3)
    hits = [
        (equivalence(welch(*draw.normal(size=(2, 12)).tolist()), 1.2) or 1.0) <= 0.05
        for _ in range(2000)
    ]
    assert statistics.fmean(hits) == pytest.approx(power_of_equivalence(1.2, 12), abs=0.04)


def test_no_number_of_seeds_shows_a_tie_at_the_margin() -> None:
    assert seeds_for_equivalence(1.0, gap=1.0) is None


def test_e_values_find_at_one_look_as_often_as_their_power_says() -> None:
    draw = numpy.random.default_rng(4)
    hits = [
        (e_value(draw.normal(2.0, 1.0, 8).tolist(), draw.normal(size=8).tolist()) or 0.0) >= 20
        for _ in range(2000)
    ]
    found = power(2.0, 8, anytime=True)
    assert statistics.fmean(hits) == pytest.approx(found, abs=0.04)
    assert power(2.0, 3, anytime=True) == 0.0, "no three pairs reach 20"


def test_the_upper_limit_of_a_deviation_is_above_it_as_often_as_it_says() -> None:
    stds = numpy.random.default_rng(2).normal(size=(4000, 4)).std(1, ddof=1)
    above = statistics.fmean(upper_std(float(std), 3, level=0.6) >= 1.0 for std in stds)
    assert above == pytest.approx(0.6, abs=0.03)


def test_the_upper_limit_of_many_seeds_is_their_deviation() -> None:
    assert upper_std(2.0, 10_000) == pytest.approx(2.0, rel=0.01)
