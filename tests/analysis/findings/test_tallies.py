"""In how many of its comparisons a head is better."""

import pytest

from vtjobs.analysis.findings.cell import Cell
from vtjobs.analysis.findings.comparisons import Comparisons, compare
from vtjobs.analysis.findings.plan import ComparisonPlan
from vtjobs.analysis.output.render import of_comparisons
from vtjobs.jobs.run.comparing import Family
from vtjobs.jobs.values import changed

from ...support.cells import cell

BASE = [80.1, 80.4, 79.9, 80.2, 80.0]
# Far better, a little better, far worse, on as many backbones.
SHIFTS = {"vit": 1.0, "swin": 0.01, "cvt": -1.0}


def grid(better: str = "max", head: str = "drloc") -> list[Cell]:
    """Return a baseline and a head on each backbone."""
    found = []
    for backbone, shift in SHIFTS.items():
        base = cell(f"{backbone}-base", BASE, baseline=None)
        ours = cell(f"{backbone}-{head}", [value + shift for value in BASE], baseline=base.cell_id)
        facts = {"backbone": backbone, "better": better, "match_id": backbone}
        found += [changed(base, head="supervised", **facts), changed(ours, head=head, **facts)]
    return found


def compared(cells: list[Cell]) -> Comparisons:
    return compare(cells, ComparisonPlan())


@pytest.mark.paper("DR-71")
def test_a_head_is_counted_over_the_backbones_that_have_it() -> None:
    (found,) = compared(grid()).tallies
    assert (found.head, found.baseline_head, found.comparisons) == ("drloc", "supervised", 3)
    assert (found.better, found.worse) == (2, 1)
    assert (found.significantly_better, found.significantly_worse) == (1, 1)


def test_where_smaller_is_better_a_negative_difference_is_an_improvement() -> None:
    (found,) = compared(grid(better="min")).tallies
    assert (found.better, found.worse) == (1, 2)


def test_a_head_with_one_comparison_is_not_counted() -> None:
    assert compared(grid()[:2]).tallies == []


@pytest.mark.paper("DR-71")
def test_the_count_stands_below_the_table() -> None:
    notes = of_comparisons(compared(grid())).notes
    assert (
        "drloc is better than supervised in 2 of 3 comparisons (1 significant) and worse in 1"
        " (1 significant), over 3 backbones and 1 dataset. This is a count and no test."
    ) in notes


def test_comparisons_without_a_difference_are_no_part_of_the_count() -> None:
    cells = grid()
    waiting = changed(cells[1], values={}, n=0, mean=None, std=None, missing_seeds=[0, 1, 2, 3, 4])
    document = compared([cells[0], waiting, *cells[2:]])
    (found,) = document.tallies
    assert (found.comparisons, found.without_difference, found.better) == (2, 1, 1)
    assert any("; 1 have no difference yet." in note for note in of_comparisons(document).notes)


def test_nothing_is_said_before_there_is_a_result() -> None:
    nothing = {"values": {}, "n": 0, "mean": None, "std": None}
    document = compared([changed(cell, **nothing) for cell in grid()])
    assert not any("is better than" in note for note in of_comparisons(document).notes)


def test_a_screen_has_no_significant_ones() -> None:
    document = compare(grid(), ComparisonPlan(family=Family.SCREEN))
    (note,) = [note for note in of_comparisons(document).notes if "is better than" in note]
    assert "in 2 of 3 comparisons and worse in 1, over" in note
