"""`vtjobs scatter`: cells on two evaluation sets."""

import csv
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..conftest import finished
from ..support.cli import Cli
from ..support.grids import tiny_grid


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, cache: object) -> Iterator[Cli]:
    """Two heads with two seeds each, scored on the training set as well."""
    grid = tiny_grid(heads="[supervised, relvit]", seeds="2")
    for cli in finished(tmp_path_factory.mktemp("trained"), cache, grid):  # type: ignore[arg-type]
        cli.ok("evaluate", "tiny", "--sets", "train")
        yield cli


def test_cells_stand_in_a_table_with_both_sets(trained: Cli) -> None:
    done = trained("scatter", "tiny", "--y", "train")
    assert done.returncode == 0, done.stderr
    heading, *rows = done.stdout.splitlines()
    assert heading.split() == [
        *("backbone", "dataset", "head", "n", "test", "train", "from", "the", "line")
    ]
    assert [row.split()[2] for row in rows] == ["supervised", "relvit"]
    assert "no line: that takes three cells" in done.stderr


def test_a_set_without_a_score_is_answered_with_the_command_that_scores(trained: Cli) -> None:
    done = trained("scatter", "tiny")
    assert done.returncode == 3
    assert "top1 on both test and v2. `vtjobs evaluate` scores finished runs" in done.stderr


def test_data_have_a_row_for_each_cell(trained: Cli) -> None:
    rows = list(csv.DictReader(trained.ok("scatter", "--y", "train", "-f", "csv").splitlines()))
    (one,) = trained.json("scatter", "--y", "train")
    assert [float(row["y"]) for row in rows] == [cell["y"] for cell in one["cells"]]
    assert {row["residual"] for row in rows} == {""}


def test_the_figure_is_written_with_its_data(trained: Cli, tmp_path: Path) -> None:
    written = trained.ok("scatter", "--y", "train", "--figure", str(tmp_path / "new")).split()
    assert [Path(path).name for path in written] == ["two-sets.svg", "two-sets.pdf", "two-sets.csv"]
    assert all(Path(path).stat().st_size > 100 for path in written)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--y", "test"], "--x and --y are both test"),
        (["--y", "train", "--figure", "f", "--json"], "--figure writes its own data"),
        (["--y", "train", "-f", "latex"], "latex"),
    ],
)
def test_bad_options_are_told(trained: Cli, options: list[str], message: str) -> None:
    done = trained("scatter", *options)
    assert (done.returncode, message in done.stdout + done.stderr) == (2, True)
