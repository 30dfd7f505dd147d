"""The note on settings that were tried and are not shown."""

import pytest

from vtjobs.analysis.findings.comparisons import compare
from vtjobs.analysis.findings.plan import ComparisonPlan
from vtjobs.analysis.output import tried
from vtjobs.jobs.run.comparing import OverDatasets
from vtjobs.jobs.values import changed

from ...support.cells import cell

VALUES = [80.1, 80.4, 79.9]
BASE = cell("supervised", VALUES)
HEAD = cell("drloc", [value + 1 for value in VALUES], baseline="supervised")


def test_a_report_that_shows_every_setting_that_was_tried_has_no_note() -> None:
    twice = [changed(HEAD, cell_id=name, tried=2) for name in ("one", "two")]
    assert tried.of_cells([BASE, *twice]) == []


@pytest.mark.paper("DE-21", "VA-10")
def test_settings_that_are_not_shown_are_counted_for_each_combination() -> None:
    (note,) = tried.of_cells([BASE, changed(HEAD, tried=9)])
    assert note.startswith(
        "vit digits drloc: 9 settings tried in this workspace, 1 shown. The best"
    )


def test_a_cell_that_has_not_begun_is_none_of_the_settings_that_are_shown() -> None:
    begun, waiting = (
        changed(HEAD, cell_id=name, tried=tried) for name, tried in (("a", 2), ("b", 0))
    )
    (note,) = tried.of_cells([begun, waiting])
    assert "drloc: 2 settings tried in this workspace, 1 shown" in note


def test_settings_of_one_stage_do_not_stand_for_those_of_another() -> None:
    first = changed(HEAD, stage="pretrain", cell_id="a", tried=2)
    (note,) = tried.of_cells([first, changed(HEAD, stage="finetune", cell_id="b", tried=1)])
    assert "2 settings tried in this workspace, 1 shown" in note


def test_a_label_with_its_settings_is_the_same_head() -> None:
    cells = [changed(HEAD, head=f"drloc(weight={w})", cell_id=w, tried=3) for w in ("0.1", "0.5")]
    (note,) = tried.of_cells(cells)
    assert "vit digits drloc: 3 settings tried in this workspace, 2 shown" in note


def test_comparisons_over_datasets_have_the_note_too() -> None:
    cells = [
        changed(cell, dataset=dataset, match_id=dataset, cell_id=f"{cell.head}-{dataset}", tried=9)
        for dataset in ("digits", "cifar10", "svhn")
        for cell in (BASE, changed(HEAD, baseline=f"supervised-{dataset}"))
    ]
    document = compare(cells, ComparisonPlan(over_datasets=OverDatasets.FIXED))
    (note,) = tried.of_comparisons(document.comparisons, document.pooled)
    assert "Of 6 combinations of backbone, dataset and head" in note


def test_many_combinations_are_one_count() -> None:
    cells = [changed(HEAD, backbone=f"vit{number}", tried=number) for number in range(2, 8)]
    (note,) = tried.of_cells(cells)
    assert note.startswith("Of 6 combinations of") and "of one up to 7." in note


def test_a_comparison_counts_the_settings_of_both_sides() -> None:
    cells = [changed(BASE, tried=4), changed(HEAD, tried=4)]
    (note,) = tried.of_comparisons(compare(cells, ComparisonPlan()).comparisons)
    assert "drloc: 4 settings" in note and "supervised: 4 settings" in note
