"""A hundred seeds of a tiny task, from submission to the report."""

import pytest

from .support.cli import Cli
from .support.grids import tiny_grid

pytestmark = pytest.mark.training


@pytest.mark.paper("OR-09")
@pytest.mark.timeout(300)
def test_a_hundred_seeds_run_and_are_reported(cli: Cli) -> None:
    cli.write("many.yaml", tiny_grid(seeds="{range: [1, 101]}", epochs=1))
    cli.ok("submit", "many.yaml", "--wait")
    (cell,) = cli.json("report")
    assert (cell["n"], cell["planned"]) == (100, 100)
    assert sorted(map(int, cell["values"])) == list(range(1, 101))
    assert len(set(cell["values"].values())) > 20
    assert "prediction interval" in cli.ok("report", "--detail")
