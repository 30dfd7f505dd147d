"""The notes below a report: what is missing, once per cause."""

import pytest

from vtjobs.analysis.findings.best_marks import marks
from vtjobs.analysis.findings.cell import Cell
from vtjobs.analysis.findings.comparisons import compare
from vtjobs.analysis.findings.plan import ComparisonPlan
from vtjobs.analysis.output.notes import MOST, comparison_notes, notes, report_notes
from vtjobs.analysis.output.wording import count
from vtjobs.jobs.run.comparing import Test
from vtjobs.jobs.units import ranges
from vtjobs.jobs.values import changed

from ...support.cells import cell


def lacking(seeds: list[int], *, rate: float = 0.1, **more: object) -> Cell:
    """Return a cell that lacks these seeds."""
    return cell("drloc", {100: 90.0}, missing_seeds=seeds, axes={"train.lr": rate}, **more)


def missing(cells: list[Cell]) -> list[str]:
    return [note for note in notes(cells) if "missing" in note]


def test_cells_that_lack_the_same_seeds_are_one_line_that_counts_them() -> None:
    cells = [lacking(list(range(50)), rate=rate / 10) for rate in range(24)]
    assert missing(cells) == ["24 cells: seeds 0-49 are missing."]


def test_few_cells_are_named_with_the_axes_that_they_differ_in() -> None:
    cells = [lacking([0, 1, 2, 7], rate=0.1), lacking([0, 1, 2, 7], rate=0.2)]
    assert missing(cells) == [
        "vit digits drloc train.lr=0.1; vit digits drloc train.lr=0.2: seeds 0-2, 7 are missing."
    ]


def test_one_seed_is_missing_in_the_singular() -> None:
    assert missing([lacking([2])]) == ["vit digits drloc: seed 2 is missing."]


def test_runs_that_completed_without_this_metric_are_not_called_missing() -> None:
    done = changed(lacking([0, 1]), n=0, states={})
    waiting = changed(lacking([0, 1], rate=0.1), n=0, states={"queued": 2})
    assert missing([waiting]) == ["vit digits drloc: seeds 0, 1 are missing."]
    assert [note for note in notes([done]) if "without" in note] == [
        "vit digits drloc: completed, without top1 on test."
    ]


def test_runs_that_neighbours_have_not_scored_yet_name_what_scores_them() -> None:
    part = changed(lacking([0, 1, 4]), metric="knn20", unscored_seeds=[0, 1])
    assert [note for note in notes([part]) if "drloc: " in note] == [
        "vit digits drloc: seed 4 is missing.",
        "vit digits drloc: 2 completed runs have no knn20 on test yet; `evaluate --knn 20` scores"
        " them.",
    ]


def test_every_set_of_missing_seeds_is_a_line_the_most_frequent_first() -> None:
    cells = [lacking([1]), *(lacking([3, 4], rate=rate) for rate in (1.0, 2.0, 3.0, 4.0))]
    assert missing(cells) == [
        "4 cells: seeds 3, 4 are missing.",
        "vit digits drloc train.lr=0.1: seed 1 is missing.",
    ]


def test_many_sets_of_missing_seeds_end_in_a_count() -> None:
    cells = [lacking([seed], rate=seed) for seed in range(MOST + 5)]
    found = missing(cells)
    assert len(found) == MOST + 1 and found[-1] == "5 more cells have missing seeds."


def test_numbers_in_a_row_are_a_range_from_three_on() -> None:
    assert ranges([0, 1, 3, 4, 5, 9]) == "0, 1, 3-5, 9"
    assert ranges([7]) == "7"


def test_a_paired_comparison_names_the_seeds_that_it_leaves_out() -> None:
    base = cell("base", {0: 80.0, 1: 80.1, 2: 80.2, 3: 80.4})
    head = cell("head", {1: 81.0, 2: 81.2, 3: 81.3, 4: 99.0}, baseline="base")
    found = comparison_notes(compare([base, head], ComparisonPlan(test=Test.PAIRED)))
    assert (
        "vit digits head: seeds 0, 4 are on one side alone and left out; "
        "the difference is not that of the means in the report." in found
    )


def test_where_no_mean_is_bold_the_note_says_that_the_best_is_marked_too() -> None:
    cells = [cell("a", [80.0, 80.1, 80.2]), cell("b", [80.0, 80.2, 80.1])]
    marked = [
        changed(one, marks=own)
        for one, own in zip(cells, marks(cells, ComparisonPlan()), strict=True)
    ]
    (said,) = [note for note in report_notes(marked, 2) if note.startswith("†")]
    assert said.startswith("† the best mean on its dataset, or not significantly different from it")


def test_runs_that_were_cut_are_told_with_what_depends_on_the_cut() -> None:
    base = cell("supervised", [50.0, 51.0], baseline=None)
    head = cell("drloc", [52.0, 53.0], baseline="supervised", cut_seeds=[1])
    text = "cut into smaller micro-batches after running out of memory. The pairs of DRLoc are"
    assert [note for note in notes([base]) if "cut into" in note] == []
    (said,) = [note for note in notes([base, head]) if "cut into" in note]
    assert said.startswith(f"1 run was {text}")
    (said,) = [
        note
        for note in comparison_notes(compare([base, head], ComparisonPlan(test=Test.PAIRED)))
        if "cut into" in note
    ]
    assert said.startswith(f"1 seed was {text}")


@pytest.mark.paper("VA-15")
def test_imported_seeds_are_counted_in_the_table_and_told_below_it() -> None:
    base = cell("supervised", [50.0, 51.0])
    head = cell("drloc", [52.0, 53.0], baseline="supervised", gain=2.0, imported_seeds=[1])
    assert count(2, 2, {}, 1) == "n=2, 1 imported"
    assert count(2, 3, {"failed": 1}, 2) == "n=2/3, 1 failed, imported"
    said = " ".join(notes([base, head]))
    assert "1 run was imported: trained elsewhere, and known only by the scores." in said
    assert "Some gains are between imported runs and runs that vtjobs trained" in said


def test_gains_between_runs_of_one_program_need_no_warning() -> None:
    base = cell("supervised", [50.0, 51.0], imported_seeds=[0, 1])
    head = cell("drloc", [52.0, 53.0], baseline="supervised", gain=2.0, imported_seeds=[0, 1])
    assert "Some gains are between" not in " ".join(notes([base, head]))
