"""Every result as a line of its own."""

import csv
import io
from pathlib import Path

import pytest
from pyarrow import parquet

from vtjobs.analysis.findings.cells import report
from vtjobs.analysis.findings.long_data import long_data
from vtjobs.analysis.output import long_table
from vtjobs.jobs.errors import BadInput
from vtjobs.jobs.run.selector import Selection, parse_selection

from ...support.grids import tiny_grid
from ...support.journals import ended, journal, scored, started
from ...support.lab import Lab


@pytest.fixture
def filled(quiet_lab: Lab) -> Lab:
    """Return a workspace of two runs: one with two epochs, and one whose attempt failed."""
    first, second = quiet_lab.submit(tiny_grid())
    quiet_lab.tick()
    journal(quiet_lab, first, 1, started(), scored(91.0), scored(90.5, epoch=2), ended("completed"))
    journal(quiet_lab, second, 1, started(), ended("failed", "user_error", exit_code=70))
    quiet_lab.tick()
    return quiet_lab


def test_each_metric_has_a_line_for_each_rule(filled: Lab) -> None:
    lines = long_data(filled.context.ledger, Selection())
    top1 = [(one.rule, one.epoch, one.value) for one in lines if one.metric == "top1"]
    assert top1 == [("last", 2, 90.5), ("best_on_set", 1, 91.0)]
    assert {one.set for one in lines if one.metric} == {"test"}


@pytest.mark.paper("VA-18")
def test_a_run_without_a_result_is_a_line_with_its_state(filled: Lab) -> None:
    lines = long_data(filled.context.ledger, Selection())
    (lost,) = [one for one in lines if one.metric is None]
    assert lost.state == filled.state(lost.run_id) and (lost.seed, lost.value) == (1, None)


def test_held_out_images_give_a_rule_of_their_own(quiet_lab: Lab) -> None:
    (run_id,) = quiet_lab.submit(tiny_grid(seeds="1", extra="data: {val: 0.1}"))
    quiet_lab.tick()
    held_out = [
        (kind, fields | {"set": "val"}) for kind, fields in (scored(50.0), scored(60.0, epoch=2))
    ]
    journal(
        quiet_lab,
        run_id,
        1,
        started(),
        *(
            event
            for pair in zip((scored(91.0), scored(90.5, epoch=2)), held_out, strict=True)
            for event in pair
        ),
        ended("completed"),
    )
    quiet_lab.tick()
    lines = long_data(quiet_lab.context.ledger, parse_selection(["tiny"]))
    found = [(one.rule, one.value) for one in lines if (one.set, one.metric) == ("test", "top1")]
    assert found == [("last", 90.5), ("best_val", 90.5), ("best_on_set", 91.0)]


def test_csv_and_parquet_hold_the_same(filled: Lab, tmp_path: Path) -> None:
    lines = long_data(filled.context.ledger, Selection())
    for name in ("runs.csv", "runs.parquet"):
        long_table.write(lines, tmp_path / name)
    table = parquet.read_table(tmp_path / "runs.parquet").to_pylist()
    rows = list(csv.DictReader(io.StringIO((tmp_path / "runs.csv").read_text())))
    assert [
        {key: "" if value is None else str(value) for key, value in line.items()} for line in table
    ] == rows
    assert table[0]["value"] == lines[0].value and isinstance(table[0]["seed"], int)


@pytest.mark.parametrize(
    ("name", "says"),
    [("runs.xlsx", "ends in .csv or .parquet"), ("there/runs.csv", "the folder .* does not exist")],
)
def test_another_kind_of_file_is_refused(tmp_path: Path, name: str, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        long_table.write([], tmp_path / name)


def test_a_report_with_descriptions_counts_the_evaluated_epochs(filled: Lab) -> None:
    (cell,) = report(filled.context.ledger, Selection(), with_specs=True)
    assert cell.evaluations == [2]
    (plain,) = report(filled.context.ledger, Selection())
    assert plain.evaluations is None
