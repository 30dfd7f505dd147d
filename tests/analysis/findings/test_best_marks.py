"""The best mean of a dataset, and what cannot be told from it.

A table with a column for each dataset.
"""

import statistics

import numpy
import pytest

from vtjobs.analysis.findings.best_marks import marks
from vtjobs.analysis.findings.cell import Cell
from vtjobs.analysis.findings.plan import ComparisonPlan
from vtjobs.analysis.output import by_dataset, render, wording
from vtjobs.analysis.output.layout import latex, markdown, said
from vtjobs.analysis.stats.difference import holm, welch
from vtjobs.jobs.run.comparing import Select
from vtjobs.jobs.values import changed

from ...support.cells import cell

BASE = [80.1, 80.4, 79.9, 80.2, 80.0]


def shifted(by: float) -> list[float]:
    return [value + by for value in BASE]


def marked(*cells: Cell) -> list[Cell]:
    found = zip(cells, marks(cells, ComparisonPlan()), strict=True)
    return [changed(one, marks=own) for one, own in found]


@pytest.mark.paper("DR-24", "DR-53", "DR-70")
def test_the_best_mean_is_marked_and_what_cannot_be_told_from_it() -> None:
    low, near, best = marked(
        cell("low", BASE), cell("near", shifted(4.95)), cell("best", shifted(5))
    )
    assert [one.marked.best for one in (low, near, best)] == [False, False, True]
    assert [one.marked.like_best for one in (low, near, best)] == [False, True, None]
    expected = holm([welch(BASE, shifted(5)).p, welch(shifted(4.95), shifted(5)).p, 1.0])
    assert [low.marked.p_best, near.marked.p_best] == pytest.approx(expected[:2])
    assert low.marked.m == 3


@pytest.mark.paper("RV-42")
def test_where_nothing_can_be_told_from_the_best_nothing_is_the_best() -> None:
    found = marked(cell("one", BASE), cell("other", shifted(0.05)), cell("single", [90.0]))
    assert not any(one.marked.best for one in found)
    assert all(one.marked.dagger for one in found), "and the best one has the others' sign"


def test_a_bold_mean_has_no_dagger() -> None:
    low, near, best = marked(
        cell("low", BASE), cell("near", shifted(4.95)), cell("best", shifted(5))
    )
    assert [one.marked.dagger for one in (low, near, best)] == [False, True, False]


def test_the_best_has_all_its_seeds_and_no_diverged_run_and_no_worse_one_takes_its_place() -> None:
    usual, low = cell("usual", BASE), cell("low", shifted(-5))
    lost = cell("lost", shifted(9), states={"diverged": 1})
    found = marked(usual, low, lost)
    assert [one.marked.best for one in found] == [True, False, False]
    assert found[2].marked.like_best is None
    high = cell("high", shifted(5), states={"failed": 1})
    assert not any(one.marked.best for one in marked(usual, low, lost, high))


@pytest.mark.parametrize("plan", [ComparisonPlan(looks=(3, 5)), ComparisonPlan(anytime=True)])
def test_where_looks_are_declared_no_other_one_is_taken(plan: ComparisonPlan) -> None:
    found = marks([cell("low", BASE), cell("best", shifted(5))], plan)
    assert [(one.best, one.like_best) for one in found] == [(False, None)] * 2


def test_cells_that_chose_among_other_numbers_of_epochs_are_not_told_apart() -> None:
    cells = [
        cell("low", BASE, select="best_val", candidates=[3]),
        cell("best", shifted(5), select="best_val"),
    ]
    assert [one.like_best for one in marks(cells, ComparisonPlan(select=Select.BEST_VAL))] == [
        True,
        None,
    ]


@pytest.mark.parametrize("count", [2, 10])
def test_of_equal_methods_hardly_any_is_called_the_best(count: int) -> None:
    draw = numpy.random.default_rng(count)
    times = 400
    wrong = sum(
        any(
            one.best
            for one in marks(
                [cell(str(n), draw.normal(0, 1, 5).tolist()) for n in range(count)],
                ComparisonPlan(),
            )
        )
        for _ in range(times)
    )
    # Three standard errors above the stated rate.
    assert wrong / times <= 0.05 + 3 * (0.05 * 0.95 / times) ** 0.5


def test_each_dataset_has_its_own_best() -> None:
    cells = [
        cell(f"{head}-{data}", shifted(by), dataset=data)
        for data in "ab"
        for head, by in (("x", 0), ("y", 5))
    ]
    assert [one.marked.best for one in marked(*cells)] == [False, True, False, True]


def test_of_a_loss_the_smallest_mean_is_the_best() -> None:
    cells = [cell("small", BASE, better="min"), cell("large", shifted(5), better="min")]
    assert [one.marked.best for one in marked(*cells)] == [True, False]


def test_bold_and_dagger_are_in_every_layout_with_their_meaning() -> None:
    table = render.of_cells(
        marked(cell("low", BASE), cell("near", shifted(4.95)), cell("best", shifted(5)))
    )
    texts = [markdown(table), latex(table)]
    assert "**85.12 ± 0.19**" in texts[0] and "| 85.07 ± 0.19 † |" in texts[0]
    assert r"\textbf{85.12 $\pm$ 0.19}" in texts[1] and r"85.07 $\pm$ 0.19 $^\dagger$" in texts[1]
    assert (
        said(table)[0].startswith("Bold: best mean")
        and "† not significantly different" in said(table)[2]
    )


@pytest.mark.paper("VA-16")
@pytest.mark.parametrize(
    ("decimals", "shown"),
    [(0, "80 ± <1"), (1, "80.1 ± 0.2"), (2, "80.12 ± 0.19"), (3, "80.120 ± 0.192")],
)
def test_numbers_are_printed_with_the_decimals_that_are_asked_for(
    decimals: int, shown: str
) -> None:
    one = cell("one", BASE)
    assert wording.score(one.mean, one.std, decimals) == shown


@pytest.mark.paper("VA-16")
def test_a_gain_that_the_printed_means_do_not_give_is_explained() -> None:
    base, other = (
        cell("base", [80.004, 80.004]),
        cell("other", [80.016, 80.016], baseline="base", gain=0.012),
    )
    assert (
        "Gains are computed from the unrounded means." in render.of_cells(marked(base, other)).notes
    )
    base, other = cell("base", [80.0, 80.0]), cell("other", [80.1, 80.1], baseline="base", gain=0.1)
    assert (
        "Gains are computed from the unrounded means."
        not in render.of_cells(marked(base, other)).notes
    )


@pytest.mark.paper("DR-50", "VA-15", "OR-12")
def test_papers_print_a_column_for_each_dataset() -> None:
    draw = numpy.random.default_rng(0)
    cells = [
        cell("supervised", draw.normal(80, 0.1, 5).tolist(), dataset="cifar10"),
        cell(
            "drloc",
            draw.normal(90, 0.1, 3).tolist(),
            dataset="cifar10",
            gain=10.0,
            states={"failed": 2},
        ),
        cell("supervised", draw.normal(70, 0.1, 5).tolist(), dataset="svhn"),
    ]
    table = by_dataset.of_cells(marked(*cells), decimals=1)
    assert table.heading == ["backbone", "head", "cifar10", "svhn", "average"]
    assert [line[:2] for line in table.body] == [["vit", "supervised"], ["vit", "drloc"]]
    assert table.body[1][2].endswith("(+10.0) n=3 ‡") and table.body[1][3] == ""
    average = statistics.fmean(one.mean or 0.0 for one in (cells[0], cells[2]))
    assert [line[4] for line in table.body] == [f"{average:.1f}", ""]
    assert any(note.startswith("n=5 unless") for note in table.notes) and "‡" in table.notes[-1]


def test_no_cell_of_a_wide_table_takes_the_place_of_another_one() -> None:
    alike = [
        cell("short", BASE, head="relvit", stage="short"),
        cell("long", shifted(5), head="relvit", stage="long"),
    ]
    table = by_dataset.of_cells(marked(*alike))
    assert table.heading[:3] == ["backbone", "head", "stage"] and len(table.body) == 2
    same = by_dataset.of_cells(marked(*(changed(one, stage="") for one in alike)))
    assert [line[-1].split()[0] for line in same.body] == ["80.12", "85.12"]


def test_a_wide_table_of_nothing_says_no_number_of_seeds() -> None:
    assert not any(
        note.startswith("n=") for note in by_dataset.of_cells(marked(cell("none", []))).notes
    )
