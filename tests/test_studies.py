"""What a study asks of its finished runs on the command line: variance, published numbers, how many more seeds."""

import json
from collections.abc import Iterator
from math import sqrt
from pathlib import Path

import pytest
from scipy.stats import t

from .conftest import finished
from .support.cli import Cli
from .support.grids import tiny_grid

GRID = tiny_grid(heads="[supervised, relvit]", seeds="3", epochs=2)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Iterator[Cli]:
    """A workspace with one finished grid."""
    yield from finished(tmp_path_factory.mktemp("study"), cache, GRID)


def test_variance_splits_the_spread_into_what_carries_and_what_the_test_set_makes(study: Cli) -> None:
    cells = study.json("report", "tiny")
    parts = study.json("variance", "tiny")
    assert [part["std"] for part in parts] == pytest.approx([cell["std"] for cell in cells])
    for part in parts:
        assert part["n"] == 3 and part["images"] == 898
        whole = part["std_carries"] ** 2 + part["std_test_set"] ** 2
        assert whole == pytest.approx(part["std"] ** 2) or part["std_carries"] == 0
        assert f"{part['std_test_set']:.2f}" in study.ok("variance", "tiny")
    assert r"\toprule" in study.ok("variance", "tiny", "--format", "latex")
    assert study("variance", "tiny", "--format", "csv").returncode == 2


def test_published_numbers_of_other_cells_are_not_compared_and_say_why(study: Cli) -> None:
    done = study("against", "drloc:4", "tiny")
    assert done.returncode == 0 and "not comparable: no cell of ours" in done.stdout
    assert {row["word"] for row in study.json("against", "drloc:4", "tiny")["rows"]} == {"not comparable"}
    assert study("against", "drloc:99", "tiny").returncode == 3
    assert study("against", "drlok:4", "tiny").returncode == 2


def test_a_goal_must_be_one(study: Cli) -> None:
    for words in ([], ["--half-width", "1", "--effect", "1"], ["--half-width", "0"]):
        assert study("power", "tiny", *words).returncode == 2
        assert study("topup", "grid.yaml", *words).returncode == 2


def test_topup_submits_just_the_seeds_that_power_finds_missing(study: Cli) -> None:
    stds = [cell["std"] for cell in study.json("report", "tiny")]
    # By Stein's rule, for which the wider of the two needs a fourth seed.
    half_width = str(t.ppf(0.975, 2) * max(stds) / sqrt(3.5))
    needs = study.json("power", "tiny", "--half-width", half_width)["cells"]
    assert sorted(need["more"] for need in needs)[-1] == 1
    more = sum(need["more"] for need in needs)
    planned = study("topup", "grid.yaml", "--half-width", half_width, "--dry-run")
    assert planned.returncode == 0 and f"{more} new" in planned.stderr + planned.stdout
    assert len(study.json("runs", "tiny")) == 6
    done = study("topup", "grid.yaml", "--half-width", half_width, "--wait")
    assert done.returncode == 0, done.stderr
    found = {cell["head"]: cell["n"] for cell in study.json("report", "tiny")}
    assert found == {need["head"]: 3 + need["more"] for need in needs}
    assert json.loads(study.ok("status", "--json"))["runs"]["completed"] == 6 + more
