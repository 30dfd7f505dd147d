"""Who says what a setting is: the paper, its published code, or the grid."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from vtjobs.jobs.documents import from_plain
from vtjobs.jobs.errors import BadInput
from vtjobs.jobs.grid import catalogue, fidelity
from vtjobs.jobs.grid.heads import HEADS
from vtjobs.jobs.grid.load import take_in_document
from vtjobs.jobs.grid.recipe import Recipe
from vtjobs.jobs.run.settings import CellSettings, DatasetSettings, HeadSettings, RecipeSettings
from vtjobs.jobs.strict_yaml import parse

IMAGENET = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
CIFAR10 = from_plain(
    catalogue.datasets()["cifar10"] | {"name": "cifar10"} | IMAGENET, DatasetSettings
)


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
    marked = _sources(fidelity.of_recipe(recipe, "drloc-scratch", CIFAR10))
    assert marked["mixup"] == marked["clip_grad"] == fidelity.SILENT_CODE
    assert "lr" not in marked, "what the paper gives needs no mark"


def test_what_nobody_published_is_marked_as_vtjobs_own_choice() -> None:
    head, recipe = _cell(recipe="grafit", heads=["grafit"])
    assert _sources(fidelity.of_head(head, "swin_t")) == {"target_decay": fidelity.CHOSEN}
    marked = _sources(fidelity.of_recipe(recipe, "grafit", CIFAR10))
    assert marked["weight_decay"] == marked["momentum"] == marked["auto_augment"] == fidelity.CHOSEN
    assert "lr" not in marked and "epochs" not in marked


@pytest.mark.paper("GR-08")
def test_a_rate_that_grows_with_the_batch_is_the_recipes_own() -> None:
    _, smaller = _cell(recipe="grafit", heads=["grafit"], train={"batch_size": 512})
    _, other = _cell(recipe="grafit", heads=["grafit"], train={"lr": 0.2})
    marked = _sources(fidelity.of_recipe(smaller, "grafit", CIFAR10))
    assert smaller.lr == 0.2 and "lr" not in marked and marked["batch_size"] == fidelity.CHANGED
    assert _sources(fidelity.of_recipe(other, "grafit", CIFAR10))["lr"] == fidelity.CHANGED


def test_the_codes_preset_marks_where_it_leaves_the_paper() -> None:
    head, recipe = _cell(heads=[{"drloc": {"fidelity": "code"}}], train={"fidelity": "code"})
    sources = _sources(fidelity.of_head(head, "swin_t"))
    assert sources["offsets"] == sources["weight_schedule"] == fidelity.CODE
    assert sources["pairs"] == fidelity.PAPER
    assert (recipe.epochs, recipe.schedule_epochs) == (101, 300)
    assert (
        _sources(fidelity.of_recipe(recipe, "drloc-scratch", CIFAR10))["schedule_epochs"]
        == fidelity.CODE
    )


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
    assert {*file.silent, *file.chosen, *file.code} <= set(data)
    assert not (file.silent or file.code) or not file.chosen, "either there is a program or not"
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
        first = "backbone: nn.Module" if HEADS[name].is_on_features else "grids: list[Grid]"
        wanted = f"def build({first}, params: dict[str, Any])"
        assert wanted in Path(source.origin).read_text()


def test_a_fast_recipe_is_held_against_what_was_published() -> None:
    _, recipe = _cell(recipe="drloc-scratch-fast")
    changed = {
        setting.name: setting.published
        for setting in fidelity.of_recipe(recipe, "drloc-scratch-fast", CIFAR10)
        if setting.source == fidelity.CHANGED
    }
    assert changed == {"precision": "fp32", "tf32": False, "channels_last": False}


def _settings(dataset: Any, **changes: Any) -> CellSettings:
    grid = {
        "name": "one", "backbones": ["vit_s32"], "datasets": [dataset], "heads": ["supervised"],
        "seeds": 1, "recipe": "relvit-joint", **changes,
    }  # fmt: skip
    document = parse(yaml.safe_dump(grid).encode(), file="grid.yaml")
    (cell,) = take_in_document(document).expansion.cells
    return cell.spec.settings


def test_drlocs_recipes_normalise_every_dataset_as_imagenet() -> None:
    found = _settings("cifar10", recipe="drloc-scratch").dataset
    assert {"mean": found.mean, "std": found.std} == IMAGENET
    assert _settings("cifar10").dataset.mean == catalogue.datasets()["cifar10"]["mean"]


def test_a_recipe_may_have_fields_for_one_dataset_alone() -> None:
    def crop(dataset: str, **train: Any) -> float:
        at_224 = {"image_size": 224, "pipeline": "pil", **train}
        return _settings(dataset, train=at_224).recipe.eval_crop_pct

    assert (crop("flowers102_relvit"), crop("imagenet100"), crop("cifar10")) == (0.875, 0.875, 1.0)
    assert crop("imagenet100", eval_crop_pct=0.9) == 0.9


def test_a_recipes_statistics_may_depend_on_the_image_size() -> None:
    at_224 = _settings("tiny_imagenet", train={"image_size": 224, "pipeline": "pil"}).dataset
    at_64 = _settings("tiny_imagenet", train={"image_size": 64, "pipeline": "pil"}).dataset
    assert (at_224.std[0], at_64.std[0]) == (0.2667, 0.2770)


def test_a_grids_own_statistics_come_first_and_are_told() -> None:
    own = {"mean": [0.5, 0.5, 0.5], "std": [0.2, 0.2, 0.2]}
    found = _settings({"cifar10": own}, recipe="drloc-scratch")
    assert found.dataset.mean == own["mean"]
    told = _sources(fidelity.of_recipe(found.recipe, "drloc-scratch", found.dataset))
    assert told["dataset.mean"] == told["dataset.std"] == fidelity.CHANGED


def test_grey_images_keep_their_own_statistics() -> None:
    found = _settings("digits", backbones=["swin_t"], recipe="drloc-scratch").dataset
    assert found.mean == catalogue.datasets()["digits"]["mean"]


def test_deit_iii_counts_every_class_of_a_mixed_image_as_present() -> None:
    assert _settings("cifar10", recipe="deit3-1k").recipe.bce_threshold == 0.0


def test_a_threshold_that_smoothing_lifts_every_class_over_is_refused() -> None:
    with pytest.raises(BadInput, match="puts every class's target above it"):
        _settings("cifar10", recipe="deit3-1k", train={"label_smoothing": 0.1})


@pytest.mark.parametrize("name", catalogue.recipe_names())
def test_what_a_recipe_has_for_a_dataset_names_datasets_and_fields(name: str) -> None:
    known = {*catalogue.datasets(), "any"}
    fields = {*Recipe.model_fields, *catalogue.STATISTICS}
    for dataset, values in catalogue.recipe_file(name).datasets.items():
        assert dataset.partition("@")[0] in known
        assert set(values) <= fields
