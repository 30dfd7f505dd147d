"""Curves over seeds and how two test sets agree."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr

from vtjobs.analysis.stats.curves import agreement, band, persistence
from vtjobs.analysis.stats.summary import describe

VALUES = st.lists(st.floats(0, 100), min_size=5, max_size=9)


@pytest.mark.paper("VA-07")
def test_a_band_says_of_each_epoch_what_a_description_says_of_its_values() -> None:
    curves = {seed: {1: 10.0 + seed, 2: 50.0 + 2 * seed} for seed in range(4)}
    for row in band(curves):
        known = describe({seed: curve[row.epoch] for seed, curve in curves.items()})
        for name in ("n", "mean", "std", "min", "max"):
            assert getattr(row, name) == getattr(known, name)
        assert row.interval == pytest.approx(known.interval)


def test_nothing_is_carried_forward_into_an_epoch_that_was_not_scored() -> None:
    rows = band({0: {1: 1.0, 2: 2.0}, 1: {1: 3.0}, 2: {2: math.nan}})
    assert [(row.epoch, row.n, row.mean) for row in rows] == [(1, 2, 2.0), (2, 1, 2.0)]
    assert rows[1].std is None and rows[0].interval is None


@pytest.mark.paper("VA-09")
@given(VALUES)
def test_order_that_never_changes_persists_and_one_that_turns_round_does_not(
    values: list[float],
) -> None:
    ordered = {seed: {1: value, 2: -value, 3: value} for seed, value in enumerate(values)}
    rho = [row.rho for row in persistence(ordered)]
    if len(set(values)) == 1:
        assert rho == [None, None, None]
    else:
        assert rho == pytest.approx([1.0, -1.0, 1.0])


@pytest.mark.paper("VA-08")
def test_persistence_is_spearmans_with_the_last_epoch_over_the_seeds_that_reached_it() -> None:
    early, late = [3.0, 1.0, 4.0, 1.5, 9.0], [2.0, 6.0, 5.0, 3.0, 5.5]
    curves = {seed: {1: early[seed], 9: late[seed]} for seed in range(5)} | {5: {1: 2.0}}
    rows = persistence(curves)
    assert [row.n for row in rows] == [5, 5]
    assert rows[0].rho == pytest.approx(float(spearmanr(early, late)[0]))
    assert persistence({seed: curves[seed] for seed in range(4)}) == []


@pytest.mark.paper("VA-05")
def test_two_sets_agree_as_far_as_their_correlation_goes() -> None:
    # R, help page of cor.test: lightness and score of tuna; r 0.5711816, 95 % from -0.1497426 to
    # 0.8955795.
    lightness = [44.4, 45.9, 41.9, 53.3, 44.7, 44.1, 50.7, 45.2, 60.1]
    score = [2.6, 3.1, 2.5, 5.0, 3.6, 4.0, 5.2, 2.8, 3.8]
    found = agreement(dict(enumerate(lightness)), dict(enumerate(score)))
    assert found.r == pytest.approx(0.5711816, abs=1e-7)
    assert found.interval == pytest.approx([-0.1497426, 0.8955795], abs=1e-7)
    assert (found.best, found.rank) == (8, 4)


def test_the_best_seed_of_a_loss_is_the_one_with_the_smallest() -> None:
    found = agreement({0: 1.0, 1: 2.0, 2: 3.0}, {0: 2.0, 1: 1.0, 2: 3.0}, better="min")
    assert (found.best, found.rank) == (0, 2)


@pytest.mark.parametrize("seeds", [0, 1, 2])
def test_few_seeds_have_no_correlation(seeds: int) -> None:
    values = {seed: float(seed) for seed in range(seeds)}
    found = agreement(values, values)
    assert (found.n, found.r, found.interval) == (seeds, None, None)
