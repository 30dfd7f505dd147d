"""Two methods that change places between settings."""

import itertools
from collections.abc import Sequence

import numpy
import pytest
from scipy.stats import levene

from vtjobs.analysis.findings.cell import Cell
from vtjobs.analysis.findings.comparisons import SpreadTest, compare
from vtjobs.analysis.findings.plan import ComparisonPlan
from vtjobs.analysis.findings.reversals import reversal_notes, reversals
from vtjobs.jobs.values import changed

from ...support.cells import cell


def normal(centre: float, std: float, count: int = 5) -> list[float]:
    draw = numpy.random.default_rng(int(100 * centre))
    values = draw.normal(0, 1, count)
    return (centre + std * (values - values.mean()) / values.std(ddof=1)).tolist()


# Of resnet50 and deit_s, each with a2 and t2.
ON_VAL, ON_V2 = (79.9, 79.6, 79.2, 80.4), (67.9, 68.1, 67.9, 69.2)


def thesis(std: float, scores: Sequence[float] = ON_VAL) -> list[Cell]:
    """Return the architecture by recipe table of Touvron's section 6.3.4 with a spread."""
    places = itertools.product(("a2", "t2"), ("resnet50", "deit_s"))
    means = {
        (backbone, recipe): mean for (recipe, backbone), mean in zip(places, scores, strict=True)
    }
    return [
        cell(
            f"{backbone}-{recipe}",
            normal(mean, std),
            backbone=backbone,
            recipe=recipe,
            head="supervised",
        )
        for (backbone, recipe), mean in means.items()
    ]


@pytest.mark.paper("DR-70", "VA-11")
def test_networks_that_change_places_between_recipes_are_told() -> None:
    (found,) = reversals(thesis(0.1), ComparisonPlan())
    assert (found.factor, found.levels) == ("backbone", ["deit_s", "resnet50"])
    assert [one["recipe"] for one in found.above] == ["t2"] and [
        one["recipe"] for one in found.below
    ] == ["a2"]
    assert reversal_notes([found]) == [
        "Reversal on digits: deit_s scores higher than resnet50 with t2 (+1.20), but lower with "
        "a2 (-0.30). No single ranking of these backbones holds for both."
    ]


@pytest.mark.paper("VA-11")
def test_on_the_second_set_the_same_networks_do_not_change_places() -> None:
    """Its ranking is the same for both recipes, and with a2 (67.9, 68.1) it may be luck."""
    cells = thesis(0.23, ON_V2)
    assert reversals(cells, ComparisonPlan()) == []
    found = {cell.cell_id: cell for cell in cells}
    by_recipe = {}
    for recipe in ("a2", "t2"):
        pair = [found[f"{backbone}-{recipe}"] for backbone in ("deit_s", "resnet50")]
        head = changed(pair[0], baseline=pair[1].cell_id, is_baseline=False, head="drloc")
        (one,) = compare([head, pair[1]]).comparisons
        by_recipe[recipe] = one.p
    assert by_recipe["a2"] > 0.05 > by_recipe["t2"]


@pytest.mark.paper("VA-11")
def test_signs_that_luck_may_have_turned_are_no_reversal() -> None:
    assert reversals(thesis(0.5), ComparisonPlan()) == []


@pytest.mark.parametrize("plan", [ComparisonPlan(looks=(3, 5)), ComparisonPlan(anytime=True)])
def test_where_looks_are_declared_no_other_one_is_taken(plan: ComparisonPlan) -> None:
    assert reversals(thesis(0.1), plan) == []


def test_a_head_that_helps_one_backbone_and_harms_another_is_told_by_compare() -> None:
    cells = [
        cell(f"{backbone}-{head}", normal(80 + by, 0.1), backbone=backbone, head=head,
             baseline=None if head == "supervised" else f"{backbone}-supervised")
        for backbone, gain in (("vit", 1.0), ("swin", -1.0))
        for head, by in (("supervised", 0.0), ("drloc", gain))
    ]  # fmt: skip
    found = [one for one in compare(cells, ComparisonPlan()).reversals if one.factor == "head"]
    assert [one["backbone"] for one in found[0].above] == ["vit"] and found[0].levels == [
        "drloc",
        "supervised",
    ]
    cells[1] = changed(cells[1], diverged_seeds=[9])
    assert not compare(cells, ComparisonPlan()).reversals


@pytest.mark.paper("RV-45")
def test_spreads_are_compared_by_brown_and_forsythe() -> None:
    calm, wild = normal(80, 0.1), normal(81, 0.5)
    (found,) = compare(
        [cell("base", calm), cell("head", wild, baseline="base")], ComparisonPlan()
    ).comparisons
    assert found.spread.ratio == pytest.approx(5.0)
    assert found.spread.p == pytest.approx(float(levene(wild, calm, center="median").pvalue))
    (few,) = compare(
        [cell("base", calm), cell("head", [1.0, 2.0], baseline="base")], ComparisonPlan()
    ).comparisons
    assert few.spread == SpreadTest(ratio=None, p=None)


@pytest.mark.parametrize("other", [[1.0, 1.0, 5.0, 5.0], [2.0, 2.0, 2.0]])
def test_deviations_that_are_all_equal_have_no_test_of_spread(other: list[float]) -> None:
    cells = [cell("base", [1.0, 1.0, 3.0, 3.0]), cell("head", other, baseline="base")]
    (found,) = compare(cells, ComparisonPlan()).comparisons
    assert found.spread.p is None
