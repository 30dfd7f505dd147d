"""One comparison of two heads over all datasets."""

import json
from typing import Any

import numpy
import pytest

from vtjobs.analysis.findings.cell import Cell
from vtjobs.analysis.findings.comparisons import Comparisons, compare
from vtjobs.analysis.findings.plan import ComparisonPlan
from vtjobs.analysis.output import as_csv
from vtjobs.analysis.output.figures.comparisons import pooled_forest
from vtjobs.analysis.output.layout import latex, markdown
from vtjobs.analysis.output.notes import comparison_notes
from vtjobs.analysis.output.over_datasets import of_pooled
from vtjobs.analysis.stats.difference import holm
from vtjobs.jobs.documents import to_plain
from vtjobs.jobs.run.comparing import OverDatasets
from vtjobs.jobs.values import changed

from ...support.cells import cell

DATASETS = ("cifar10", "flowers", "pets", "svhn")


def cells(
    gains: dict[str, tuple[float, ...]], *, seeds: int = 5, spread: float = 0.3
) -> list[Cell]:
    """Return a baseline and heads on each dataset, with these true gains."""
    draw = numpy.random.default_rng(0)
    found = []
    for number, dataset in enumerate(DATASETS):
        for head in ("supervised", *gains):
            gain = gains[head][number] if head in gains else 0.0
            values = draw.normal(60.0 + 10 * number + gain, spread, seeds).tolist()
            one = cell(
                f"{head}-{dataset}",
                values,
                baseline=None if head == "supervised" else f"supervised-{dataset}",
                dataset=dataset,
                match_id=dataset,
            )
            found.append(changed(one, head=head))
    return found


def judged(given: list[Cell], kind: str = "random", **more: Any) -> Comparisons:
    return compare(given, ComparisonPlan(over_datasets=OverDatasets(kind), **more))


STEADY = {"drloc": (1.0, 1.1, 0.9, 1.0)}
UNSTEADY = {"drloc": (4.0, -1.0, 2.0, 0.5)}


def test_seeds_that_are_not_scored_yet_are_named_with_their_dataset() -> None:
    given = [
        changed(one, missing_seeds=[5], unscored_seeds=[5], metric="knn20")
        if one.cell_id == "drloc-pets"
        else changed(one, metric="knn20")
        for one in cells(STEADY)
    ]
    said = "seed 5 is not scored yet (by `evaluate --knn 20`), and left out."
    assert f"pets, drloc: {said}" in comparison_notes(judged(given))
    single = [note for note in comparison_notes(compare(given, ComparisonPlan())) if said in note]
    assert len(single) == 1


def test_a_steady_gain_is_separable_on_these_datasets_and_on_others() -> None:
    for kind in ("fixed", "random"):
        (found,) = judged(cells(STEADY), kind).pooled
        assert found.verdict == "separable"
        assert found.difference == pytest.approx(1.0, abs=0.2)
        assert [one.dataset for one in found.datasets] == list(DATASETS)


def test_a_gain_that_depends_on_the_dataset_holds_for_these_alone() -> None:
    (fixed,) = judged(cells(UNSTEADY), "fixed").pooled
    (random,) = judged(cells(UNSTEADY), "random").pooled
    assert (fixed.verdict, random.verdict) == ("separable", "inconclusive")
    assert fixed.interval == fixed.fixed and random.interval == random.random
    assert random.tau is not None and random.tau > 1.0


def test_over_all_datasets_there_is_a_comparison_per_head_and_none_per_dataset() -> None:
    two = cells(STEADY | {"relvit": (0.1, 0.1, 0.0, 0.0)})
    found = judged(two)
    assert found.comparisons == [] and [one.head for one in found.pooled] == ["drloc", "relvit"]
    assert [one.m for one in found.pooled] == [2, 2]
    assert [one.p_adjusted for one in found.pooled] == holm([one.p for one in found.pooled])


def test_a_diverged_run_on_one_dataset_leaves_all_of_them_untested() -> None:
    given = cells(STEADY)
    given[1] = changed(given[1], diverged_seeds=[9])
    (found,) = judged(given).pooled
    assert found.verdict == "not testable" and found.detail.startswith("cifar10: 1 diverged run")


def test_one_dataset_is_no_comparison_over_datasets() -> None:
    (found,) = judged(cells(STEADY)[:2]).pooled
    assert (found.verdict, found.detail) == ("not testable", "only one dataset has both heads")


def test_a_margin_and_a_smallest_effect_are_judged_as_on_one_dataset() -> None:
    nothing = cells({"drloc": (0.0, 0.0, 0.0, 0.0)})
    (tie,) = judged(nothing, "fixed", margin=1.0).pooled
    (excluded,) = judged(nothing, "fixed", min_effect=5.0).pooled
    assert (tie.verdict, tie.detail) == ("tie", "equivalent within the margin")
    assert excluded.detail == "the interval excludes a difference of 5"


def test_every_layout_shows_each_dataset_and_all_of_them() -> None:
    document = judged(cells(STEADY))
    json.dumps(to_plain(document), allow_nan=False)
    for text in (
        markdown(of_pooled(document)),
        latex(of_pooled(document)),
        as_csv.of_pooled(document),
    ):
        assert all(dataset in text for dataset in DATASETS) and "separable" in text
    drawn = pooled_forest(document)
    assert len(drawn.rows) == 5 and drawn.rows[-1][-1] == "separable"
