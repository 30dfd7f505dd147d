"""How many seeds a goal needs, from the deviation so far and nothing else."""

import json
import math

import numpy
import pytest
from scipy.stats import t as student

from vtjobs.analysis.findings.cell import Cell
from vtjobs.analysis.findings.plan import ComparisonPlan
from vtjobs.analysis.findings.power import (
    Goal,
    for_effect,
    for_looks,
    for_margin,
    for_precision,
    strictest,
    with_hours,
)
from vtjobs.analysis.output.layout import markdown
from vtjobs.analysis.output.render import of_needs
from vtjobs.analysis.stats.sample_size import seeds_for, upper_std
from vtjobs.jobs.documents import to_plain
from vtjobs.jobs.run.comparing import OverDatasets, Test
from vtjobs.jobs.values import changed

from ...support.cells import cell as a_cell


def cell(
    name: str, values: list[float], *, baseline: str | None = None, planned: int | None = None
) -> Cell:
    return a_cell(name, values, baseline=baseline, planned=planned or len(values))


def test_a_half_width_needs_steins_number_of_seeds() -> None:
    values = [80.0, 81.0, 82.0, 80.5, 81.5]
    (found,) = for_precision([cell("c", values)], 0.3)
    std = float(numpy.std(values, ddof=1))
    assert found.needed == math.ceil((student.ppf(0.975, 4) * std / 0.3) ** 2)
    assert found.more == found.needed - 5


def test_enough_seeds_are_never_fewer_than_there_are() -> None:
    (found,) = for_precision([cell("c", [80.0, 80.1, 80.2, 80.1])], 5.0)
    assert (found.needed, found.more) == (4, 0)


def test_seeds_that_are_planned_are_not_bought_again() -> None:
    (found,) = for_precision([cell("c", [80.0, 81.0, 82.0], planned=100)], 0.5)
    assert found.needed < 100 and found.more == 0


def test_steins_intervals_cover_as_often_as_they_say() -> None:
    """Normal seeds from n = 3 on.

    The interval of all N made with the first deviation holds the mean in 95 %.
    """
    draw = numpy.random.default_rng(0)
    held = 0
    for _ in range(2000):
        first = [float(value) for value in draw.normal(0.0, 1.0, 3)]
        (found,) = for_precision([cell("c", first)], 1.5)
        if found.needed is None:
            held += 1  # So many seeds that the mean is known.
            continue
        mean = numpy.mean([*first, *draw.normal(0.0, 1.0, found.needed - 3)])
        held += abs(mean) <= student.ppf(0.975, 2) * numpy.std(first, ddof=1) / math.sqrt(
            found.needed
        )
    assert held / 2000 == pytest.approx(0.95, abs=0.02)


BASE = [80.0, 81.0, 79.0, 80.5, 79.5]


def test_an_effect_needs_the_seeds_of_a_power_table() -> None:
    """One standard deviation at 80 %: 17 a side (Cohen 1988, table 2.4.1)."""
    cells = [cell("base", BASE), cell("head", [value + 3 for value in BASE], baseline="base")]
    assert cells[0].std is not None
    # What counts is the upper limit of the deviation, here of two sides of five.
    std = upper_std(cells[0].std, 8)
    found = for_effect(cells, ComparisonPlan(min_effect=std))
    assert [one.needed for one in found] == [17, 17]


@pytest.mark.parametrize("heads", [1, 6])
def test_looks_and_further_heads_need_more_seeds(heads: int) -> None:
    cells = [cell("base", BASE)]
    cells += [cell(f"head{k}", BASE[::-1], baseline="base") for k in range(heads)]
    assert cells[0].std is not None
    std = upper_std(cells[0].std, 8)
    needed = seeds_for(1.0, alpha=0.05 / 2 / heads)
    assert needed is not None
    plan = ComparisonPlan(min_effect=std, looks=(3, 5, needed))
    # The last of three looks spends half of α.
    assert strictest(cells, plan) == {"": pytest.approx(0.05 / 2 / heads)}
    assert {one.needed for one in for_effect(cells, plan)} == {needed}
    # Seeds beyond the last look would never be tested.
    short = for_effect(cells, changed(plan, looks=(3, 5, needed - 1)))
    assert {one.why_not for one in short} == {
        f"the last look, at {needed - 1} seeds, does not find it"
    }


def test_a_pair_is_short_of_a_seed_that_failed_on_either_side() -> None:
    cells = [
        a_cell("base", {0: 80.0, 2: 81.0}, missing_seeds=[1], lost_seeds=[1], planned=3),
        a_cell(
            "head",
            {0: 80.5, 1: 81.0},
            baseline="base",
            missing_seeds=[2],
            lost_seeds=[2],
            planned=3,
        ),
    ]
    found = for_looks(cells, ComparisonPlan(looks=(3, 5), test=Test.PAIRED))
    # One pair is whole, so both sides need two more.
    assert [one.more for one in found] == [2, 2]
    assert [one.new_seeds for one in found] == [[3, 4], [3, 4]]


def test_a_tie_needs_its_own_number_of_seeds() -> None:
    cells = [cell("base", BASE), cell("head", BASE[::-1], baseline="base")]
    assert cells[0].std is not None
    std = upper_std(cells[0].std, 8)
    found = for_margin(cells, ComparisonPlan(margin=std))
    # Two groups of 18 show that they are within one deviation, if they do not differ.
    assert [one.needed for one in found] == [18, 18]


def test_a_run_that_failed_is_replaced() -> None:
    failed = a_cell("c", [80.0, 81.0, 82.0], planned=4, missing_seeds=[3], lost_seeds=[3])
    (found,) = for_precision([failed], 2.2)
    assert (found.needed, found.more) == (4, 1)
    assert found.new_seeds == [4]


def test_the_difference_that_was_seen_plays_no_part() -> None:
    needs = [
        for_effect(
            [cell("base", BASE), cell("head", [value + shift for value in BASE], baseline="base")],
            ComparisonPlan(min_effect=1.0),
        )
        for shift in (0.0, 10.0)
    ]
    assert needs[0] == needs[1]


def test_pairs_that_move_together_need_fewer() -> None:
    together = [value + 0.5 + 0.1 * (-1) ** seed for seed, value in enumerate(BASE)]
    cells = [cell("base", BASE), cell("head", together, baseline="base")]
    paired, apart = (
        for_effect(cells, ComparisonPlan(test=test, min_effect=0.5))
        for test in (Test.PAIRED, Test.WELCH)
    )
    assert paired[1].needed < 5 < apart[1].needed


def test_a_baseline_needs_as_many_as_its_most_demanding_head() -> None:
    wide = [70.0, 80.0, 90.0, 75.0, 85.0]
    cells = [
        cell("base", BASE),
        cell("calm", BASE, baseline="base"),
        cell("wild", wide, baseline="base"),
    ]
    base, calm, wild = for_effect(cells, ComparisonPlan(min_effect=2.0))
    assert base.needed == wild.needed > calm.needed


def test_what_cannot_be_counted_says_why() -> None:
    (alone,) = for_precision([cell("c", [80.0])], 0.5)
    assert (alone.needed, alone.why_not) == (None, "needs two finished seeds first")
    found = for_effect(
        [cell("base", BASE), cell("head", [80.0], baseline="base"), cell("odd", BASE)],
        ComparisonPlan(min_effect=1.0),
    )
    assert [one.why_not for one in found] == ["needs two seeds on each side"] * 2 + [
        "not part of any comparison"
    ]


def test_the_cost_is_by_the_cells_own_history() -> None:
    needs = for_precision([cell("c", [80.0, 81.0, 82.0]), cell("new", [80.0, 81.0, 82.0])], 1.0)
    goal = Goal(metric="top1", set="test", half_width=1.0)
    document = with_hours(needs, goal, {"c": (1800.0, 3)}, {"c": 8})
    more = needs[0].more
    assert document.cells[0].run_hours == pytest.approx(more / 2)
    assert document.gpu_hours == pytest.approx(more * 4)
    assert document.cells[1].gpu_hours is None and document.runs == 2 * more
    json.dumps(to_plain(document), allow_nan=False)
    assert "Stein's rule" in markdown(of_needs(document))


def test_what_is_open_goes_to_its_next_look_with_its_baseline_and_what_is_decided_buys_nothing() -> (
    None
):
    cells = [cell("base", BASE), cell("far", [value + 9 for value in BASE], baseline="base")]
    cells.append(cell("near", [value + 0.1 for value in BASE], baseline="base"))
    needs = {one.cell_id: one for one in for_looks(cells, ComparisonPlan(looks=(3, 5, 10)))}
    assert [needs[name].needed for name in ("base", "far", "near")] == [10, None, 10]
    assert (
        needs["near"].more == 5
        and needs["far"].why_not == "decided, or past the last interim analysis"
    )
    done = for_looks(cells, ComparisonPlan(looks=(3, 5)))
    assert [one.needed for one in done] == [None, None, None], "the last look was the last"
    early = for_looks(cells, ComparisonPlan(looks=(8, 10)))
    assert [one.needed for one in early] == [8, 8, 8]
    document = with_hours(early, Goal(metric="top1", set="test", looks=(8, 10)), {}, {})
    assert "(declared at 8, 10 seeds per side)" in markdown(of_needs(document))


def test_over_these_datasets_the_mean_needs_fewer_seeds_and_over_others_more_datasets() -> None:
    cells = []
    for dataset in ("a", "b", "c", "d"):
        base = a_cell(f"base-{dataset}", BASE, dataset=dataset, match_id=dataset)
        head = a_cell(
            f"head-{dataset}",
            BASE[::-1],
            dataset=dataset,
            match_id=dataset,
            baseline=f"base-{dataset}",
        )
        cells += [changed(base, head="base"), changed(head, head="head")]
    alone, mean, others = (
        for_effect(cells, ComparisonPlan(min_effect=1.0, over_datasets=OverDatasets(kind)))[0]
        for kind in ("each", "fixed", "random")
    )
    assert alone.needed is not None and mean.needed is not None and mean.needed < alone.needed / 3
    assert others.needed is None and others.why_not.startswith(
        "for datasets like these more datasets"
    )
