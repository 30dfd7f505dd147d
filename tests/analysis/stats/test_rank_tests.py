"""Rank tests, against R's help pages and against going through every case."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import brunnermunzel, rankdata

from vtjobs.analysis.stats.rank_tests import of_pairs, of_two

# R, help page of wilcox.test: permeability of the human chorioamnion, and depression scores at two
# visits.
AT_TERM = [0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46]
EARLY = [1.15, 0.88, 0.90, 0.74, 1.21]
FIRST = [1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30]
SECOND = [0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29]
SMALL = st.lists(st.integers(0, 3).map(float), min_size=2, max_size=5)


def test_two_samples_are_compared_as_r_compares_them() -> None:
    found = of_two(AT_TERM, EARLY)
    # W = 35, one-sided p 0.1272.
    assert (found.wins, found.pairs) == (35, 50)
    assert found.p / 2 == pytest.approx(0.1272, abs=5e-5)


def test_pairs_are_compared_as_r_compares_them() -> None:
    found = of_pairs(dict(enumerate(FIRST)), dict(enumerate(SECOND)))
    # V = 40, one-sided p 0.01953.
    assert found.p / 2 == pytest.approx(0.01953, abs=5e-6)
    assert (found.wins, found.pairs) == (7, 9)


@settings(max_examples=30)
@given(SMALL, SMALL)
def test_with_ties_every_split_of_the_seeds_counts(one: list[float], other: list[float]) -> None:
    both, n = rankdata([*one, *other]), len(one)
    middle = n * (len(both) + 1) / 2
    sums = [abs(sum(part) - middle) for part in itertools.combinations(both, n)]
    seen = abs(sum(both[:n]) - middle)
    expected = sum(each >= seen - 1e-9 for each in sums) / len(sums)
    assert of_two(one, other).p == pytest.approx(expected)


@settings(max_examples=30)
@given(SMALL)
def test_with_ties_every_sign_of_the_differences_counts(differences: list[float]) -> None:
    each = [one - 1.0 for one in differences]
    found = of_pairs(dict(enumerate(differences)), dict.fromkeys(range(len(each)), 1.0))
    if not any(each):
        assert found.p is None
        return
    ranks = rankdata([abs(one) for one in each])
    signed = [rank * ((one > 0) - (one < 0)) for rank, one in zip(ranks, each, strict=True)]
    sums = [
        abs(sum(map(lambda s, r: s * r, signs, signed)))
        for signs in itertools.product((1, -1), repeat=len(each))
    ]
    assert found.p == pytest.approx(
        sum(total >= abs(sum(signed)) - 1e-9 for total in sums) / len(sums)
    )


@pytest.mark.parametrize(("n", "floor"), [(2, 1 / 3), (3, 0.1), (4, 2 / 70), (5, 2 / 252)])
def test_samples_that_do_not_overlap_reach_the_floor_and_no_less(n: int, floor: float) -> None:
    found = of_two([10.0 + seed for seed in range(n)], [float(seed) for seed in range(n)])
    assert found.p == pytest.approx(found.floor) == pytest.approx(floor)
    assert (found.improvement, found.interval) == (1.0, None)


@settings(max_examples=30)
@given(
    st.lists(st.integers(0, 30), min_size=8, max_size=10),
    st.lists(st.integers(0, 30), min_size=8, max_size=10),
)
def test_the_interval_of_improvement_is_brunner_and_munzels(
    one: list[int], other: list[int]
) -> None:
    found = of_two(one, other)
    if found.interval is None:
        assert found.improvement in (0.0, 0.5, 1.0)
        return
    p = float(brunnermunzel(one, other).pvalue)
    if 1e-6 < p < 0.999:
        at_half = of_two(one, other, level=1 - p).interval
        assert min(abs(bound - 0.5) for bound in at_half) == pytest.approx(0, abs=1e-6)
    assert 0 <= found.interval[0] <= found.improvement <= found.interval[1] <= 1


@settings(max_examples=30)
@given(SMALL, SMALL)
def test_the_two_sides_are_alike(one: list[float], other: list[float]) -> None:
    left, right = of_two(one, other), of_two(other, one)
    assert left.p == pytest.approx(right.p)
    assert left.improvement == pytest.approx(1 - right.improvement)


def test_one_seed_has_no_rank_test() -> None:
    found = of_two([1.0], [2.0, 3.0])
    assert (found.p, found.floor, found.improvement) == (None, None, 0.0)
    assert of_two([], [1.0]).improvement is None
    assert of_pairs({0: 1.0}, {1: 1.0}).improvement is None


def test_pairs_that_differ_by_as_many_images_are_tied_and_not_apart_in_their_last_digits() -> None:
    images = 898
    ours = {seed: 100 * count / images for seed, count in enumerate((700, 650, 801, 640, 777, 699))}
    steps = (1, -1, 1, 1, 1, 1)
    theirs = {
        seed: 100 * (round(value * images / 100) - step) / images
        for (seed, value), step in zip(ours.items(), steps, strict=True)
    }
    # Five of six signs alike, all ranks tied: 14 of 64 cases are as far out.
    assert of_pairs(ours, theirs).p == pytest.approx(14 / 64)
