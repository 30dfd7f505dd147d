"""A report with a column for each dataset, or for each set of images."""

from collections.abc import Sequence

from vtjobs.analysis.findings.best_marks import marks
from vtjobs.analysis.findings.cell import Cell
from vtjobs.analysis.findings.plan import ComparisonPlan
from vtjobs.analysis.output.by_dataset import of_cells
from vtjobs.jobs.documents import changed

from ...support.cells import cell


def marked(*cells: Cell) -> list[Cell]:
    found = marks(cells, ComparisonPlan())
    return [changed(one, marks=its) for one, its in zip(cells, found, strict=True)]


def on(name: str, supervised: Sequence[float], drloc: Sequence[float]) -> list[Cell]:
    """Return the cells of two heads on a set of images."""
    return marked(
        cell("supervised", supervised, set=name, dataset="imagenet1k"),
        cell("drloc", drloc, set=name, dataset="imagenet1k"),
    )


def test_cells_on_several_sets_have_a_column_for_each_and_no_average() -> None:
    table = of_cells(
        [*on("test", [80.0, 81.0], [81.0, 82.0]), *on("v2", [69.0, 70.0], [70.0, 71.0])]
    )
    assert table.heading == ["backbone", "dataset", "head", "test", "v2"]
    assert [row[2:] for row in table.body] == [
        ["supervised", "80.50 ± 0.71 †", "69.50 ± 0.71 †"],
        ["drloc", "81.50 ± 0.71 †", "70.50 ± 0.71 †"],
    ]
    assert table.notes[0].startswith("top1 on test, v2 at epoch 3")
    assert not any(note.startswith("Average") for note in table.notes)


def test_a_cell_that_was_not_scored_on_a_set_has_no_number_there() -> None:
    table = of_cells([*on("test", [80.0, 81.0], [81.0, 82.0]), *on("v2", [69.0, 70.0], [])])
    assert [row[-1].split()[0] for row in table.body] == ["69.50", "—"]


def test_one_set_has_a_column_for_each_dataset() -> None:
    cells = marked(
        *(
            cell("supervised", [value, value], dataset=name)
            for name, value in (("a", 1.0), ("b", 3.0))
        )
    )
    table = of_cells(cells)
    assert table.heading == ["backbone", "head", "a", "b", "average"]
    assert table.body[0][-1] == "2.00"
