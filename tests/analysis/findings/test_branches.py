"""Which records about factors on the branches of a DeiT-S a model of these grids is."""

import pytest

from vtjobs.analysis.findings.matching import Made, is_recorded
from vtjobs.analysis.findings.published import records
from vtjobs.jobs.grid.load import take_in


def made_by(grid: str) -> list[Made]:
    return [
        Made(
            backbone=cell.labels["backbone"],
            dataset=cell.labels["dataset"],
            recipe=cell.labels["recipe"],
            axes=cell.axes,
            stages=[cell.spec.settings],
        )
        for cell in take_in(grid).expansion.cells
    ]


def tables_of(one: Made) -> set[str]:
    """Return the tables with a number of this very model."""
    return {
        record.table
        for record in records("thesis").values()
        if record.table in ("3.11", "3.12", "3.20") and is_recorded(one, record, "thesis")
    }


@pytest.mark.paper("CA-01")
@pytest.mark.parametrize(
    ("grid", "own", "others"),
    [
        # LayerScale that starts at a constant stands in both.
        ("thesis-table3-11", "3.11", {"3.12"}),
        ("thesis-table3-12", "3.12", {"3.11"}),
        ("thesis-table3-20", "3.20", set()),
    ],
)
def test_a_model_of_one_table_is_in_no_other(grid: str, own: str, others: set[str]) -> None:
    for one in made_by(grid):
        assert {own} <= tables_of(one) <= {own, *others}, one.backbone


def test_a_model_without_a_class_token_is_no_step_from_deit_to_cait() -> None:
    pooled = [one for one in made_by("thesis-table3-13") if "class_token=False" in one.backbone]
    assert [tables_of(one) for one in pooled] == [set()]
