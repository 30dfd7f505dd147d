"""Declared looks spend α, use the first seeds alone, and keep what they decided."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy
import pytest

from vtjobs.analysis.findings.cell import Cell
from vtjobs.analysis.findings.comparisons import Comparison, compare
from vtjobs.analysis.findings.interim import look, shares
from vtjobs.analysis.findings.plan import ComparisonPlan
from vtjobs.analysis.findings.power import for_looks
from vtjobs.analysis.output.layout import markdown
from vtjobs.analysis.output.notes import comparison_notes
from vtjobs.analysis.output.render import of_comparisons
from vtjobs.analysis.stats.difference import Difference, welch
from vtjobs.jobs.run.comparing import Test
from vtjobs.jobs.values import changed

from ...support.cells import cell as a_cell

LOOKS = (3, 5, 10)


def test_the_looks_spend_alpha_in_parts_of_one_two_three() -> None:
    assert shares(0.05, LOOKS) == pytest.approx([0.05 / 6, 0.05 / 3, 0.05 / 2])
    assert sum(shares(0.05, LOOKS)) == pytest.approx(0.05)
    assert shares(0.05, [4]) == [0.05]


def _welch(ours: list[float], theirs: list[float], size: int | None) -> Difference:
    return welch(ours[:size], theirs[:size])


def _wrong(heads: int, naive: bool) -> float:
    """Return how often a study without any effect calls something separable at some look.

    300 studies.
    """
    draw = numpy.random.default_rng(0)
    found = 0
    for _ in range(300):
        base, *others = (
            [float(value) for value in draw.normal(80.0, 1.0, 10)] for _ in range(heads + 1)
        )
        family: list[Callable[[int | None], Difference]] = [
            partial(_welch, one, base) for one in others
        ]
        if naive:
            found += any((one(size).p or 1.0) <= 0.05 for one in family for size in LOOKS)
            continue
        for known in LOOKS:
            # The study is looked at as it grows; nothing decided is taken back.
            seen = look(family, [known] * heads, alpha=0.05, looks=LOOKS)
            if any(one.adjusted is not None and one.adjusted <= one.alpha for one in seen):
                found += 1
                break
    return found / 300


@pytest.mark.parametrize("heads", [1, 6])
def test_looking_again_and_again_is_wrong_no_more_often_than_alpha(heads: int) -> None:
    # Four standard errors above 5 %; they spend less than they may.
    assert _wrong(heads, naive=False) < 0.05 + 4 * (0.05 * 0.95 / 300) ** 0.5


def test_the_naive_way_is_wrong_far_more_often() -> None:
    assert _wrong(6, naive=True) > 0.2


def cell(name: str, values: list[float], baseline: str | None = None) -> Cell:
    return a_cell(name, values, baseline=baseline, planned=10)


BASE = [80.0, 80.2, 79.8, 80.1, 79.9, 80.0, 80.2, 79.8, 80.1, 79.9]


def judged(values: list[float], **plan: Any) -> Comparison:
    (found,) = compare(
        [cell("base", BASE), cell("head", values, "base")], ComparisonPlan(looks=LOOKS, **plan)
    ).comparisons
    return found


def test_between_two_looks_only_the_seeds_of_the_last_one_count() -> None:
    three = judged([80.0, 80.1, 80.2])
    assert (three.n, three.look, three.alpha) == (3, 3, pytest.approx(0.05 / 6))
    assert judged([80.0, 80.1, 80.2, 90.0]).p == three.p
    assert judged([80.0, 80.1, 80.2]).detail.endswith(
        "interim analysis at 3 seeds, the next is at 5"
    )


def test_what_is_decided_stays_decided() -> None:
    early = judged([82.0, 82.1, 82.2])
    assert (early.verdict, early.look) == ("separable", 3)
    later = judged([82.0, 82.1, 82.2, 70.0, 71.0])
    assert (later.verdict, later.look, later.p) == ("separable", 3, early.p)


def test_before_the_first_look_nothing_is_tested() -> None:
    found = judged([90.0, 91.0])
    assert (found.verdict, found.detail, found.p_adjusted) == (
        "not testable",
        "the first interim analysis is at 3 seeds",
        None,
    )


def test_pairs_are_counted_by_the_seeds_that_both_have() -> None:
    cells = [
        cell("base", BASE),
        cell("head", [value + 1 + 0.01 * seed for seed, value in enumerate(BASE)], "base"),
    ]
    later = {seed: value for seed, value in cells[1].values.items() if seed}
    cells[1] = changed(cells[1], values=later)
    (found,) = compare(cells, ComparisonPlan(looks=LOOKS, test=Test.PAIRED)).comparisons
    # Seeds 1, 2 and 3 are the first three pairs.
    assert (found.look, found.n, found.verdict) == (3, 3, "separable")
    assert found.difference == pytest.approx(1.02)


def test_the_caption_names_the_looks() -> None:
    document = compare(
        [cell("base", BASE), cell("head", BASE, "base")], ComparisonPlan(looks=LOOKS)
    )
    assert "Interim analyses at 3, 5, 10 seeds" in markdown(of_comparisons(document))


def test_a_run_that_diverges_later_does_not_undo_what_is_decided() -> None:
    early = [82.0, 82.1, 82.2]
    later = changed(cell("head", early, "base"), diverged_seeds=[3], missing_seeds=[3])
    (found,) = compare([cell("base", BASE), later], ComparisonPlan(looks=LOOKS)).comparisons
    assert (found.verdict, found.look, found.p) == ("separable", 3, judged(early).p)
    assert found.bounds is None, "of the seeds that it was decided by none diverged"


def test_a_run_that_diverges_within_a_look_leaves_it_untested() -> None:
    diverged = changed(
        cell("head", {0: 82.0, 2: 82.2}, "base"), diverged_seeds=[1], missing_seeds=[1]
    )
    (found,) = compare([cell("base", BASE), diverged], ComparisonPlan(looks=LOOKS)).comparisons
    assert (found.verdict, found.look, found.next_look) == ("not testable", 3, None)


@pytest.mark.parametrize("test", [Test.WELCH, Test.PAIRED])
def test_a_run_that_failed_for_good_is_replaced_by_the_next_seed(test: Test) -> None:
    values = {0: 82.0, 2: 82.2, 3: 82.1}
    failed = changed(cell("head", values, "base"), missing_seeds=[1], lost_seeds=[1])
    (found,) = compare(
        [cell("base", BASE), failed], ComparisonPlan(looks=LOOKS, test=test)
    ).comparisons
    assert (found.look, found.n, found.verdict) == (3, 3, "separable")


def test_where_no_seed_is_left_to_replace_it_the_failed_one_is_named_and_a_seed_is_wanted() -> None:
    failed = changed(
        cell("head", {0: 82.0, 2: 82.2}, "base"), planned=3, missing_seeds=[1], lost_seeds=[1]
    )
    cells = [changed(cell("base", BASE[:3]), planned=3), failed]
    plan = ComparisonPlan(looks=LOOKS)
    (found,) = compare(cells, plan).comparisons
    assert (found.verdict, found.detail) == (
        "not testable",
        "the first interim analysis is at 3 seeds; seed 1 failed: add a seed, or retry its run",
    )
    base, head = for_looks(cells, plan)
    assert (base.more, head.more, head.new_seeds) == (0, 1, [3])


def test_a_failed_run_that_comes_back_does_not_undo_what_was_decided_without_it() -> None:
    values = {0: 82.0, 2: 82.2, 3: 82.1}
    for state in (
        {"missing_seeds": [1], "lost_seeds": [1]},
        {"missing_seeds": [1], "retried_seeds": [1]},
        {"values": values | {1: 60.0}, "retried_seeds": [1]},
    ):
        head = changed(cell("head", values, "base"), **state)
        (found,) = compare([cell("base", BASE), head], ComparisonPlan(looks=LOOKS)).comparisons
        assert (found.look, found.n, found.verdict) == (3, 3, "separable")


def test_at_any_time_nothing_is_tested_beyond_a_seed_that_is_still_to_come() -> None:
    values = {0: 82.0, 1: 82.1, 2: 82.2, 4: 82.3, 5: 82.1}
    head = changed(cell("head", values, "base"), missing_seeds=[3], cancelled_seeds=[3])
    document = compare([cell("base", BASE), head], ComparisonPlan(anytime=True))
    (found,) = document.comparisons
    assert (found.n, found.n_baseline) == (3, 3)
    assert "vit digits head: seed 3 is cancelled, and waited for." in comparison_notes(document)
