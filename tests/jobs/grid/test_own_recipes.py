"""Recipes that a grid brings itself."""

from pathlib import Path

import pytest

from vtjobs.jobs.errors import BadInput
from vtjobs.jobs.grid.load import Intake, take_in

GRID = """\
name: mine
backbones: [vit_mini]
datasets: [digits]
heads: [supervised]
seeds: 1
recipe: {recipe}
recipes: {recipes}
{more}
"""
OWN = "{mine: {extends: quickstart, epochs: 7, lr: 0.0123}}"


def taken_in(folder: Path, *, recipes: str = OWN, recipe: str = "mine", more: str = "") -> Intake:
    path = folder / "grid.yaml"
    path.write_text(
        GRID.replace("{recipes}", recipes).replace("{recipe}", recipe).replace("{more}", more)
    )
    return take_in(str(path))


def refused(folder: Path, **parts: str) -> str:
    with pytest.raises(BadInput) as caught:
        taken_in(folder, **parts)
    return str(caught.value)


def test_it_differs_from_its_base_in_what_it_names_alone(tmp_path: Path) -> None:
    (cell,) = taken_in(tmp_path).expansion.cells
    (plain,) = taken_in(tmp_path, recipe="quickstart").expansion.cells
    mine, base = cell.spec.settings.recipe, plain.spec.settings.recipe
    assert (mine.epochs, mine.lr) == (7, 0.0123)
    assert mine.batch_size == base.batch_size
    assert cell.labels["recipe"] == "mine"


def test_what_it_says_counts_as_if_the_grid_said_it(tmp_path: Path) -> None:
    """The name is a label: runs with the same settings are the same runs."""
    own = taken_in(tmp_path).expansion
    same = taken_in(tmp_path, recipe="quickstart", more="train: {epochs: 7, lr: 0.0123}").expansion
    assert [run.run_id for run in own.runs] == [run.run_id for run in same.runs]


def test_the_grid_may_change_it_further(tmp_path: Path) -> None:
    (cell,) = taken_in(tmp_path, more="train: {epochs: 9}").expansion.cells
    assert (cell.spec.settings.recipe.epochs, cell.spec.settings.recipe.lr) == (9, 0.0123)


def test_an_axis_can_hold_it_against_its_base(tmp_path: Path) -> None:
    cells = taken_in(tmp_path, more="axes: {recipe: [quickstart, mine]}").expansion.cells
    assert [cell.labels["recipe"] for cell in cells] == ["quickstart", "mine"]


def test_it_may_lie_in_a_file_beside_the_grid_and_travels_with_it(tmp_path: Path) -> None:
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "mine.yaml").write_text("extends: quickstart\nepochs: 7\n")
    intake = taken_in(tmp_path, recipes="{mine: recipes/mine.yaml}")
    assert intake.expansion.cells[0].spec.settings.recipe.epochs == 7
    assert intake.document.data["recipes"] == {"mine": {"extends": "quickstart", "epochs": 7}}


def test_what_a_base_brings_for_a_dataset_it_brings_too(tmp_path: Path) -> None:
    more = "train: {image_size: 32}"
    grid = {"recipes": "{mine: {extends: deit3-1k}}", "more": more}
    own = taken_in(tmp_path, **grid).expansion
    base = taken_in(tmp_path, recipe="deit3-1k", more=more).expansion
    assert [run.run_id for run in own.runs] == [run.run_id for run in base.runs]


@pytest.mark.parametrize(
    ("recipes", "said"),
    [
        ("{mine: {epochs: 3}}", "recipe 'mine': extends: is required"),
        ("{mine: {extends: diet}}", "unknown base 'diet'. Did you mean 'deit'?"),
        ("{mine: {extends: quickstart, epoch: 3}}", "epoch"),
        ("{mine: {extends: quickstart, lr: fast}}", "lr"),
        ("{mine: none.yaml}", "none.yaml: no such file"),
        ("{mine: 3}", "recipes.mine"),
        ("{deit: {extends: quickstart}, mine: {extends: deit}}", "recipe 'deit' is one of vtjobs"),
        ("{'a b': {extends: quickstart}, mine: {extends: deit}}", "recipe 'a b'"),
    ],
)
def test_a_mistake_is_told_with_its_line(tmp_path: Path, recipes: str, said: str) -> None:
    text = refused(tmp_path, recipes=recipes)
    assert said in text and "grid.yaml:7" in text


def test_an_own_recipe_that_nobody_uses_is_checked_too(tmp_path: Path) -> None:
    assert "lr" in refused(tmp_path, recipe="quickstart", recipes="{x: {extends: deit, lr: no}}")


def test_an_unknown_recipe_is_held_against_the_own_ones_too(tmp_path: Path) -> None:
    assert "Did you mean 'mine'?" in refused(tmp_path, recipe="mines")
