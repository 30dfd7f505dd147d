"""Identity: one canonical text, one hash."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtjobs.jobs.grid.recipe import Recipe
from vtjobs.jobs.run.spec import (
    LATER,
    NUMERICS,
    STREAMS,
    CellSpec,
    RunSpec,
    canonical,
    digest,
    seed_label,
    seeds_of,
)

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
SPECS = st.builds(
    RunSpec,
    backbone=PARTS,
    dataset=PARTS,
    head=PARTS,
    recipe=PARTS.map(lambda fields: LATER | fields),
    seeds=st.fixed_dictionaries({name: st.integers(0, 2**32 - 1) for name in STREAMS}),
    init_from=st.none() | st.text("0123456789abcdef", min_size=16, max_size=16),
)


@given(SPECS)
def test_a_spec_is_what_its_canonical_text_says(spec: RunSpec) -> None:
    text = spec.canonical()
    assert RunSpec.parse(text) == spec
    assert RunSpec.parse(text).canonical() == text
    assert text.isascii()


def test_a_run_from_before_a_field_keeps_its_name_and_reads_what_was_the_case() -> None:
    before = '{"backbone":{},"dataset":{},"head":{},"init_from":null,"numerics":1,"recipe":{"lr":0.1},"seeds":{}}'
    spec = RunSpec.parse(before)
    assert spec.canonical() == before
    assert spec.recipe == {"lr": 0.1} | LATER
    other = RunSpec.parse(before.replace('"lr":0.1', '"loss":"bce","lr":0.1'))
    assert other.run_id != spec.run_id and other.recipe["loss"] == "bce"


def test_what_was_the_case_before_a_field_is_its_default() -> None:
    assert {name: Recipe.model_fields[name].default for name in LATER} == LATER


def reordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: reordered(value[key]) for key in reversed(value)}
    return [reordered(item) for item in value] if isinstance(value, list) else value


@given(SPECS)
def test_the_order_of_keys_is_no_part_of_the_name(spec: RunSpec) -> None:
    fields = {name: reordered(getattr(spec, name)) for name in RunSpec.__slots__}
    assert RunSpec(**fields).run_id == spec.run_id


@given(SPECS, st.sampled_from(["backbone", "dataset", "head", "recipe"]), st.text(), JSON)
def test_any_change_of_any_part_is_another_name(
    spec: RunSpec, part: str, key: str, value: Any
) -> None:
    fields = {name: getattr(spec, name) for name in RunSpec.__slots__}
    other = RunSpec(**{**fields, part: {**fields[part], key: value}})
    assert (other.run_id == spec.run_id) == (other.canonical() == spec.canonical())


@pytest.mark.parametrize(
    "change", [{"init_from": "0" * 16}, {"numerics": NUMERICS + 1}, {"seeds": seeds_of(1)}]
)
def test_parent_numerics_and_seeds_are_part_of_the_name(change: dict[str, Any]) -> None:
    fields: dict[str, Any] = {name: {} for name in ("backbone", "dataset", "head", "recipe")}
    fields |= {"seeds": seeds_of(0), "init_from": None, "numerics": NUMERICS}
    assert RunSpec(**fields).run_id != RunSpec(**{**fields, **change}).run_id


@pytest.mark.parametrize("stream", STREAMS)
def test_every_stream_may_vary_apart_and_is_part_of_the_name(stream: str) -> None:
    fields: dict[str, Any] = {name: {} for name in ("backbone", "dataset", "head", "recipe")}
    one = RunSpec(**fields, seeds=seeds_of(0), init_from=None)
    other = RunSpec(**fields, seeds={**seeds_of(0), stream: 1}, init_from=None)
    assert one.run_id != other.run_id
    assert (seed_label(one.seeds), seed_label(other.seeds)) == (0, None)


@given(PARTS, PARTS, PARTS, PARTS, st.integers(0, 2**32 - 1), st.none() | st.just("ab" * 8))
def test_a_cell_writes_the_text_that_its_runs_are_named_by(
    backbone: Any, dataset: Any, head: Any, recipe: Any, seed: int, parent: str | None
) -> None:
    parts = {"backbone": backbone, "dataset": dataset, "head": head, "recipe": recipe}
    cell = CellSpec(**{name: canonical(part) for name, part in parts.items()})
    spec = RunSpec(**parts, seeds=seeds_of(seed), init_from=parent)
    assert cell.text(seeds=canonical(seeds_of(seed)), init_from=parent) == spec.canonical()


def test_a_name_is_the_same_in_every_process_and_for_ever() -> None:
    code = (
        "from vtjobs.jobs.run.spec import RunSpec, seeds_of;print(RunSpec(backbone={'b': 1, 'a':"
        " 'é'}, dataset={}, head={}, recipe={'lr': 1e-3}, seeds=seeds_of(3), init_from=None,"
        " numerics=1).run_id)"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    text = (
        r'{"backbone":{"a":"\u00e9","b":1},"dataset":{},"head":{},"init_from":null,"numerics":1,"recipe":{"lr":0.001},'
        r'"seeds":{"augment":3,"drop":3,"init":3,"mix":3,"order":3,"pair":3,"split":3}}'
    )
    assert found == {digest(text)}


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_json_cannot_say_is_not_hashed(value: float) -> None:
    with pytest.raises(ValueError):
        canonical({"lr": value})


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"backbone": {}}', "not json"])
def test_what_is_no_spec_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        RunSpec.parse(text)


def test_a_spec_with_a_further_key_is_refused() -> None:
    spec = RunSpec(backbone={}, dataset={}, head={}, recipe={}, seeds={}, init_from=None)
    with pytest.raises(ValueError):
        RunSpec.parse(json.dumps({**json.loads(spec.canonical()), "gpus": 8}))
