"""Who says what a setting is: the paper, its published code, or the grid."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from vtjobs.jobs.grid import catalogue, fidelity
from vtjobs.jobs.grid.heads import HEADS
from vtjobs.jobs.grid.load import take_in_document
from vtjobs.jobs.run.settings import HeadSettings, RecipeSettings
from vtjobs.jobs.strict_yaml import parse


def _cell(**changes: Any) -> tuple[HeadSettings, RecipeSettings]:
    """Return head and recipe of a grid of one cell."""
    grid = {
        "name": "one", "backbones": ["swin_t"], "datasets": ["cifar10"], "heads": ["drloc"], "seeds": 1,
        "recipe": "drloc-scratch", **changes,
    }  # fmt: skip
    (cell,) = take_in_document(
        parse(yaml.safe_dump(grid).encode(), file="grid.yaml")
    ).expansion.cells
    return cell.spec.settings.head, cell.spec.settings.recipe


def _sources(found: list[fidelity.Setting]) -> dict[str, str]:
    return {one.name: one.source for one in found}


def test_the_papers_preset_marks_what_the_paper_leaves_open() -> None:
    head, recipe = _cell()
    sources = _sources(fidelity.of_head(head, "swin_t"))
    assert sources["offsets"] == sources["weight"] == fidelity.PAPER
    assert {name for name, source in sources.items() if source == fidelity.SILENT_CODE} == {
        "tokens",
        "init",
    }
    marked = _sources(fidelity.of_recipe(recipe, "drloc-scratch"))
    assert marked["mixup"] == marked["clip_grad"] == fidelity.SILENT_CODE
    assert "lr" not in marked, "what the paper gives needs no mark"


def test_the_codes_preset_marks_where_it_leaves_the_paper() -> None:
    head, recipe = _cell(heads=[{"drloc": {"fidelity": "code"}}], train={"fidelity": "code"})
    sources = _sources(fidelity.of_head(head, "swin_t"))
    assert sources["offsets"] == sources["weight_schedule"] == fidelity.CODE
    assert sources["pairs"] == fidelity.PAPER
    assert (recipe.epochs, recipe.schedule_epochs) == (101, 300)
    assert _sources(fidelity.of_recipe(recipe, "drloc-scratch"))["schedule_epochs"] == fidelity.CODE


def test_each_difference_can_be_set_alone() -> None:
    head, _ = _cell(heads=[{"drloc": {"offsets": "cells"}}])
    paper, _ = _cell()
    assert head.params == paper.params | {"offsets": "cells"}
    (changed,) = [one for one in fidelity.of_head(head, "swin_t") if one.source == fidelity.CHANGED]
    assert (changed.name, changed.value, changed.published) == ("offsets", "cells", "relative")


def test_a_weight_that_nobody_published_is_given() -> None:
    head, _ = _cell(backbones=["resnet50"], heads=[{"drloc": {"weight": 0.3}}])
    assert _sources(fidelity.of_head(head, "resnet50"))["weight"] == fidelity.GIVEN


def test_the_two_presets_are_two_runs() -> None:
    paper, code = (_cell(heads=[{"drloc": {"fidelity": name}}])[0] for name in ("paper", "code"))
    assert paper != code


@pytest.mark.parametrize("name", [name for name in HEADS if HEADS[name].presets])
def test_a_preset_fills_exactly_what_a_grid_may_leave_open(name: str) -> None:
    optional = {
        key for key, field in HEADS[name].model.model_fields.items() if field.default is None
    } - {
        "weight",
        "mega",
        "teacher",
    }
    for values in HEADS[name].presets.values():
        assert set(values) == optional
    assert HEADS[name].silent <= optional


@pytest.mark.parametrize("name", catalogue.recipe_names())
def test_a_recipe_names_its_source_and_only_fields_that_it_has(name: str) -> None:
    file = catalogue.recipe_file(name)
    assert file.source
    data = catalogue.recipe_data(name)
    assert set(file.silent) <= set(data) and set(file.code) <= set(data)
    assert all(
        catalogue.recipe_data(name, "code")[key] == value for key, value in file.code.items()
    )
    assert set(file.heads) <= set(HEADS)


@pytest.mark.parametrize("name", HEADS)
def test_a_head_that_is_trained_has_a_module_that_builds_it(name: str) -> None:
    module = HEADS[name].module
    if module is not None:
        source = find_spec(f"vtjobs.workers.heads.{module}")
        assert source is not None, f"workers/heads/{module}.py is missing"
        assert source.origin is not None
        assert (
            "def build(grids: list[Grid], params: dict[str, Any])"
            in Path(source.origin).read_text()
        )


def test_a_fast_recipe_is_held_against_what_was_published() -> None:
    _, recipe = _cell(recipe="drloc-scratch-fast")
    changed = {
        setting.name: setting.published
        for setting in fidelity.of_recipe(recipe, "drloc-scratch-fast")
        if setting.source == fidelity.CHANGED
    }
    assert changed == {"precision": "fp32", "tf32": False, "channels_last": False}
