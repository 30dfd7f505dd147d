"""What a loader process hands over at a time."""

from vtjobs.jobs.grid.load import take_in
from vtjobs.jobs.run.loaders import share_bytes


def test_every_view_of_an_image_counts() -> None:
    cells = take_in("thesis-table2-7").expansion.cells
    sizes = {cell.labels["head"]: share_bytes(cell.spec.settings) for cell in cells}
    assert sizes["supervised"] == 1024 // 8 * 3 * 32 * 32
    assert sizes["grafit(views=8)"] == 8 * sizes["supervised"]
