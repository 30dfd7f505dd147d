"""Recipes and the arithmetic of batches."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from vtjobs.jobs.grid import catalogue
from vtjobs.jobs.grid.recipe import Recipe
from vtjobs.jobs.values import changed

PLAIN = {"epochs": 10, "batch_size": 32, "lr": 1e-3, "image_size": 16}


@given(st.integers(1, 10**6), st.integers(1, 4096))
def test_an_epoch_serves_every_image_once_or_drops_less_than_a_batch(
    images: int, batch: int
) -> None:
    recipe = Recipe.model_validate({**PLAIN, "batch_size": batch}).settings
    whole = changed(recipe, drop_last=True).steps_per_epoch(images)
    assert 0 <= images - whole * batch < batch
    assert recipe.steps_per_epoch(images) == whole + (images % batch > 0)


@pytest.mark.parametrize(
    "field",
    ["lr", "weight_decay", "mixup", "clip_grad", "warmup_lr", "label_smoothing", "ema_decay"],
)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, "0.1", True])
def test_a_number_of_a_recipe_is_finite_and_in_its_range(field: str, value: object) -> None:
    with pytest.raises(ValidationError):
        Recipe.model_validate({**PLAIN, field: value})


@pytest.mark.parametrize("name", catalogue.recipe_names())
def test_a_recipe_of_the_catalogue_is_read_back_from_what_a_run_stores(name: str) -> None:
    data = catalogue.recipe_data(name)
    assert Recipe.model_validate(data).model_dump(mode="json") == data
    assert set(data) == set(Recipe.model_fields), "a run's recipe is complete"


@pytest.mark.parametrize("fidelity", ["paper", "code"])
@pytest.mark.parametrize("name", catalogue.recipe_names())
def test_the_fast_form_of_a_recipe_differs_in_precision_alone(name: str, fidelity: str) -> None:
    plain, fast = (catalogue.recipe_data(one, fidelity) for one in (name, f"{name}-fast"))
    changed = {"precision": "fp16", "tf32": True, "channels_last": True}
    assert fast == plain | changed
    assert catalogue.recipe_file(f"{name}-fast") == catalogue.recipe_file(name)


def test_every_field_of_a_recipe_says_what_it_is_or_is_named_as_in_the_field() -> None:
    without = {name for name, field in Recipe.model_fields.items() if not field.description}
    assert without <= {
        "weight_decay", "momentum", "schedule", "tf32", "channels_last", "compile", "interpolation", "mixup", "cutmix",
        "mix_prob", "mix_switch_prob", "label_smoothing", "ema_decay", "ema_warmup",
    }  # fmt: skip
