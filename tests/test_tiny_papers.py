"""Ready grids from their submission to the comparison with the printed numbers.

`make demo-papers` runs a cell of each; these few differ in all that it does.
"""

import subprocess
import sys

import pytest

from .support.tiny_papers import ROOT

# Weights from a file, stages, soft targets of another loss, scores by nearest neighbours.
GRIDS = ("drloc-table5", "relvit-table5", "thesis-seeds", "thesis-table2-13")


@pytest.mark.long
def test_a_cell_of_a_ready_grid_finds_its_printed_number() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.tiny_papers", *GRIDS],
        cwd=ROOT,
        text=True,
        capture_output=True,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    lines = [line for line in done.stdout.splitlines() if line.startswith(GRIDS)]
    assert len(lines) == len(GRIDS) and all("completed" in line for line in lines)
