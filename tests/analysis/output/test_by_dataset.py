"""A report with a column for each dataset, or for each set of images."""

from collections.abc import Sequence

import pytest

from vtjobs.analysis.findings.best_marks import marks
from vtjobs.analysis.findings.cell import Cell
from vtjobs.analysis.findings.plan import ComparisonPlan
from vtjobs.analysis.output.by_dataset import of_cells
from vtjobs.jobs.values import changed

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


@pytest.mark.paper("GR-12")
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


@pytest.mark.paper("GR-12")
def test_levels_of_training_against_levels_of_testing_are_a_matrix() -> None:
    """Thesis, table 2.14: what a run was trained on is its own column."""
    scores = {
        ("fine", "test"): 60.0, ("coarse", "test"): 80.0,
        ("fine", "test@coarse"): 75.0, ("coarse", "test@fine"): 40.0,
    }  # fmt: skip
    cells = [
        cell("grafit", [score], dataset=dataset, set=name, metric="knn20")
        for (dataset, name), score in scores.items()
    ]
    # A report has a cell for each dataset and set: these two are nowhere scored by that name.
    cells[:0] = [
        cell("grafit", [], dataset=name, set=f"test@{name}", metric="knn20")
        for name in ("fine", "coarse")
    ]
    table = of_cells(marked(*cells))
    assert len(table.body) == 2
    assert table.heading[-2:] == ["test@fine", "test@coarse"]
    found = {row[1]: [text.split()[0] for text in row[-2:]] for row in table.body}
    assert found == {"fine": ["60.00", "75.00"], "coarse": ["40.00", "80.00"]}


@pytest.mark.paper("VA-11")
def test_networks_are_crossed_with_recipes() -> None:
    """Thesis, section 6.3.4: two networks by recipes A2 and T2, on ImageNet's validation images."""
    scores = {("resnet50", "a2"): 79.9, ("vit_b", "a2"): 79.6, ("resnet50", "t2"): 79.2}
    scores["vit_b", "t2"] = 80.4
    cells = [
        cell("supervised", [score, score], backbone=backbone, recipe=recipe)
        for (backbone, recipe), score in scores.items()
    ]
    table = of_cells(marked(*cells), across="recipe")
    assert table.heading == ["backbone", "dataset", "head", "a2", "t2"]
    found = [[text.split()[0] for text in row[-2:]] for row in table.body]
    assert found == [["79.90", "79.20"], ["79.60", "80.40"]]
    assert "Columns: recipe." in table.notes


def test_a_cell_without_the_setting_of_the_columns_has_one_of_its_own() -> None:
    cells = [
        cell("supervised", [70.0]),
        *(cell("drloc", [71.0], axes={"head.drloc.grid": grid}) for grid in (7, 14)),
    ]
    table = of_cells(marked(*cells), across="head.drloc.grid")
    assert table.heading[-3:] == ["–", "7", "14"]


def test_a_cell_that_was_not_scored_on_a_set_has_no_number_there() -> None:
    table = of_cells([*on("test", [80.0, 81.0], [81.0, 82.0]), *on("v2", [69.0, 70.0], [])])
    assert [row[-1].split()[0] for row in table.body] == ["69.50", "—"]


@pytest.mark.paper("DR-77")
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
