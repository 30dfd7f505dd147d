"""Whether a head gains more in one place than in another."""

import math
from statistics import fmean, variance

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtjobs.analysis.findings.between import between
from vtjobs.analysis.findings.cell import Cell
from vtjobs.analysis.findings.comparisons import compare
from vtjobs.analysis.findings.plan import ComparisonPlan
from vtjobs.analysis.output.between import csv_of_between, of_between
from vtjobs.analysis.stats.difference import difference_of, paired, welch
from vtjobs.jobs.errors import BadInput
from vtjobs.jobs.run.comparing import Correction, Family, OverDatasets
from vtjobs.jobs.run.comparing import Test as Kind
from vtjobs.jobs.values import changed

from ...support.cells import cell

SWIN = {"supervised": [70.0, 71.0, 72.0], "drloc": [75.0, 76.5, 77.0]}
CVT = {"supervised": [80.0, 81.0, 81.5], "drloc": [81.0, 81.5, 82.5]}


def cells_of(**backbones: dict[str, list[float]]) -> list[Cell]:
    """Return a baseline and a head for each backbone."""
    return [
        cell(
            f"{name}-{head}",
            values,
            baseline=None if head == "supervised" else f"{name}-supervised",
            backbone=name,
        )
        for name, heads in backbones.items()
        for head, values in heads.items()
    ]


def renamed(cells: list[Cell]) -> list[Cell]:
    return [changed(one, head=one.head.partition("-")[2]) for one in cells]


@pytest.mark.paper("DR-73", "DR-74", "DR-75")
def test_the_difference_of_two_gains_is_the_contrast_of_four_means() -> None:
    (found,) = between(renamed(cells_of(swin=SWIN, cvt=CVT)), ComparisonPlan(), "backbone")
    assert (found.head, found.levels) == ("drloc", ["swin", "cvt"])
    means = [fmean(values) for one in (SWIN, CVT) for values in one.values()]
    assert found.gains == [pytest.approx(means[1] - means[0]), pytest.approx(means[3] - means[2])]
    assert found.difference == pytest.approx(means[1] - means[0] - means[3] + means[2])
    parts = [variance(values) / 3 for one in (SWIN, CVT) for values in one.values()]
    # Satterthwaite's formula over all four.
    assert found.df == pytest.approx(sum(parts) ** 2 / sum(part**2 / 2 for part in parts))
    assert found.interval is not None and found.interval[0] < found.difference < found.interval[1]
    assert (
        found.is_significant == (found.p is not None and found.p <= 0.05) and found.is_significant
    )


def test_paired_gains_have_the_spread_of_their_differences() -> None:
    plan = ComparisonPlan(test=Kind.PAIRED)
    (found,) = between(renamed(cells_of(swin=SWIN, cvt=CVT)), plan, "backbone")
    gains = [
        [ours - theirs for ours, theirs in zip(one["drloc"], one["supervised"], strict=True)]
        for one in (SWIN, CVT)
    ]
    other = welch(*gains)
    assert (found.p, found.df) == (pytest.approx(other.p), pytest.approx(other.df))


@given(
    st.lists(
        st.lists(st.floats(-50, 50), min_size=2, max_size=6).filter(
            lambda one: variance(one) > 1e-3
        ),
        min_size=4,
        max_size=4,
    )
)
def test_taking_the_gains_the_other_way_round_changes_the_sign_alone(
    values: list[list[float]],
) -> None:
    one, other = welch(values[0], values[1]), welch(values[2], values[3])
    there, back = difference_of(one, other), difference_of(other, one)
    assert there.difference == -(back.difference or 0) and there.p == back.p
    assert there.error == pytest.approx(math.hypot(one.error or 0, other.error or 0))


def test_p_is_corrected_for_all_pairs_of_levels() -> None:
    found = between(renamed(cells_of(swin=SWIN, cvt=CVT, vit=CVT)), ComparisonPlan(), "backbone")
    assert [one.levels for one in found] == [["swin", "cvt"], ["swin", "vit"], ["cvt", "vit"]]
    assert all(one.p_adjusted is not None and one.p is not None for one in found)
    assert min(one.p_adjusted or 0 for one in found) == pytest.approx(
        3 * min(one.p or 1 for one in found)
    )
    assert found[2].difference == 0 and not found[2].is_significant


def test_single_runs_have_a_difference_and_no_test() -> None:
    one = {head: values[:1] for head, values in SWIN.items()}
    (found,) = between(renamed(cells_of(swin=one, cvt=CVT)), ComparisonPlan(), "backbone")
    assert found.difference is not None and found.p is None
    assert found.why_not == "needs two seeds on each side"


@pytest.mark.parametrize(
    ("factor", "plan", "message"),
    [
        ("dataset", ComparisonPlan(), "--between dataset: no two gains differ in it"),
        ("backbon", ComparisonPlan(), "Did you mean 'backbone'"),
        ("backbone", ComparisonPlan(looks=(3, 5)), "would be one more look"),
        ("backbone", ComparisonPlan(correction=Correction.DUNNETT), "correction: dunnett"),
        ("backbone", ComparisonPlan(family=Family.SCREEN), "Add --family table"),
        ("backbone", ComparisonPlan(over_datasets=OverDatasets.FIXED), "over_datasets: fixed"),
        ("stage", ComparisonPlan(), "no two gains differ in it"),
    ],
)
def test_a_factor_without_two_gains_and_a_declared_look_are_refused(
    factor: str, plan: ComparisonPlan, message: str
) -> None:
    with pytest.raises(BadInput, match=message):
        between(renamed(cells_of(swin=SWIN, cvt=CVT)), plan, factor)


def test_gains_over_one_baseline_are_no_difference_of_gains() -> None:
    cells = renamed(cells_of(swin=SWIN))
    two = [cells[0], changed(cells[1], axes={"weight": 0.1})]
    two.append(changed(cells[1], cell_id="other", axes={"weight": 0.5}))
    with pytest.raises(BadInput, match="no two gains differ"):
        between(two, ComparisonPlan(), "weight")


def weighted(weight: float, values: list[float], **more: object) -> Cell:
    """Return a cell of DRLoc with a weight, which is an axis of its grid."""
    name = f"drloc{weight}{more.get('backbone', '')}"
    return changed(cell(name, values, axes={"weight": weight}, **more), head="drloc")


def test_gains_that_share_a_cell_are_no_difference_of_gains() -> None:
    # Of every pair of weights: the gain from 0.1 to 0.3 and that from 0.3 to 0.5 share a cell.
    cells = [weighted(0.1, [1.0, 2.0]), weighted(0.3, [2.0, 4.0]), weighted(0.5, [3.0, 4.5])]
    with pytest.raises(BadInput, match="no two gains differ"):
        between(cells, ComparisonPlan(baseline="each"), "weight")


def test_gains_over_baselines_of_several_weights_have_a_line_for_each() -> None:
    cells = [
        one
        for backbone in ("swin", "cvt")
        for one in (
            weighted(0.1, [1.0, 2.0], backbone=backbone, match_id=backbone),
            weighted(0.5, [2.0, 4.0], backbone=backbone, match_id=backbone),
            changed(
                cell(f"relvit{backbone}", [3.0, 4.0], backbone=backbone, match_id=backbone),
                head="relvit",
            ),
        )
    ]
    # Three pairs on each backbone.
    found = between(cells, ComparisonPlan(baseline="each"), "backbone")
    assert [one.baseline_head for one in found] == ["drloc"] * 3


def test_a_setting_of_zero_is_a_setting() -> None:
    cells = [changed(one, axes={"mixup": 0.0}) for one in renamed(cells_of(swin=SWIN, cvt=CVT))]
    (found,) = between(cells, ComparisonPlan(), "backbone")
    assert found.where["mixup"] == 0.0


def test_a_later_stage_is_compared_seed_by_seed() -> None:
    """Its runs may start from the same weights on both datasets, so that their gains go
    together.
    """
    both = {
        "a": {"supervised": [70.0, 75.0, 80.0], "drloc": [71.0, 77.0, 83.0]},
        "b": {"supervised": [60.0, 61.0, 62.0], "drloc": [60.5, 62.6, 64.4]},
    }
    cells = [
        changed(one, dataset=one.backbone, backbone="vit", stage="finetune")
        for one in renamed(cells_of(**both))
    ]
    (found,) = between(cells, ComparisonPlan(), "dataset")
    gains = [[1.0, 2.0, 3.0], [0.5, 1.6, 2.4]]
    alone = paired(*(dict(enumerate(one)) for one in gains))
    assert found.by_seed and found.p == pytest.approx(alone.p)
    assert found.p is not None and found.p < (welch(*gains).p or 1)


def test_what_keeps_a_gain_from_a_test_is_said_of_its_level() -> None:
    cells = renamed(cells_of(swin=SWIN, cvt=CVT))
    cells[1] = changed(cells[1], diverged_seeds=[9])
    (found,) = between(cells, ComparisonPlan(), "backbone")
    assert found.p is None and found.why_not.startswith("swin: 1 diverged run(s)")


def test_a_family_of_each_dataset_has_its_own_correction() -> None:
    cells = [
        changed(
            one,
            dataset=name,
            cell_id=f"{name}{one.cell_id}",
            baseline=one.baseline and f"{name}{one.baseline}",
        )
        for name in ("a", "b")
        for one in renamed(cells_of(swin=SWIN, cvt=CVT))
    ]
    whole = between(cells, ComparisonPlan(), "backbone")
    apart = between(cells, ComparisonPlan(family=Family.DATASET), "backbone")
    assert [one.p_adjusted for one in whole] == pytest.approx([2 * (one.p or 0) for one in whole])
    assert [one.p_adjusted for one in apart] == [one.p for one in apart]


@pytest.mark.paper("DR-75")
def test_table_and_data_name_both_levels() -> None:
    document = compare(renamed(cells_of(swin=SWIN, cvt=CVT)), ComparisonPlan(), factor="backbone")
    table = of_between(document)
    assert table.body[0][1:7] == ["drloc", "supervised", "swin", "cvt", "+5.17", "+0.83"]
    assert table.body[0][-1] == "the gains differ"
    heading, row = csv_of_between(document).splitlines()
    assert heading.split(",")[:6] == ["dataset", "head", "over", "factor", "level", "other_level"]
    assert row.split(",")[:6] == ["digits", "drloc", "supervised", "backbone", "swin", "cvt"]
