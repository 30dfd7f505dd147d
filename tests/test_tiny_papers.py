"""Ready grids from their submission to the comparison with the printed numbers.

`make demo-papers` runs a cell of each; here are a few.
"""

from pathlib import Path

import pytest

from .support.tiny_papers import Small, play

# With weights from a file, with stages, with another loss, with scores by nearest neighbours.
GRIDS = ("drloc-table5", "relvit-table5", "thesis-seeds", "thesis-table2-13")


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_a_cell_of_a_ready_grid_finds_its_printed_number(tmp_path: Path) -> None:
    for outcome in play(Small(tmp_path), GRIDS):
        assert outcome.state == "completed" and outcome.ours is not None, outcome
