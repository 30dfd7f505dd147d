"""A lab's own head: found, read and checked without being run."""

import json
from pathlib import Path

import pytest

from vtjobs.jobs.errors import BadInput
from vtjobs.jobs.grid import own_head
from vtjobs.jobs.grid.expansion import Expansion
from vtjobs.jobs.grid.load import take_in
from vtjobs.jobs.grid.own_source import MOST_BYTES, NotOwn, Sources

EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "smooth_tokens.py"
GRID = """\
name: own
backbones: [vit_mini]
datasets: [digits]
heads: [supervised, {head}]
seeds: 1
recipe: quickstart
{more}
"""


def _expand(
    folder: Path, head: str = '"smooth_tokens.py:SmoothTokens"', more: str = ""
) -> Expansion:
    (folder / "smooth_tokens.py").write_text(EXAMPLE.read_text())
    path = folder / "grid.yaml"
    path.write_text(GRID.replace("{head}", head).replace("{more}", more))
    return take_in(str(path)).expansion


def _runs(found: Expansion) -> list[str]:
    return [run.run_id for run in found.runs]


@pytest.mark.parametrize("name", ["smooth_tokens.py:SmoothTokens", "smooth_tokens:SmoothTokens"])
def test_a_head_beside_the_grid_is_found_as_a_file_and_as_a_module(
    tmp_path: Path, name: str
) -> None:
    found = _expand(tmp_path, f'"{name}"')
    head = json.loads(found.cells[1].spec.head)
    assert head["name"] == found.cells[1].labels["head"] == "SmoothTokens"
    assert head["params"] == {"weight": 1.0, "tokens": "after_norm", "blocks": "last"}
    assert head["source"] == EXAMPLE.read_text()


def test_another_source_is_another_run_and_the_baseline_stays(tmp_path: Path) -> None:
    before = _runs(_expand(tmp_path))
    source = EXAMPLE.read_text()
    try_ = tmp_path / "other"
    try_.mkdir()
    (try_ / "changed.py").write_text(source.replace(".square()", ".abs()"))
    after = _runs(_expand(try_, '"changed.py:SmoothTokens"'))
    assert before[0] == after[0]
    assert before[1] != after[1]


def test_where_the_file_lies_does_not_enter_the_name(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    assert _runs(_expand(tmp_path / "one")) == _runs(_expand(tmp_path / "two"))


def test_its_arguments_may_be_varied_by_the_name_of_its_class(tmp_path: Path) -> None:
    found = _expand(
        tmp_path, more="axes: {head.SmoothTokens.width: [16, 32], head.SmoothTokens.weight: [0.1]}"
    )
    params = [json.loads(cell.spec.head)["params"] for cell in found.cells]
    assert [value.get("width") for value in params] == [None, 16, 32]
    assert [value.get("weight") for value in params] == [None, 0.1, 0.1]


@pytest.mark.parametrize(
    ("head", "says"),
    [
        ('"nowhere.py:Head"', "nowhere.py: no such file"),
        (
            '"nowhere.at.all:Head"',
            "no module 'nowhere.at.all' next to the grid file or on Python's path",
        ),
        ('"smooth_tokens.py:SmoothToken"', "no class 'SmoothToken'. Did you mean 'SmoothTokens'?"),
        (
            '{"smooth_tokens.py:SmoothTokens": {widht: 3}}',
            "unknown key 'widht'. Did you mean 'width'?",
        ),
        (
            '{"smooth_tokens.py:SmoothTokens": {weight: -1}}',
            "weight: must be a finite number, at least 0",
        ),
        (
            '{"smooth_tokens.py:SmoothTokens": {tokens: inside}}',
            "tokens: must be one of before_norm, after_norm",
        ),
        ('{"smooth_tokens.py:SmoothTokens": {width: .nan}}', "settings must be finite numbers"),
        ('{"smooth_tokens.py:SmoothTokens": 5}', "expected a mapping of settings"),
        ('":SmoothTokens"', "write file.py:Name or module:Name"),
        ('".:SmoothTokens"', "write file.py:Name or module:Name"),
    ],
)
def test_what_is_no_head_is_told_with_the_place_in_the_grid(
    tmp_path: Path, head: str, says: str
) -> None:
    with pytest.raises(BadInput) as caught:
        _expand(tmp_path, head)
    (problem,) = caught.value.problems
    assert says in str(problem) and problem.line == 4


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("class Head:\n    pass\n", "has no __init__ of its own"),
        ("class Head:\n    def __init__(self): pass\n", "must take 1 argument by place"),
        ("class Head(:\n", r"cannot be read as Python \(.* \(head.py, line 1\)\)"),
        (
            "from .more import x\nclass Head:\n    def __init__(self, grids): pass\n",
            "relative imports do not work",
        ),
        ("#" * (MOST_BYTES + 1), "at most 100 kB"),
    ],
)
def test_a_file_without_a_usable_class_is_refused(tmp_path: Path, source: str, says: str) -> None:
    (tmp_path / "head.py").write_text(source)
    with pytest.raises(NotOwn, match=says):
        own_head.find("head.py:Head", sources=Sources(tmp_path))


def test_nothing_in_the_file_is_run(tmp_path: Path) -> None:
    (tmp_path / "head.py").write_text(
        "raise SystemExit\nclass Head:\n    def __init__(self, grids, **more): pass\n"
    )
    assert own_head.find("head.py:Head", sources=Sources(tmp_path)).arguments is None


def test_what_a_class_needs_must_be_given(tmp_path: Path) -> None:
    (tmp_path / "head.py").write_text(
        "class Head:\n    def __init__(self, grids, width, *, depth, slope=1): pass\n"
    )
    source = own_head.find("head.py:Head", sources=Sources(tmp_path))
    with pytest.raises(NotOwn, match="the class requires depth, width"):
        own_head.parameters({}, source)
    found = own_head.parameters({"width": 1, "depth": 2}, source)
    assert found == own_head.COMMON | {"width": 1, "depth": 2}


@pytest.mark.parametrize(
    "name", ["labels", "positions", "mega", "shuffle", "patch_augment", "weight_schedule"]
)
def test_a_word_that_changes_backbone_or_run_is_no_argument(tmp_path: Path, name: str) -> None:
    (tmp_path / "head.py").write_text("class Head:\n    def __init__(self, grids, **more): pass\n")
    source = own_head.find("head.py:Head", sources=Sources(tmp_path))
    with pytest.raises(NotOwn, match="reserved by vtjobs"):
        own_head.parameters({name: False}, source)


@pytest.mark.parametrize("name", ["supervised", "drloc", "relvit"])
def test_a_class_is_not_called_like_a_head_of_ours(tmp_path: Path, name: str) -> None:
    (tmp_path / "head.py").write_text(f"class {name}:\n    def __init__(self, grids): pass\n")
    with pytest.raises(NotOwn, match="is the name of a built-in head"):
        own_head.find(f"head.py:{name}", sources=Sources(tmp_path))
