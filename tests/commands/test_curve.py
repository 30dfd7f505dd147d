"""`vtjobs curve`: charts, data and figures of finished runs."""

import csv
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from vtjobs.commands.printing.curve import sparkline

from ..conftest import finished
from ..support.cli import Cli
from ..support.grids import tiny_grid


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, cache: object) -> Iterator[Cli]:
    """Two heads with two seeds each."""
    grid = tiny_grid(heads="[supervised, relvit]", seeds="2", epochs=3)
    yield from finished(tmp_path_factory.mktemp("trained"), cache, grid)  # type: ignore[arg-type]


def test_the_table_ends_where_the_report_does(trained: Cli) -> None:
    done = trained("curve", "tiny")
    assert done.returncode == 0, done.stderr
    for letter, cell in zip("AB", trained.json("report", "tiny"), strict=True):
        (row,) = [line for line in done.stdout.splitlines() if line.startswith(f"{letter} ")]
        assert f"{cell['mean']:.2f} ± {cell['std']:.2f}" in row
        assert "2/2" in row and "3/3" in row
    assert done.stderr == "top1 on test by epoch; lines: mean over seeds; dots: mean ± std.\n"


def test_the_last_epoch_is_in_the_chart(trained: Cli) -> None:
    # On a terminal with letters alone, each epoch of each cell is a letter, unless two share one.
    chart = trained.process(
        "curve", "head=relvit", "--height", "40", PYTHONIOENCODING="ascii"
    ).stdout
    rows = [line for line in chart.splitlines() if "|" in line and "-|-" not in line]
    columns = sorted(line.index("A") for line in rows if "A" in line)
    assert len(columns) == 3 and columns[-1] > max(map(len, rows)) - 3


def test_no_verdict_is_printed(trained: Cli) -> None:
    done = trained("curve", "tiny")
    for word in ("p=", "significant", "better", "†", "*"):
        assert word not in done.stdout + done.stderr


def test_by_a_setting_there_is_a_chart_for_each_combination_of_the_others(trained: Cli) -> None:
    by_head = trained.ok("curve", "tiny", "--by", "head")
    assert by_head.count("(epoch)") == 1
    assert by_head.startswith("vit_small_patch16_224 digits\n")
    by_dataset = trained.ok("curve", "tiny", "--by", "dataset")
    assert by_dataset.count("(epoch)") == 2
    refused = trained("curve", "tiny", "--by", "haed")
    assert refused.returncode == 2 and "Did you mean 'head'?" in refused.stderr


def test_a_terminal_without_unicode_gets_letters(trained: Cli) -> None:
    done = trained.process("curve", "tiny", PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert done.stdout.isascii() and "?" not in done.stdout
    assert "+-" in done.stdout


def test_the_data_has_a_line_for_each_seed_and_epoch(trained: Cli) -> None:
    rows = [*csv.DictReader(trained.ok("curve", "tiny", "-f", "csv").splitlines())]
    assert len(rows) == 2 * 2 * 3
    document = trained.json("curve", "tiny")
    first = document[0]["seeds"]["0"]
    assert [float(row["value"]) for row in rows[:3]] == [first[epoch] for epoch in "123"]


def test_a_figure_is_written_as_a_picture_and_its_data(trained: Cli) -> None:
    paths = trained.ok("curve", "tiny", "--by", "head", "--figure", "figures").split()
    assert [path.rpartition(".")[2] for path in paths] == ["svg", "pdf", "csv"]
    for path in paths:
        assert (trained.folder / path).stat().st_size > 100
    assert trained("curve", "tiny", "--figure", "figures", "--json").returncode == 2


@pytest.mark.paper("VA-07")
def test_a_closer_look_begins_at_an_epoch(trained: Cli) -> None:
    (curve, *_) = trained.json("curve", "--from-epoch", "2")
    assert [point["epoch"] for point in curve["points"]] == [2, 3]
    assert {tuple(own) for own in curve["seeds"].values()} == {("2", "3")}


@pytest.mark.paper("VA-07")
def test_the_chart_of_a_closer_look_begins_there(trained: Cli) -> None:
    chart = trained.process("curve", "--from-epoch", "2", PYTHONIOENCODING="ascii").stdout
    (ticks,) = [line for line in chart.splitlines() if re.match(r" +\| [\d. ]+$", line)]
    assert float(ticks.split()[1]) == 2


def test_a_closer_look_at_nothing_is_refused_with_the_last_epoch(trained: Cli) -> None:
    done = trained("curve", "--from-epoch", "9")
    assert done.returncode == 2 and "the last epoch with a value is 3" in done.stderr


def test_a_cell_without_a_value_there_is_left_out_with_a_word(tmp_path: Path, cache: Path) -> None:
    short = tiny_grid(name="short", heads="[supervised]", seeds="1", epochs=1)
    for cli in finished(tmp_path, cache, short):
        cli.write("long.yaml", tiny_grid(name="long", heads="[relvit]", seeds="1", epochs=2))
        cli.ok("submit", "long.yaml", "--wait")
        done = cli("curve", "short", "long", "--from-epoch", "2")
        assert "1 cell without a value from epoch 2 on left out" in done.stderr
        assert "supervised" not in done.stdout


def test_a_sparkline_has_its_lowest_and_highest_value_at_its_ends() -> None:
    assert sparkline([1.0, 5.0, 3.0]) == "▁█▅"
    assert sparkline([2.0]) == "▁"
    assert sparkline([]) == ""
    assert len(sparkline([float(value) for value in range(1000)])) == 24


@pytest.mark.paper("DR-60")
def test_the_gain_over_a_head_is_that_of_the_report_at_the_last_epoch(trained: Cli) -> None:
    done = trained("curve", "tiny", "--over", "supervised")
    assert done.returncode == 0, done.stderr
    cells = {cell["head"]: cell["mean"] for cell in trained.json("report", "tiny")}
    (row,) = [line for line in done.stdout.splitlines() if line.startswith("A ")]
    assert f"{cells['relvit'] - cells['supervised']:.2f} ±" in row
    assert f"({cells['supervised']:.2f} at 3)" in row
    assert done.stderr.startswith("gain in top1 on test by epoch")
    rows = [*csv.DictReader(trained.ok("curve", "tiny", "--over", "supervised", "-f", "csv").splitlines())]  # fmt: skip
    assert len(rows) == 2 * 3 and {row["head"] for row in rows} == {"relvit"}
    assert trained.ok("curve", "tiny", "--over", "supervised", "--figure", "gained").split()
