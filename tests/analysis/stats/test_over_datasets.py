"""Ranks over datasets, against Demšar 2006."""

import math

import pytest

from vtjobs.analysis.stats.over_datasets import ranks

# Demšar 2006, table 6: AUC of C4.5, with its parameter m, with cf, and with both. Its ranks on
# voting tell apart what it prints alike.
TABLE_6 = {
    "adult": (0.763, 0.768, 0.771, 0.798), "breast": (0.599, 0.591, 0.590, 0.569),
    "wisconsin": (0.954, 0.971, 0.968, 0.967), "cmc": (0.628, 0.661, 0.654, 0.657),
    "ionosphere": (0.882, 0.888, 0.886, 0.898), "iris": (0.936, 0.931, 0.916, 0.931),
    "bupa": (0.661, 0.668, 0.609, 0.685), "lung": (0.583, 0.583, 0.563, 0.625),
    "lymphography": (0.775, 0.838, 0.866, 0.875), "mushroom": (1.000, 1.000, 1.000, 1.000),
    "tumor": (0.940, 0.962, 0.965, 0.962), "rheum": (0.619, 0.666, 0.614, 0.669),
    "voting": (0.972, 0.981, 0.97501, 0.975), "wine": (0.957, 0.978, 0.946, 0.970),
}  # fmt: skip
METHODS = ("C4.5", "m", "cf", "m+cf")
MEANS = {name: dict(zip(METHODS, row, strict=True)) for name, row in TABLE_6.items()}


def test_the_ranks_are_those_of_the_paper() -> None:
    found = ranks(MEANS)
    assert found.ranks == pytest.approx(
        {"m+cf": 1.964, "m": 2.000, "cf": 2.893, "C4.5": 3.143}, abs=6e-4
    )
    # Section 3.2.2: F = 3.69 with 3 and 39 degrees of freedom; critical difference at 0.05: 1.25.
    assert found.f == pytest.approx(3.69, abs=6e-3)
    assert found.cd == pytest.approx(1.25, abs=6e-3)
    assert found.p == pytest.approx(0.0197, abs=2e-4)


def test_of_a_loss_the_smallest_is_the_best() -> None:
    losses = {
        name: {method: -value for method, value in row.items()} for name, row in MEANS.items()
    }
    assert ranks(losses, better="min") == ranks(MEANS)


def test_a_dataset_that_lacks_a_method_is_left_out_whole_and_named() -> None:
    lacking = MEANS | {"half": {"m": 0.5}}
    found = ranks(lacking)
    assert found.without == ["half"] and found.ranks == ranks(MEANS).ranks


def test_few_datasets_are_not_ranked() -> None:
    few = dict(list(MEANS.items())[:4])
    assert (
        ranks(few).why_not == "only 4 datasets have every method; 5 are needed"
        and ranks(few).ranks == {}
    )
    assert ranks({"adult": {"m": 0.5}}).why_not == "needs at least two methods"
    many_holes = MEANS | {f"hole-{number}": {"m": 0.5} for number in range(5)}
    assert "more than a fifth" in ranks(many_holes).why_not


def test_methods_that_always_come_in_one_order_have_the_smallest_p_there_is() -> None:
    found = ranks({str(number): {"a": 1.0, "b": 0.5} for number in range(6)})
    assert (
        found.ranks == {"a": 1.0, "b": 2.0}
        and found.p == pytest.approx(2**-5)
        and math.isfinite(found.cd)
    )
