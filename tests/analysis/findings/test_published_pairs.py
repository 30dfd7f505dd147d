"""Models that a paper prints on two sets, beside the cells of a ledger."""

import pytest

from vtjobs.analysis.findings.published_pairs import published_pairs
from vtjobs.analysis.findings.two_sets import TwoSets, of_cells
from vtjobs.analysis.output.figures.two_sets import scatter
from vtjobs.jobs.errors import BadInput, NothingMatched

from ...support.cells import cell

V2 = {"dataset": "imagenet1k", "metric": "top1", "x_set": "test", "y_set": "v2"}


def test_a_model_has_both_of_its_printed_numbers_once() -> None:
    found = published_pairs("thesis", **V2)
    # Tables 3.5 and 6.6 of the thesis.
    assert [(one.x, one.y) for one in found if one.backbone == "regnety_16gf"] == [(82.9, 72.4)]
    assert len({(one.backbone, one.method, one.x, one.y) for one in found}) == len(found) > 100
    assert all(one.y < one.x for one in found)


def test_one_table_has_its_own_models() -> None:
    found = published_pairs("thesis:4.3", **V2)
    assert {one.table for one in found} == {"4.3"} and len(found) == 19


@pytest.mark.parametrize(
    ("name", "changes"),
    [("drloc", {}), ("thesis", {"dataset": "cifar10"}), ("thesis", {"y_set": "sketch"})],
)
def test_a_paper_without_such_models_has_none(name: str, changes: dict[str, str]) -> None:
    assert published_pairs(name, **{**V2, **changes}) == []


def beside(published: str | None) -> TwoSets:
    """Return one cell of ImageNet, below where printed models lie."""
    first, second = (
        cell("mine", [value, value + 0.2], dataset="imagenet1k", set=name)
        for name, value in (("test", 80.0), ("v2", 60.0))
    )
    (found,) = of_cells([first], [second], x_set="test", y_set="v2", published=published)
    return found


@pytest.mark.paper("RM-09", "VA-12")
def test_one_cell_has_a_line_to_be_held_against_where_models_are_published() -> None:
    assert beside(None).line is None
    found = beside("thesis:4.3")
    assert found.line is not None and found.cells[0].residual is not None
    # ResMLP-S24 has 79.4 and 67.9.
    assert found.cells[0].residual < -5
    left = [one.residual or 0.0 for one in (*found.cells, *found.published)]
    assert sum(left) == pytest.approx(0, abs=1e-9), "the line goes through all of them"


@pytest.mark.paper("VA-12")
def test_the_figures_data_name_cells_and_models() -> None:
    rows = scatter([beside("thesis:4.3")]).rows
    assert rows[0][:2] == ["imagenet1k", "vit mine"]
    assert ["imagenet1k", "resmlp_s12 supervised (table 4.3)"] in [row[:2] for row in rows]


def test_a_paper_that_prints_none_of_all_datasets_is_told() -> None:
    with pytest.raises(NothingMatched, match="drloc prints no model with top1 on both test and v2"):
        beside("drloc")
    with pytest.raises(BadInput, match="thesys"):
        beside("thesys")


def test_a_dataset_of_which_nothing_is_printed_keeps_no_other_from_its_models() -> None:
    first, second = (
        [cell(dataset, [value], dataset=dataset, set=name) for dataset in ("digits", "imagenet1k")]
        for name, value in (("test", 80.0), ("v2", 60.0))
    )
    found = of_cells(first, second, x_set="test", y_set="v2", published="thesis:4.3")
    assert [len(one.published) for one in found] == [0, 19]
