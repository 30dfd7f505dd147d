"""What printed deviations say of single runs, marked as borrowed."""

import math
from typing import Any

import pytest

from vtjobs.analysis.findings.borrowed import Borrowed, borrowed
from vtjobs.analysis.findings.comparisons import compare
from vtjobs.analysis.findings.pair import difference
from vtjobs.analysis.findings.plan import ComparisonPlan
from vtjobs.analysis.output.notes import comparison_notes
from vtjobs.jobs.run.comparing import Test as Kind

from ...support.cells import cell

Values = dict[int, float]


def found(
    dataset: str,
    ours: Values,
    theirs: Values,
    plan: ComparisonPlan | None = None,
    **more: Any,
) -> Borrowed | None:
    baseline = cell("supervised", theirs, dataset=dataset, **more)
    head = cell("drloc", ours, baseline="supervised", dataset=dataset, **more)
    plan = plan or ComparisonPlan()
    return borrowed(head, baseline, difference(head, baseline, plan), plan)


ONE, OTHER = {0: 80.4}, {0: 80.0}


@pytest.mark.paper("CA-16", "VA-17")
def test_imagenet_has_the_deviations_that_the_thesis_prints() -> None:
    """ResNet-50 over 100 seeds, and the usual ones of DeiT-B, PatchConvNet-S60 and ViT-B."""
    got = found("imagenet1k", ONE, OTHER)
    assert got is not None
    tables = ["thesis:3.8", "thesis:5.3.4-text", "thesis:6.5-caption", "thesis:fig6.7"]
    assert (got.low, got.high, got.tables) == (0.1, 0.2, tables)
    assert got.errors == pytest.approx([0.4 / (math.sqrt(2) * std) for std in (0.2, 0.1)])


@pytest.mark.paper("CA-16", "VA-17")
def test_a_further_set_has_its_own_deviation_and_more_seeds_on_one_side_count() -> None:
    got = found("imagenet1k", ONE, {0: 80.0, 1: 80.0, 2: 80.0}, set="v2")
    assert got is not None and (got.low, got.high, got.count) == (0.23, 0.23, 1)
    assert got.errors == pytest.approx([0.4 / (0.23 * math.sqrt(1 + 1 / 3))] * 2)


def test_deviations_over_splits_of_training_images_are_none_over_seeds() -> None:
    got = found("cifar100", ONE, OTHER)
    # The thesis prints such of its table 2.1.
    assert got is not None and got.tables == ["relvit:2", "relvit:3"]


def test_flowers_in_relvits_protocol_is_another_dataset() -> None:
    got = found("flowers102_relvit", ONE, OTHER)
    assert got is not None and got.tables == ["relvit:2", "relvit:3"]
    assert found("flowers102", ONE, OTHER) is None


@pytest.mark.parametrize(
    ("dataset", "ours", "theirs", "plan", "more"),
    [
        ("imagenet1k", {0: 80.4, 1: 80.5}, {0: 80.0, 1: 80.1}, ComparisonPlan(), {}),
        ("imagenet1k", ONE, {}, ComparisonPlan(), {}),
        ("digits", ONE, OTHER, ComparisonPlan(), {}),
        ("imagenet1k", ONE, OTHER, ComparisonPlan(looks=(3, 5)), {}),
        ("imagenet1k", ONE, OTHER, ComparisonPlan(anytime=True), {}),
        ("imagenet1k", ONE, OTHER, ComparisonPlan(), {"diverged_seeds": [1, 2]}),
        ("imagenet1k", ONE, OTHER, ComparisonPlan(), {"missing_seeds": [1, 2]}),
    ],
    ids=["a test", "no value", "nothing printed", "looks", "anytime", "diverged", "more to come"],
)
def test_nothing_is_borrowed_for_what_is_no_pair_of_single_runs(
    dataset: str, ours: Values, theirs: Values, plan: ComparisonPlan, more: dict[str, Any]
) -> None:
    assert found(dataset, ours, theirs, plan, **more) is None


def test_one_seed_in_common_is_one_pair_of_a_paired_comparison() -> None:
    plan = ComparisonPlan(test=Kind.PAIRED)
    got = found("imagenet1k", {0: 80.4, 1: 80.0}, {0: 80.0, 2: 81.0}, plan)
    assert got is not None
    assert got.errors == pytest.approx([0.4 / (math.sqrt(2) * std) for std in (0.2, 0.1)])


@pytest.mark.paper("CA-16", "VA-17")
def test_the_note_says_that_it_is_no_test_and_whose_deviations_they_are() -> None:
    cells = [
        cell("supervised", OTHER, dataset="imagenet100"),
        cell("drloc", ONE, baseline="supervised", dataset="imagenet100"),
    ]
    document = compare(cells)
    (one,) = document.comparisons
    assert one.verdict == "not testable" and one.borrowed is not None
    (note,) = [note for note in comparison_notes(document) if "Borrowed" in note]
    assert note == (
        "vit imagenet100 drloc: 1 and 1 seeds, no test. Printed standard deviations over seeds on"
        " imagenet100 are 0.01 to 0.91 (drloc:3, relvit:2); with these the difference is 0.3 to 28.3"
        " standard errors. Borrowed from other models: yours may spread otherwise."
    )
