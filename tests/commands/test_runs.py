"""The table of runs: which columns it has, and in which order its lines are."""

from typing import Any

import pytest

from vtjobs.commands.printing.runs import columns_of, sorted_by
from vtjobs.jobs.errors import BadInput
from vtjobs.orchestrator.views.runs import RunView

PLAIN = [
    "RUN", "BACKBONE", "DATASET", "HEAD", "SEED", "STATE", "EPOCH", "TRIES", "TIME", "TOP1",
]  # fmt: skip


def run(name: str, **facts: Any) -> RunView:
    """Return a run of the cell `name`."""
    fields: dict[str, Any] = {
        field: None for field in RunView.__struct_fields__
    } | {
        "run_id": f"{name}-0123456789", "grid_id": "tiny-1", "cell_id": name, "backbone": "vit",
        "dataset": "digits", "head": "supervised", "recipe": "quickstart", "stage": "", "axes": {},
        "seed": 0, "state": "pending", "shown_state": "pending", "reason": "", "attempts": 0,
    }  # fmt: skip
    return RunView(**(fields | facts))


def headings(*runs: RunView) -> list[str]:
    return [heading for heading, _ in columns_of(runs)]


def lines(*runs: RunView) -> list[list[str]]:
    return [[text(run) for _, text in columns_of(runs)] for run in runs]


def test_a_plain_grid_has_no_further_columns() -> None:
    same = {"train.lr": 0.1}
    assert headings(run("a", axes=same), run("b", head="drloc", axes=same)) == PLAIN


def test_an_axis_that_differs_is_a_column_and_one_that_does_not_is_none() -> None:
    two = [
        run(name, axes={"train.lr": rate, "train.wd": 0.1})
        for name, rate in (("a", 0.1), ("b", 1e-05))
    ]
    assert headings(*two)[3:6] == ["HEAD", "train.lr", "SEED"]
    assert [line[4] for line in lines(*two)] == ["0.1", "1e-05"]


def test_an_axis_that_only_some_runs_have_is_a_column() -> None:
    assert [line[4] for line in lines(run("a", axes={"variant": "x"}), run("b"))] == ["x", ""]


def test_stages_recipes_and_grids_are_columns_where_they_differ() -> None:
    found = headings(run("a"), run("b", grid_id="edit-2", recipe="other", stage="tune"))
    assert found[:7] == ["RUN", "GRID", "BACKBONE", "DATASET", "HEAD", "RECIPE", "STAGE"]


def test_a_grid_that_was_asked_for_by_name_is_no_column() -> None:
    two = [run("a"), run("b", head="drloc", grid_id="edit-2")]
    assert [heading for heading, _ in columns_of(two, of_one_grid=True)] == PLAIN


def test_cells_that_no_label_tells_apart_are_told_apart_by_their_ids() -> None:
    assert "CELL" not in headings(run("a"), run("a", seed=1))
    assert [line[4] for line in lines(run("a"), run("b"))] == ["a", "b"]


def test_runs_are_sorted_by_a_column_and_those_without_a_value_come_last() -> None:
    three = [run("a", top1=None), run("b", top1=80.0), run("c", top1=90.0)]
    assert [one.cell_id for one in sorted_by(three, "top1")] == ["b", "c", "a"]
    assert [one.cell_id for one in sorted_by(three, "-top1")] == ["c", "b", "a"]


def test_an_unknown_order_is_refused_with_the_nearest() -> None:
    with pytest.raises(BadInput, match="--sort -top: unknown"):
        sorted_by([run("a")], "-top")
