"""The word that a comparison ends in."""

import math
import random
import statistics
from typing import Any

import numpy
import pytest

from vtjobs.analysis.findings.cell import Cell
from vtjobs.analysis.findings.comparisons import Comparison, compare
from vtjobs.analysis.findings.plan import ComparisonPlan
from vtjobs.analysis.output import as_csv
from vtjobs.analysis.output.layout import latex, markdown
from vtjobs.analysis.output.render import of_comparisons
from vtjobs.analysis.stats.sample_size import seeds_for, upper_std
from vtjobs.jobs.run.comparing import Correction, Test
from vtjobs.jobs.values import changed

from ...support.cells import cell as a_cell

BASE = [80.1, 80.4, 79.9, 80.2, 80.0]


def cell(name: str, values: list[float], *, baseline: str | None = "base", **states: int) -> Cell:
    """Return a report's cell."""
    return a_cell(name, values, baseline=baseline, states=states)


def judged(values: list[float], **options: Any) -> Comparison:
    """Return the only comparison of two cells."""
    cells = [cell("base", BASE, baseline=None), cell("head", values)]
    (found,) = compare(cells, ComparisonPlan(**options)).comparisons
    return found


@pytest.mark.paper("VA-14")
def test_a_gain_far_above_the_spread_is_separable() -> None:
    found = judged([value + 1 for value in BASE])
    assert found.verdict == "separable" and found.difference == pytest.approx(1.0)


def test_a_gain_within_the_spread_is_inconclusive_and_says_what_the_seeds_can_find() -> None:
    found = judged([value + 0.1 for value in BASE])
    assert found.verdict == "inconclusive" and found.detail.startswith(
        "5 seeds can detect a difference of 0.43"
    )


def test_seeds_are_counted_for_the_declared_effect_and_not_for_the_one_that_was_seen() -> None:
    for shift in (0.05, 0.1, 0.15):
        assert judged([value + shift for value in BASE], min_effect=0.2).detail.startswith(
            "needs about 15 more seeds"
        )


def test_an_effect_is_called_excluded_only_where_the_interval_excludes_it() -> None:
    assert judged([value + 0.1 for value in BASE], min_effect=1.0).detail == (
        "the interval excludes a difference of 1"
    )
    near = judged([value + 0.25 for value in BASE], min_effect=0.45)
    assert near.interval is not None and near.interval[1] > 0.45
    assert (
        near.detail == "a difference of 0.45 is neither shown nor excluded, as may be with 5 seeds"
    )


def test_an_effect_that_is_there_is_seldom_called_excluded() -> None:
    generator = numpy.random.default_rng(11)
    effect, wrong = 2.0, 0
    for _ in range(400):
        cells = [
            cell("base", list(generator.normal(0.0, 1.0, 6)), baseline=None),
            cell("head", list(generator.normal(effect, 1.0, 6))),
        ]
        (found,) = compare(cells, ComparisonPlan(min_effect=effect)).comparisons
        wrong += "excludes" in found.detail
    # A false sentence in 5 % of cases at most: 20, and three standard errors.
    assert wrong <= 33


def test_pairs_need_other_numbers_of_seeds() -> None:
    values = [value + shift for value, shift in zip(BASE, [0.3, -0.3, 0.2, -0.1, 0.1], strict=True)]
    apart, together = (
        judged(values, min_effect=0.1, test=test).detail for test in (Test.WELCH, Test.PAIRED)
    )
    assert "to detect a difference of 0.1" in apart and "to detect a difference of 0.1" in together
    assert apart != together


@pytest.mark.paper("RV-42", "CA-16", "VA-14")
def test_a_tie_needs_a_margin() -> None:
    values = [value + 0.01 for value in BASE]
    assert judged(values).verdict == "inconclusive"
    assert judged(values, margin=0.5).verdict == "tie"


def test_a_difference_that_is_there_and_too_small_to_matter_says_both() -> None:
    found = judged([value + 0.4 for value in BASE], margin=1.0)
    assert (found.verdict, found.detail) == (
        "separable",
        "significant, but equivalent within the margin",
    )


@pytest.mark.paper("CA-16", "VA-14")
def test_one_seed_is_not_testable() -> None:
    found = judged([81.0])
    assert (found.verdict, found.p, found.interval) == ("not testable", None, None)
    assert found.difference == pytest.approx(0.88)


@pytest.mark.paper("DE-13", "VA-18")
def test_a_diverged_run_is_an_outcome_that_no_difference_may_leave_out() -> None:
    cells = [
        cell("base", BASE, baseline=None),
        cell("head", [value + 1 for value in BASE], diverged=1),
    ]
    (found,) = compare(cells).comparisons
    assert found.verdict == "not testable" and "1 diverged" in found.detail


def test_a_failed_run_changes_no_number() -> None:
    better = [value + 1 for value in BASE]
    cells = [cell("base", BASE, baseline=None), cell("head", better, failed=1)]
    (found,) = compare(cells).comparisons
    assert changed(found, planned=5) == judged(better)


def test_more_comparisons_raise_the_bar() -> None:
    many = [cell(f"head{index}", [value + 0.3 for value in BASE]) for index in range(10)]
    alone = judged([value + 0.3 for value in BASE])
    together = compare([cell("base", BASE, baseline=None), *many]).comparisons[0]
    assert alone.verdict == "separable" and together.verdict == "inconclusive"
    assert together.p == alone.p and together.p_adjusted == pytest.approx(10 * alone.p)


def test_pairs_see_what_the_spread_of_seeds_hides() -> None:
    wide = [70.0, 75.0, 80.0, 85.0, 90.0]
    cells = [
        cell("base", wide, baseline=None),
        cell("head", [a + b for a, b in zip(wide, BASE, strict=True)]),
    ]
    paired = {seed: value + 1 + 0.1 * (seed % 2) for seed, value in enumerate(wide)}
    cells[1] = changed(cells[1], values=paired)
    assert compare(cells).comparisons[0].verdict == "inconclusive"
    assert compare(cells, ComparisonPlan(test=Test.PAIRED)).comparisons[0].verdict == "separable"


def test_the_order_of_the_seeds_changes_no_byte() -> None:
    cells = [cell("base", BASE, baseline=None), cell("head", [value + 1 for value in BASE])]
    shuffled = []
    for one in cells:
        items = list(one.values.items())
        random.Random(3).shuffle(items)
        shuffled.append(changed(one, values=dict(items)))
    assert compare(shuffled) == compare(cells)


def test_every_layout_holds_the_words_and_no_nan() -> None:
    cells = [
        cell("base", BASE, baseline=None),
        cell("head", [value + 1 for value in BASE]),
        cell("single", [81.0]),
    ]
    document = compare(cells)
    texts = [
        markdown(of_comparisons(document)),
        latex(of_comparisons(document)),
        as_csv.of_comparisons(document),
    ]
    for text in texts:
        assert "separable" in text and "not testable" in text
        assert "nan" not in text.lower() and "p=0" not in text
    assert r"$\alpha$" in texts[1] and "α" not in texts[1]


def test_of_a_loss_the_smaller_run_wins() -> None:
    cells = [cell("base", BASE, baseline=None), cell("head", [value - 5 for value in BASE])]
    (found,) = compare([changed(one, better="min") for one in cells], ComparisonPlan()).comparisons
    assert found.ranks.improvement == 1.0 and found.difference == pytest.approx(-5)


def test_at_any_time_as_many_seeds_a_side_are_used_and_counted_by_the_e_value() -> None:
    near = [80.0, 80.6, 80.1, 80.3, 80.1]
    cells = [cell("base", [*BASE, 70.0, 71.0], baseline=None), cell("head", near)]
    plan = ComparisonPlan(anytime=True)
    (found,) = compare(cells, plan).comparisons
    assert (found.n, found.n_baseline) == (5, 5)
    assert (found.verdict, found.detail) == ("inconclusive", "add seeds and compare again")
    (counted,) = compare(cells, changed(plan, min_effect=0.2)).comparisons
    at_once = judged(near, min_effect=0.2)
    assert _more(counted) > _more(at_once) > 0


def _more(found: Comparison) -> int:
    return int(found.detail.removeprefix("needs about ").split()[0])


def test_with_more_comparisons_an_effect_needs_more_seeds() -> None:
    near = [80.0, 80.6, 80.1, 80.3, 80.1]
    alone = judged(near, min_effect=0.2)
    six = compare(
        [cell("base", BASE, baseline=None), *(cell(f"head{k}", near) for k in range(6))],
        ComparisonPlan(min_effect=0.2),
    ).comparisons
    std = upper_std(alone_std(near), alone.df or 0.0)
    needed = seeds_for(0.2 / std, alpha=0.05 / 6)
    assert needed is not None and _more(six[0]) == needed - 5 > _more(alone)


def alone_std(values: list[float]) -> float:
    """Return the deviation that a comparison of five seeds with the baseline has."""
    return math.sqrt((statistics.variance(values) + statistics.variance(BASE)) / 2)


def test_two_seeds_beside_more_say_what_they_cost() -> None:
    assert judged([90.0, 90.1]).detail == "two seeds on one side: the error rate may be twice α"
    assert not judged([90.0, 90.1, 90.2]).detail


def test_ranks_are_those_of_the_seeds_that_the_look_compares_and_of_no_cell_with_a_diverged_run() -> (
    None
):
    more = [80.0, 80.3, 80.1]
    cells = [
        cell("base", [*BASE, *more], baseline=None),
        cell("head", [value + 0.1 for value in (*BASE, *more)]),
    ]
    (found,) = compare(cells, ComparisonPlan(looks=(3, 5, 10))).comparisons
    assert (found.n, found.ranks.pairs) == (5, 25)
    cells[1] = changed(cells[1], diverged_seeds=[8])
    (found,) = compare(cells, ComparisonPlan()).comparisons
    assert (found.ranks.p, found.ranks.pairs) == (None, 0)


def test_dunnetts_correction_finds_more_than_holms_and_says_its_name() -> None:
    near = [value + 0.35 for value in BASE]
    cells = [cell("base", BASE, baseline=None), *(cell(f"head{k}", near) for k in range(6))]
    by_holm, by_dunnett = (
        compare(cells, ComparisonPlan(correction=Correction(name))) for name in ("holm", "dunnett")
    )
    first, second = (found.comparisons[0].p_adjusted for found in (by_holm, by_dunnett))
    assert first is not None and second is not None and second < first
    assert "step-down Dunnett" in markdown(of_comparisons(by_dunnett))


def test_the_effect_stands_in_the_table_with_its_interval() -> None:
    found = judged([value + 0.3 for value in BASE])
    assert found.effect is not None and found.effect_interval is not None
    assert found.effect_interval[0] < found.effect < found.effect_interval[1]
    document = compare([cell("base", BASE, baseline=None), cell("head", BASE[::-1])])
    assert "| g |" in markdown(of_comparisons(document))
