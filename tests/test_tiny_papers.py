"""Ready grids from their submission to the comparison with the printed numbers.

`make demo-papers` runs a cell of each; here are a few.
"""

from pathlib import Path

import pytest

from vtjobs.jobs.grid import catalogue
from vtjobs.jobs.grid.load import take_in

from .support.tiny_papers import CHOSEN, WITHOUT_TABLE, Small, play, tables_of

# With weights from a file, with stages, with another loss, with scores by nearest neighbours.
GRIDS = ("drloc-table5", "relvit-table5", "thesis-seeds", "thesis-table2-13")


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_a_cell_of_a_ready_grid_finds_its_printed_number(tmp_path: Path) -> None:
    for outcome in play(Small(tmp_path), GRIDS):
        assert outcome.state == "completed" and outcome.ours is not None, outcome


@pytest.mark.parametrize("grid", CHOSEN)
def test_what_is_chosen_of_a_grid_is_a_cell_of_its_last_stage(grid: str) -> None:
    wanted = dict(part.split("=", 1) for part in CHOSEN[grid].split())
    cells = take_in(grid).expansion.cells
    parents = {cell.parent for cell in cells}
    last = [cell.labels | cell.axes for number, cell in enumerate(cells) if number not in parents]
    assert any(wanted.items() <= labels.items() for labels in last)


def test_every_ready_grid_has_a_table_or_is_said_to_have_none() -> None:
    without = {name for name in catalogue.grid_names() if not tables_of(name)}
    assert without == {"quickstart", *WITHOUT_TABLE}
