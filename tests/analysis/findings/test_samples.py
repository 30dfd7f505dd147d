"""What diverged runs do to a comparison, and what shares α."""

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtjobs.analysis.findings.best_marks import marks
from vtjobs.analysis.findings.cell import Cell
from vtjobs.analysis.findings.comparisons import Comparison, compare
from vtjobs.analysis.findings.plan import ComparisonPlan
from vtjobs.analysis.findings.power import for_effect, for_looks
from vtjobs.analysis.output.render import of_comparisons
from vtjobs.analysis.stats.difference import false_discovery, holm, welch
from vtjobs.analysis.stats.summary import describe
from vtjobs.jobs.documents import to_plain
from vtjobs.jobs.run.comparing import Family, OnDiverged, Test
from vtjobs.jobs.values import changed

from ...support.cells import cell

BASE = [80.1, 80.4, 79.9, 80.2, 80.0]
UP = [value + 1 for value in BASE]
# Benjamini and Hochberg (1995), section 3.2.
THROMBOLYSIS = [
    0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262, 0.5719, 0.6528, 0.7590, 1.0,
]  # fmt: skip


def judged(*cells: Cell, **options: Any) -> list[Comparison]:
    return compare([cell("base", BASE), *cells], ComparisonPlan(**options)).comparisons


def test_a_diverged_run_suppresses_the_test_and_bounds_the_difference() -> None:
    (found,) = judged(cell("head", UP, baseline="base", states={"diverged": 1}))
    means = [(sum(UP) + level) / 6 - sum(BASE) / 5 for level in (10.0, 100.0)]
    assert found.verdict == "not testable" and found.bounds == pytest.approx(means)
    assert "the difference would be in [-10.85, +4.15]" in found.detail


def test_on_request_a_diverged_run_counts_as_one_that_guesses() -> None:
    (found,) = judged(
        cell("head", UP, baseline="base", states={"diverged": 1}), on_diverged=OnDiverged.CHANCE
    )
    assert found.n == 6 and found.p == pytest.approx(welch([*UP, 10.0], BASE).p)


def test_a_diverged_pair_at_chance_is_a_pair() -> None:
    base, head = (
        cell("base", [*BASE, 80.3]),
        cell("head", UP, baseline="base", states={"diverged": 1}),
    )
    plan = ComparisonPlan(test=Test.PAIRED, on_diverged=OnDiverged.CHANCE)
    (found,) = compare([base, head], plan).comparisons
    assert found.n == 6 and found.difference == pytest.approx((5 * 1 + 10 - 80.3) / 6)


def test_a_look_uses_the_first_planned_seeds_and_waits_for_them() -> None:
    later = {seed: 80.0 + seed % 3 / 10 for seed in (0, 2, 3, 4, 5)}
    base = cell("base", dict.fromkeys(range(6), 80.0) | {1: 80.1})
    for missing, look in (([1], None), ([], 3)):
        head = cell(
            "head",
            later | ({} if missing else {1: 80.2}),
            baseline="base",
            missing_seeds=missing,
            planned=6,
        )
        (found,) = compare([base, head], ComparisonPlan(looks=(3, 10))).comparisons
        assert found.look == look


def test_a_look_at_a_diverged_run_is_not_tested_and_buys_nothing() -> None:
    cells = [cell("base", BASE[:3]), cell("head", UP[:2], baseline="base", states={"diverged": 1})]
    cells[1] = changed(cells[1], missing_seeds=[2])
    (found,) = compare(cells, ComparisonPlan(looks=(3, 5))).comparisons
    assert (found.verdict, found.look, found.next_look) == ("not testable", 3, None)
    needs = for_looks(cells, ComparisonPlan(looks=(3, 5)))
    assert [(one.more, one.unknown) for one in needs] == [(None, True)] * 2


def test_a_metric_without_a_level_of_chance_is_not_tested() -> None:
    head = cell("head", UP, baseline="base", states={"diverged": 1}, metric="loss", chance=None)
    (found,) = judged(head, on_diverged=OnDiverged.CHANCE)
    assert (found.verdict, found.bounds) == (
        "not testable",
        None,
    ) and "no chance level" in found.detail


def test_each_dataset_may_be_a_family_of_its_own() -> None:
    heads = [
        cell(f"{name}{data}", UP, baseline=f"base{data}", dataset=data)
        for data in "ab"
        for name in "xyz"
    ]
    cells = [*(cell(f"base{data}", BASE, dataset=data) for data in "ab"), *heads]
    table, own = (
        compare(cells, ComparisonPlan(family=family)).comparisons
        for family in (Family.TABLE, Family.DATASET)
    )
    assert {one.m for one in table} == {6} and {one.m for one in own} == {3}
    p = welch(UP, BASE).p
    assert [one.p_adjusted for one in own] == pytest.approx(holm([p] * 3) * 2)


def test_every_pair_of_heads_may_be_compared() -> None:
    cells = [
        cell(name, [value + by for value in BASE])
        for name, by in (("a", 0.0), ("b", 1.0), ("c", 1.05))
    ]
    # What differs in more than the head is no pair, whatever its labels.
    cells += [cell("other", BASE, match_id="another")]
    document = compare(cells, ComparisonPlan(baseline="each"))
    found = {(one.head, one.baseline_head): one.verdict for one in document.comparisons}
    assert found == {("b", "a"): "separable", ("c", "a"): "separable", ("c", "b"): "inconclusive"}
    table = of_comparisons(document)
    assert table.heading[:4] == ["backbone", "dataset", "head", "over"] and table.labels == 4
    needs = {
        one.cell_id: one.needed
        for one in for_effect(cells, ComparisonPlan(baseline="each", min_effect=0.2))
    }
    assert needs["other"] is None and all(needs[name] > 5 for name in "abc")


def test_the_false_discovery_rate_is_that_of_its_authors_example() -> None:
    adjusted = false_discovery(THROMBOLYSIS)
    assert sum(p is not None and p <= 0.05 for p in adjusted) == 4
    # The fourth: 15 / 4 of its p.
    assert adjusted[3] == pytest.approx(0.0095 * 15 / 4)
    assert sum(p is not None and p <= 0.05 for p in holm(THROMBOLYSIS)) == 3


def test_a_screen_gives_candidates_and_no_verdict() -> None:
    (found,) = judged(cell("head", UP, baseline="base"), family=Family.SCREEN)
    assert (found.verdict, found.detail) == (
        "inconclusive",
        "passed the screen: confirm with new seeds",
    )


values = st.lists(st.integers(0, 1000).map(lambda number: number / 10), min_size=0, max_size=7)


@given(
    st.lists(values, min_size=1, max_size=4),
    values,
    st.randoms(use_true_random=False),
    st.sampled_from(list(Test)),
)
def test_the_order_of_seeds_and_of_the_grid_changes_no_byte(
    heads: list[list[float]], base: list[float], draw: random.Random, test: Test
) -> None:
    def told(cells: list[Cell]) -> dict[str, str]:
        found = {
            one.cell_id: one
            for one in compare(cells, ComparisonPlan(test=test, min_effect=1.0)).comparisons
        }
        own = zip(cells, marks(cells, ComparisonPlan()), strict=True)
        return {
            one.cell_id: json.dumps(
                to_plain([found.get(one.cell_id), mark, describe(one.values)]), allow_nan=False
            )
            for one, mark in own
        }

    cells = [
        cell("base", base),
        *(cell(f"head{n}", one, baseline="base") for n, one in enumerate(heads)),
    ]
    before = told(cells)
    shuffled = []
    for one in cells:
        items = list(one.values.items())
        draw.shuffle(items)
        shuffled.append(changed(one, values=dict(items)))
    draw.shuffle(shuffled)
    assert told(shuffled) == before


@given(
    values, values, st.sampled_from(["failed", "pending", "cancelled"]), st.sampled_from(list(Test))
)
def test_a_failed_run_more_changes_labels_and_no_number(
    ours: list[float], theirs: list[float], state: str, test: Test
) -> None:
    def told(**more: Any) -> Comparison:
        cells = [cell("base", theirs), cell("head", ours, baseline="base", **more)]
        (found,) = compare(cells, ComparisonPlan(test=test)).comparisons
        return changed(found, planned=0)

    assert told(states={state: 1}) == told()
