"""Differences between cells, against R's help pages and by properties."""

import math
import statistics

import numpy
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from vtjobs.analysis.stats.difference import (
    Difference,
    against_one,
    e_value,
    equivalence,
    holm,
    paired,
    welch,
    welch_of_summaries,
)

# Student's sleep data, as in R's help page of t.test.
FIRST = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
SECOND = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]
SCORES = st.lists(st.integers(0, 10_000).map(lambda x: x / 100), min_size=2, max_size=8)


def test_welchs_test_is_rs() -> None:
    found = welch(FIRST, SECOND)
    assert found.interval is not None
    assert found.t == pytest.approx(-1.860813, abs=1e-6)
    assert found.df == pytest.approx(17.776474, abs=1e-6)
    assert found.p == pytest.approx(0.07939414, abs=1e-8)
    assert (found.interval.low, found.interval.high) == pytest.approx(
        (-3.3654832, 0.2054832), abs=1e-7
    )


def test_the_paired_test_is_rs() -> None:
    found = paired(dict(enumerate(FIRST)), dict(enumerate(SECOND)))
    assert found.interval is not None
    assert (found.t, found.df) == pytest.approx((-4.062128, 9), abs=1e-6)
    assert found.p == pytest.approx(0.00283289, abs=1e-8)
    assert (found.interval.low, found.interval.high) == pytest.approx(
        (-2.4598858, -0.7001142), abs=1e-7
    )
    assert found.correlation == pytest.approx(0.7951702, abs=1e-7)


def test_welchs_test_needs_no_more_than_means_stds_and_sizes() -> None:
    stds = statistics.stdev(FIRST), statistics.stdev(SECOND)
    found = welch_of_summaries(
        statistics.fmean(FIRST), stds[0], 10, statistics.fmean(SECOND), stds[1], 10
    )
    assert found == welch(FIRST, SECOND)


def test_one_number_from_elsewhere_is_compared_as_crawford_and_howell_do() -> None:
    found = against_one(60, 7, 10, 33)
    assert found.t == pytest.approx(27 / (7 * math.sqrt(1.1))) and found.df == 9
    assert against_one(60, 7, 2, 33).p is None


def test_pairs_are_the_seeds_that_both_have() -> None:
    ours, theirs = {0: 1.0, 1: 2.5, 2: 3.0, 7: 9.0}, {0: 0.5, 1: 1.0, 2: 2.0, 8: 1.0}
    assert paired(ours, theirs) == paired({0: 1.0, 1: 2.5, 2: 3.0}, {0: 0.5, 1: 1.0, 2: 2.0})


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (welch([], [1.0, 2.0]), "no scored run"),
        (welch([1.0], [1.0, 2.0]), "needs two seeds on each side"),
        (welch([1.0, 1.0], [2.0, 2.0]), "zero variance"),
        (paired({0: 1.0}, {1: 1.0}), "no seed"),
        (paired({0: 1.0, 1: 2.0}, {0: 0.0, 1: 1.5}), "three pairs"),
        (paired({0: 1.0, 1: 2.0, 2: 3.0}, {0: 0.0, 1: 1.0, 2: 2.0}), "same amount"),
    ],
)
def test_what_cannot_be_tested_says_why(found: Difference, why: str) -> None:
    assert found.p is None and found.interval is None and why in found.why_not


@pytest.mark.parametrize(("n", "floor"), [(3, 0.1), (4, 0.029), (5, 0.0079)])
def test_ranks_have_a_floor(n: int, floor: float) -> None:
    found = welch([float(x) for x in range(n)], [x + 0.5 for x in range(n)])
    assert found.floor is not None and float(f"{found.floor:.2g}") == floor


def test_holm_is_rs() -> None:
    # p.adjust(c(0.01, 0.02, 0.03, 0.04, 0.05), "holm")
    assert holm([0.03, 0.01, 0.05, 0.02, 0.04]) == pytest.approx([0.09, 0.05, 0.09, 0.08, 0.09])


def test_what_was_not_tested_counts_in_the_family() -> None:
    assert holm([0.02, None]) == [0.04, None]


@given(SCORES, SCORES)
def test_swapping_the_sides_flips_the_sign_and_keeps_p(
    ours: list[float], theirs: list[float]
) -> None:
    there, back = welch(ours, theirs), welch(theirs, ours)
    assert there.p == back.p and there.difference == pytest.approx(
        -(back.difference or 0.0), abs=1e-12
    )


@given(SCORES, SCORES, st.integers(-50, 50), st.sampled_from([0.5, 2.0, 4.0]))
def test_shifts_and_scales_change_no_p(
    ours: list[float], theirs: list[float], shift: int, scale: float
) -> None:
    found = welch(ours, theirs)
    assume(found.p is not None and found.std is not None and found.std > 0.01)
    moved = welch([scale * x + shift for x in ours], [scale * x + shift for x in theirs])
    assert moved.p == pytest.approx(found.p, rel=1e-6)
    assert moved.difference == pytest.approx(scale * (found.difference or 0.0), abs=1e-9)


@given(SCORES, SCORES, st.floats(0.1, 50))
def test_cells_are_equivalent_where_the_90_percent_interval_is_within_the_margin(
    ours: list[float], theirs: list[float], margin: float
) -> None:
    found = welch(ours, theirs, alpha=0.10)
    p = equivalence(found, margin)
    assume(p is not None and found.interval is not None and abs(p - 0.05) > 1e-6)
    assert p is not None and found.interval is not None
    assert (p < 0.05) == (-margin < found.interval.low and found.interval.high < margin)


@given(SCORES, SCORES)
def test_no_number_is_nan_and_no_p_is_0(ours: list[float], theirs: list[float]) -> None:
    found = welch(ours, theirs)
    numbers = [found.difference, found.error, found.t, found.df, found.p, found.effect, found.std]
    assert all(number is None or math.isfinite(number) for number in numbers)
    assert found.p is None or 0 < found.p <= 1


def test_welch_finds_nothing_in_nothing_as_often_as_it_says() -> None:
    import numpy as np

    chance = np.random.default_rng(7)
    draws = chance.normal(80, 0.3, size=(4000, 10))
    hits = statistics.fmean((welch(list(row[:5]), list(row[5:])).p or 1.0) <= 0.05 for row in draws)
    # Welch is a little conservative at n = 5: .045, here ± four standard errors.
    assert 0.032 < hits < 0.058


# E-values -----------------------------------------------------------------------------------------


def test_an_e_value_is_the_ratio_of_two_densities_of_t() -> None:
    # With an effect N(0, g) in standard deviations, t is distributed as √(1 + ng) t under the
    # alternative.
    from scipy.stats import t as student

    found = paired(dict(enumerate(FIRST)), dict(enumerate(SECOND)))
    wider = math.sqrt(1 + 4 * 10)
    expected = student.pdf(found.t / wider, 9) / wider / student.pdf(found.t, 9)
    assert e_value(FIRST, SECOND) == pytest.approx(float(expected))


def test_what_the_longer_side_has_more_is_no_part_of_an_e_value() -> None:
    assert e_value([*FIRST, 9.0], SECOND) == e_value(FIRST, SECOND)


@pytest.mark.parametrize("ratio", [1.0, 10.0])
def test_stopping_as_soon_as_the_e_value_is_20_is_rarely_wrong(ratio: float) -> None:
    draw = numpy.random.default_rng(5)
    times, wrong = 500, 0
    for _ in range(times):
        ours, theirs = draw.normal(size=20).tolist(), draw.normal(0.0, ratio, 20).tolist()
        wrong += any((e_value(ours[:n], theirs[:n]) or 0.0) >= 20 for n in range(3, 21))
    # The rule allows 5 %; naive looks at p < 0.05 find 20 %.
    assert wrong / times <= 0.05


def test_what_cannot_be_tested_has_no_e_value() -> None:
    assert e_value([1.0, 1.5], [2.0, 3.0]) is None
    assert e_value([1.0, 1.0, 1.0], [1.0, 1.0, 1.0]) is None


def test_pairs_that_all_differ_by_one_image_have_no_spread() -> None:
    ours = {seed: 100 * count / 898 for seed, count in enumerate((700, 650, 801))}
    theirs = {seed: 100 * count / 898 for seed, count in enumerate((699, 649, 800))}
    found = paired(ours, theirs)
    assert found.p is None and found.why_not == "all pairs differ by the same amount"
    assert e_value(list(ours.values()), list(theirs.values())) is None


def test_the_interval_of_the_effect_holds_it_as_often_as_it_says() -> None:
    draw = numpy.random.default_rng(8)
    held = []
    for _ in range(1000):
        ours, theirs = draw.normal(1.5, 1.0, 4).tolist(), draw.normal(size=4).tolist()
        interval = welch(ours, theirs).effect_interval
        assert interval is not None
        held.append(interval.low <= 1.5 <= interval.high)
    assert statistics.fmean(held) == pytest.approx(0.95, abs=0.03)
