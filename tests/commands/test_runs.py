"""The table of runs: which columns it has, and in which order its lines are."""

from typing import Any

import pytest

from vtjobs.commands.printing.runs import (
    as_csv,
    columns_named,
    columns_of,
    print_runs,
    sorted_by,
)
from vtjobs.jobs.errors import BadInput
from vtjobs.jobs.run.spec import seeds_of
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


def test_an_axis_of_recipes_is_one_column() -> None:
    found = headings(*(run(name, recipe=name, axes={"recipe": name}) for name in "ab"))
    assert [word.lower() for word in found].count("recipe") == 1


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


def test_runs_are_sorted_by_an_axis_numbers_by_their_size() -> None:
    three = [run(name, axes={"lr": rate}) for name, rate in (("a", 0.1), ("b", 1e-5), ("c", "x"))]
    found = sorted_by([*three, run("d")], "lr")
    assert [one.cell_id for one in found] == ["b", "a", "c", "d"]


def test_an_unknown_order_is_refused_with_the_nearest() -> None:
    with pytest.raises(BadInput, match="--sort -top: unknown"):
        sorted_by([run("a")], "-top")


def printed(capsys: pytest.CaptureFixture[str], *runs: RunView, at_once: bool = True) -> list[str]:
    print_runs(runs, columns_of(runs), alike_at_once=at_once)
    return capsys.readouterr().out.splitlines()[1:]


def test_many_runs_of_a_cell_that_wait_alike_are_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    waiting = [run("a", seed=seed, state="queued", shown_state="queued") for seed in range(48)]
    (line,) = printed(capsys, *waiting)
    assert line.split()[:2] == ["48", "runs"] and "0-47" in line and "queued" in line
    assert len(printed(capsys, *waiting, at_once=False)) == 48


def test_what_has_started_or_waits_for_another_reason_has_a_line_of_its_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    waiting = [run("a", seed=seed) for seed in range(5)]
    at_work = run("a", seed=5, state="running", shown_state="running")
    held = [run("a", seed=seed, shown_state="held") for seed in range(6, 11)]
    other_cell = [run("b", seed=seed) for seed in range(3)]
    lines_ = printed(capsys, *waiting, at_work, *held, *other_cell)
    assert [line.startswith("5 runs") for line in lines_] == [True, False, True] + [False] * 3


def test_runs_that_wait_after_having_trained_differently_are_lines_of_their_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    tried = [
        run("a", seed=seed, attempts=1, epoch=epoch) for seed, epoch in enumerate((3, 9, 40, 88))
    ]
    assert len(printed(capsys, *tried)) == 4


def test_runs_whose_streams_vary_apart_are_lines_of_their_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    apart = [run("a", seed=seed, streams={**seeds_of(0), "init": seed + 1}) for seed in range(5)]
    assert len(printed(capsys, run("a"), *apart)) == 6


def test_columns_are_chosen_by_name_and_axes_are_columns() -> None:
    one = run("a", axes={"train.lr": 0.1}, reason="why", host="node7", step=3, steps=9)
    chosen = columns_named("run, train.lr,reason,host,step", [one], now=0.0)
    assert [text(one) for _, text in chosen] == ["a-012345", "0.1", "why", "node7", "3/9"]


def test_an_age_counts_from_the_end_or_the_start() -> None:
    ((_, age),) = columns_named("age", [], now=7200.0)
    assert age(run("a", started_at="1970-01-01T01:00:00Z")) == "1h00m"
    ended = run("a", started_at="1970-01-01T01:00:00Z", ended_at="1970-01-01T01:59:00Z")
    assert age(ended) == "1m00s"
    assert age(run("a")) == ""


@pytest.mark.parametrize(
    ("words", "message"), [("hsot", "--columns hsot: unknown. Did you mean"), (",", "names none")]
)
def test_an_unknown_column_is_refused_with_the_nearest(words: str, message: str) -> None:
    with pytest.raises(BadInput) as refused:
        columns_named(words, [run("a")], now=0.0)
    assert message in str(refused.value)


def test_csv_has_whole_ids_and_a_line_for_each_run() -> None:
    two = [run("a", reason="=cmd()"), run("b")]
    text = as_csv(two, columns_named("run,reason", two, now=0.0))
    assert text.splitlines() == ["run,reason", "a-0123456789,'=cmd()", "b-0123456789,"]


def test_csv_has_numbers_as_they_are() -> None:
    one = run("a", seconds=7500.4, top1=91.23456)
    text = as_csv([one], columns_named("time,top1,epoch", [one], now=0.0))
    assert text.splitlines() == ["time,top1,epoch", "7500.4,91.23456,"]
