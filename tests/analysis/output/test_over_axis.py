"""Gains against the values of a grid's axis."""

from typing import Any

import pytest

from vtjobs.analysis.findings.comparisons import Comparisons, compare
from vtjobs.analysis.findings.plan import ComparisonPlan
from vtjobs.analysis.output.figures.over_axis import over_axes
from vtjobs.jobs.values import changed

from ...support.cells import cell

BASE = [80.1, 80.4, 79.9, 80.2, 80.0]


def swept(
    values: list[Any], axis: str = "train.epochs", heads: tuple[str, ...] = ("drloc",)
) -> Comparisons:
    """Return comparisons of heads at several values of an axis; the gain is one over its place."""
    cells = []
    for number, value in enumerate(values, start=1):
        base = cell(f"base-{number}", BASE)
        facts = {"match_id": str(number), "axes": {axis: value}}
        cells.append(changed(base, head="supervised", is_baseline=True, **facts))
        for head in heads:
            gained = [one + 1 / number for one in BASE]
            ours = cell(f"{head}-{number}", gained, baseline=base.cell_id)
            cells.append(changed(ours, head=head, **facts))
    return compare(cells, ComparisonPlan())


@pytest.mark.paper("PC-10")
def test_each_head_is_a_line_with_its_intervals() -> None:
    (drawn,) = over_axes(swept([100, 200, 300], heads=("drloc", "relvit")))
    assert (drawn.name, len(drawn.rows)) == ("over-train-epochs", 6)
    plot = drawn.figure.axes[0]
    assert [text.get_text() for text in plot.get_legend().get_texts()] == [
        "vit digits drloc",
        "vit digits relvit",
    ]
    line = plot.lines[1]
    assert list(line.get_xdata()) == [100, 200, 300]
    assert list(line.get_ydata()) == pytest.approx([1, 1 / 2, 1 / 3])


def test_a_head_that_is_compared_with_several_has_a_line_for_each() -> None:
    document = swept([100, 200, 300], heads=("drloc", "relvit"))
    other = [
        changed(one, baseline_head="relvit") for one in document.comparisons if one.head == "drloc"
    ]
    both = changed(document, comparisons=[*document.comparisons, *other])
    (drawn,) = over_axes(both)
    assert {row[0] for row in drawn.rows} == {
        "vit digits drloc − supervised",
        "vit digits drloc − relvit",
        "vit digits relvit − supervised",
    }
    assert "from the other head" in drawn.text and len(drawn.rows) == 9


def test_values_far_apart_have_a_logarithmic_axis() -> None:
    (wide,) = over_axes(swept([0.001, 0.01, 0.1], axis="train.lr"))
    (narrow,) = over_axes(swept([100, 200, 300]))
    assert wide.figure.axes[0].get_xscale() == "log"
    assert narrow.figure.axes[0].get_xscale() == "linear"


@pytest.mark.parametrize("values", [[100, 200], [True, False, None], ["a", "b", "c"]])
def test_two_values_and_values_that_are_no_numbers_are_not_drawn(values: list[Any]) -> None:
    assert over_axes(swept(values)) == []
