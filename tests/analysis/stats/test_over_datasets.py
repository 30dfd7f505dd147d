"""Ranks over datasets, against Demšar 2006."""

import math
import random

import pytest

from vtjobs.analysis.stats.over_datasets import Ranking, ranks

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
    # F's p is 0.0197; of its ties, of which there are many here, F takes no account.
    assert found.p == pytest.approx(0.0131, abs=2.5e-3)


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


def of_wins(wins: int, datasets: int) -> Ranking:
    """Rank two methods of which one is better so often."""
    return ranks(
        {str(number): {"a": 0.6 + (number < wins), "b": 1.0} for number in range(datasets)}
    )


def test_two_methods_are_compared_by_the_exact_sign_test() -> None:
    # Iman and Davenport's F gives 0.0465.
    assert of_wins(6, 7).p == pytest.approx(0.125)
    assert of_wins(6, 7).f is None and of_wins(6, 7).cd is None


def test_more_wins_never_have_a_larger_p() -> None:
    for datasets in (7, 12):
        ps = [of_wins(wins, datasets).p for wins in range((datasets + 1) // 2, datasets + 1)]
        assert ps == sorted(ps, reverse=True)


def test_of_two_methods_signed_ranks_count_by_how_much_one_is_better() -> None:
    found = ranks({str(number): {"a": 80.0 + number**2, "b": 80.4} for number in range(8)})
    assert found.p_signed_ranks == pytest.approx(2 * 2 / 2**8)


def test_datasets_on_which_two_methods_tie_say_nothing() -> None:
    tied = {f"tied {number}": {"a": 1.0, "b": 1.0} for number in range(4)}
    wins = {str(number): {"a": 1.0, "b": 0.5} for number in range(6)}
    assert ranks(tied | wins).p == pytest.approx(2**-5)


def test_methods_that_always_come_in_one_order_have_the_smallest_p_there_is() -> None:
    row = {"a": 1.0, "b": 0.5, "c": 0.2}
    found = ranks({str(number): row for number in range(6)})
    assert found.ranks == {"a": 1.0, "b": 2.0, "c": 3.0}
    assert found.p == pytest.approx(6.0**-5) and math.isfinite(found.cd or math.inf)


@pytest.mark.parametrize("alpha", [0.05, 0.01])
def test_methods_that_are_alike_are_seldom_told_apart(alpha: float) -> None:
    generator = random.Random(5)
    runs = 400
    wrong = sum(
        (ranks({str(n): {m: generator.random() for m in "abc"} for n in range(5)}).p or 1) <= alpha
        for _ in range(runs)
    )
    assert wrong / runs <= alpha + 3 * math.sqrt(alpha * (1 - alpha) / runs)
