"""Identity: one canonical text, one hash."""

import json
import os
import subprocess
import sys
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtjobs.jobs.documents import from_plain, to_plain
from vtjobs.jobs.errors import VtjobsError
from vtjobs.jobs.grid import catalogue
from vtjobs.jobs.grid.recipe import Recipe
from vtjobs.jobs.run.settings import (
    BackboneSettings,
    CellSettings,
    DatasetSettings,
    HeadSettings,
    RecipeSettings,
    Weights,
)
from vtjobs.jobs.run.spec import (
    NUMERICS,
    STREAMS,
    CellSpec,
    RunSpec,
    canonical,
    digest,
    seed_label,
    seeds_of,
)
from vtjobs.jobs.values import changed

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)
PARTS = st.dictionaries(st.text(), JSON, max_size=3)
RECIPE = Recipe.model_validate(catalogue.recipe_data("quickstart")).settings
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
NUMBERS = st.lists(st.integers(0, 1) | FLOATS, max_size=3)
BACKBONES = st.builds(
    BackboneSettings,
    args=PARTS,
    model=st.text(),
    weights=st.none() | st.builds(Weights, fingerprint=st.text()),
)
DATASETS = st.builds(
    DatasetSettings,
    channels=st.integers(),
    classes=st.integers(),
    fingerprint=st.text(),
    mean=NUMBERS,
    name=st.text(),
    std=NUMBERS,
    test=st.integers(),
    train=st.integers(),
    val=st.none() | FLOATS,
)
HEADS = st.builds(HeadSettings, name=st.text(), params=PARTS, source=st.none() | st.text())
RECIPES = st.builds(
    lambda **fields: changed(RECIPE, **fields),
    epochs=st.integers(),
    lr=FLOATS,
    tf32=st.booleans(),
    crop_scale=st.tuples(FLOATS, FLOATS),
    loss=st.sampled_from(["cross_entropy", "bce"]),
    repeats=st.integers(1, 3),
    dropout=st.none() | FLOATS,
)
SEEDS = st.fixed_dictionaries({name: st.integers(0, 2**32 - 1) for name in STREAMS})
SPECS = st.builds(
    RunSpec,
    backbone=BACKBONES,
    dataset=DATASETS,
    head=HEADS,
    recipe=RECIPES,
    seeds=SEEDS,
    init_from=st.none() | st.text("0123456789abcdef", min_size=16, max_size=16),
)
SPEC = RunSpec(
    backbone=BackboneSettings(model="b", args={"a": "é"}, weights=None),
    dataset=catalogue.dataset("digits"),
    head=HeadSettings(name="supervised", params={}),
    recipe=RECIPE,
    seeds=seeds_of(3),
    init_from=None,
)


@given(SPECS)
def test_a_spec_is_what_its_canonical_text_says(spec: RunSpec) -> None:
    text = spec.canonical()
    assert RunSpec.parse(text) == spec
    assert RunSpec.parse(text).canonical() == text
    assert text.isascii()


def test_a_run_from_before_a_field_keeps_its_name_and_reads_what_was_the_case() -> None:
    plain = json.loads(SPEC.canonical())
    assert not plain["recipe"].keys() & {"repeats", "loss", "bce_threshold", "drop_path_rule"}
    spec = RunSpec.parse(canonical(plain))
    assert (spec.recipe.repeats, spec.recipe.loss) == (1, "cross_entropy")
    plain["recipe"]["loss"] = "bce"
    other = RunSpec.parse(canonical(plain))
    assert other.run_id != spec.run_id and other.recipe.loss == "bce"


def test_a_run_stores_the_fields_of_the_recipe_that_a_user_gives() -> None:
    # The rate is stored as it is for the run's batch; a loss of one's own is given as the loss.
    given = [name for name in Recipe.model_fields if name != "lr_per"]
    assert (*given, "own_loss") == RecipeSettings.__struct_fields__


def test_a_field_that_may_be_left_out_of_a_run_has_the_recipes_default() -> None:
    left_out = msgspec.structs.fields(RecipeSettings)
    later = {field.name: field.default for field in left_out if not field.required}
    assert later.pop("own_loss") is None
    assert {name: Recipe.model_fields[name].default for name in later} == later


def reordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: reordered(value[key]) for key in reversed(value)}
    return [reordered(item) for item in value] if isinstance(value, list) else value


@given(SPECS)
def test_the_order_of_keys_is_no_part_of_the_name(spec: RunSpec) -> None:
    assert from_plain(reordered(to_plain(spec)), RunSpec).run_id == spec.run_id


@given(SPECS, SPECS, st.sampled_from(["backbone", "dataset", "head", "recipe"]))
def test_any_change_of_any_part_is_another_name(spec: RunSpec, donor: RunSpec, part: str) -> None:
    other = changed(spec, **{part: getattr(donor, part)})
    assert (other.run_id == spec.run_id) == (other.canonical() == spec.canonical())
    if other.run_id == spec.run_id:
        assert getattr(other, part) == getattr(spec, part)


@pytest.mark.parametrize(
    "change", [{"init_from": "0" * 16}, {"numerics": NUMERICS + 1}, {"seeds": seeds_of(1)}]
)
def test_parent_numerics_and_seeds_are_part_of_the_name(change: dict[str, Any]) -> None:
    assert changed(SPEC, **change).run_id != SPEC.run_id


@pytest.mark.parametrize("stream", STREAMS)
def test_every_stream_may_vary_apart_and_is_part_of_the_name(stream: str) -> None:
    other = changed(SPEC, seeds=SPEC.seeds | {stream: 1})
    assert SPEC.run_id != other.run_id
    assert (seed_label(SPEC.seeds), seed_label(other.seeds)) == (3, None)


@given(SPECS)
def test_a_cell_writes_the_text_that_its_runs_are_named_by(spec: RunSpec) -> None:
    cell = CellSpec(
        **{
            name: canonical(to_plain(getattr(spec, name)))
            for name in CellSettings.__struct_fields__
        }
    )
    text = cell.text(seeds=canonical(spec.seeds), init_from=spec.init_from)
    assert text == spec.canonical()
    assert CellSpec.stored(cell.to_json()) == cell
    assert cell.settings.shape == spec.shape


def test_a_name_is_the_same_in_every_process_and_for_ever() -> None:
    code = (
        "import sys; from vtjobs.jobs.run.spec import RunSpec;"
        "print(RunSpec.parse(sys.argv[1]).run_id)"
    )
    text = SPEC.canonical()
    found = {
        subprocess.run(
            [sys.executable, "-c", code, text],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert text.startswith(
        r'{"backbone":{"args":{"a":"\u00e9"},"model":"b","weights":null},"dataset"'
    )
    assert found == {digest(text)}


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_json_cannot_say_is_not_hashed(value: float) -> None:
    with pytest.raises(ValueError):
        canonical({"lr": value})


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"backbone": {}}', "not json"])
def test_what_is_no_spec_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(VtjobsError):
        RunSpec.parse(text)


@pytest.mark.parametrize("part", [None, "backbone", "dataset", "head", "recipe"])
def test_a_spec_with_a_further_key_is_refused(part: str | None) -> None:
    plain = json.loads(SPEC.canonical())
    (plain if part is None else plain[part])["gpus"] = 8
    with pytest.raises(VtjobsError):
        RunSpec.parse(canonical(plain))
