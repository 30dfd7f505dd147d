"""A teacher: the run of an earlier stage, or timm's model with weights from a file."""

import json
from pathlib import Path
from typing import Any

import pytest

from vtjobs.jobs.errors import BadInput
from vtjobs.jobs.grid.expansion import Expansion
from vtjobs.jobs.grid.load import take_in_document
from vtjobs.jobs.strict_yaml import Document

STUDENT = {"name": "student", "heads": ["supervised", {"distill": {"teacher": "big"}}]}
BASE: dict[str, Any] = {
    "name": "taught",
    "backbones": ["vit_mini", "swin_mini"],
    "datasets": ["digits", "digits300"],
    "seeds": 2,
    "recipe": "quickstart",
    "stages": [{"name": "big", "backbones": ["resnet50"], "heads": ["supervised"]}, STUDENT],
}


def grid(**changes: Any) -> Expansion:
    data = {key: value for key, value in {**BASE, **changes}.items() if value is not None}
    return take_in_document(Document(file="grid.yaml", data=json.loads(json.dumps(data)))).expansion


def _head(cell: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cell.spec.head)
    return found


@pytest.mark.paper("DE-09", "OR-03")
def test_a_student_waits_for_the_teacher_of_its_dataset_and_seed() -> None:
    found = grid()
    runs = {run.run_id: run for run in found.runs}
    students = [run for run in found.runs if _head(found.cells[run.cell])["name"] == "distill"]
    assert len(students) == 2 * 2 * 2
    for run in students:
        assert run.parent is not None
        teacher = runs[run.parent]
        assert teacher.seed == run.seed
        mine, its = found.cells[run.cell].labels, found.cells[teacher.cell].labels
        assert (its["backbone"], its["dataset"]) == ("resnet50", mine["dataset"])


def test_the_baseline_of_a_student_has_no_teacher_and_is_compared_with_it() -> None:
    found = grid()
    by_match: dict[str, list[Any]] = {}
    for cell in found.cells:
        if cell.stage == "student":
            by_match.setdefault(cell.match_id, []).append(cell)
    assert len(by_match) == 2 * 2
    for cells in by_match.values():
        assert [(cell.labels["head"], cell.is_baseline) for cell in cells] == [
            ("supervised", True),
            ("distill", False),
        ]
        assert cells[0].parent is None


def test_another_teacher_makes_another_run() -> None:
    small = [{"name": "big", "backbones": ["vit_mini"], "heads": ["supervised"]}, STUDENT]
    distilled = [
        {cell.cell_id for cell in found.cells if _head(cell)["name"] == "distill"}
        for found in (grid(), grid(stages=small))
    ]
    assert not distilled[0] & distilled[1]


@pytest.mark.paper("DE-08")
def test_the_presets_say_what_the_text_and_the_code_have() -> None:
    def params(**settings: Any) -> dict[str, Any]:
        stages = [
            BASE["stages"][0],
            {"name": "student", "heads": [{"distill": {"teacher": "big", **settings}}]},
        ]
        found: dict[str, Any] = _head(grid(stages=stages).cells[-1])["params"]
        return {name: found[name] for name in ("weight", "temperature", "mean_over", "fusion")}

    assert params() == {
        "weight": 0.5,
        "temperature": 3.0,
        "mean_over": "images",
        "fusion": "softmax",
    }
    assert params(kind="soft")["weight"] == 0.1
    code = {"weight": 0.5, "temperature": 1.0, "mean_over": "elements", "fusion": "logits"}
    assert params(kind="soft", fidelity="code") == code


def test_a_teacher_from_a_file_is_named_by_its_weights(tmp_path: Path) -> None:
    weights = tmp_path / "teacher.safetensors"
    weights.write_bytes(b"some weights")
    heads = ["supervised", {"distill": {"teacher": {"regnety_160": {"weights": str(weights)}}}}]
    found = grid(stages=None, heads=heads)
    teacher = _head(next(cell for cell in found.cells if not cell.is_baseline))["params"]["teacher"]
    assert teacher["model"] == "regnety_160"
    assert found.paths[teacher["weights"]["fingerprint"]] == str(weights)
    assert all(run.parent is None for run in found.runs)


@pytest.mark.parametrize(
    ("teacher", "message"),
    [
        ("biggest", "no earlier stage 'biggest'"),
        (None, "expected a teacher with weights"),
        ({"regnety_160": {}}, "expected a teacher with weights"),
        ({"regnety_161": {"weights": "file"}}, "unknown backbone 'regnety_161'"),
    ],
)
def test_a_teacher_that_is_none_is_told(teacher: Any, message: str) -> None:
    stages = [BASE["stages"][0], {"name": "student", "heads": [{"distill": {"teacher": teacher}}]}]
    with pytest.raises(BadInput, match=message):
        grid(stages=stages)


def test_a_teacher_needs_a_stage_before_it() -> None:
    with pytest.raises(BadInput, match="no earlier stage 'big'"):
        grid(stages=None, heads=[{"distill": {"teacher": "big"}}])


def test_a_teacher_is_one_cell() -> None:
    stages = [
        {"name": "big", "backbones": ["resnet50", "vit_mini"], "heads": ["supervised"]},
        STUDENT,
    ]
    with pytest.raises(BadInput, match="has 2 cells on digits; a teacher needs one"):
        grid(stages=stages)


def test_a_teacher_without_a_classifier_is_refused() -> None:
    heads = [{"relvit": {"labels": False, "positions": False}}]
    with pytest.raises(BadInput, match="a teacher needs a classifier"):
        grid(backbones=["vit_mini"], stages=[{"name": "big", "heads": heads}, STUDENT])


def test_a_stage_that_starts_from_another_keeps_its_backbones() -> None:
    stages = [
        BASE["stages"][0],
        {"name": "next", "heads": ["supervised"], "init_from": "big", "backbones": ["vit_mini"]},
    ]
    with pytest.raises(BadInput, match="keeps the backbones of the stage that it starts from"):
        grid(stages=stages)


def test_a_stage_that_starts_from_another_has_no_second_parent() -> None:
    fine = {"name": "fine", "init_from": "big", "heads": [{"distill": {"teacher": "big"}}]}
    with pytest.raises(
        BadInput, match="a stage with init_from cannot take its teacher from another stage"
    ):
        grid(stages=[BASE["stages"][0], fine])


@pytest.mark.parametrize(
    "change",
    [
        {"axes": {"head.distill.teacher": ["big"]}},
        {"overrides": [{"when": {"head": "distill"}, "set": {"head.distill.teacher": "big"}}]},
        {"variants": {"other": {"head.distill.teacher": "big"}}},
    ],
)
def test_a_teacher_is_not_varied_by_a_path(change: dict[str, Any]) -> None:
    with pytest.raises(
        BadInput, match=r"head.distill.teacher cannot be varied. List distill once for each"
    ):
        grid(**change)


def test_a_student_learns_from_the_teacher_in_its_place_of_an_axis() -> None:
    found = grid(
        axes={"train.lr": [1e-3, 1e-4]}, variants={"plain": {}, "short": {"train.epochs": 10}}
    )
    students = [cell for cell in found.cells if _head(cell)["name"] == "distill"]
    assert len(students) == 2 * 2 * 2 * 2
    for cell in students:
        assert cell.parent is not None and found.cells[cell.parent].axes == cell.axes


def test_a_teacher_that_is_an_earlier_stages_own_cell_is_found() -> None:
    same = {"name": "again", "backbones": ["resnet50"], "heads": ["supervised"]}
    student = {"name": "student", "heads": [{"distill": {"teacher": "again"}}]}
    found = grid(stages=[BASE["stages"][0], same, student])
    assert len(found.cells) == 2 + 2 * 2


def test_students_without_a_teachers_run_are_counted() -> None:
    found = grid(exclude=[{"stage": "big", "seed": 1}])
    assert found.excluded == {"{stage: big, seed: 1}": 2, "{the teacher's run}": 4}


def test_an_included_backbone_is_a_student_and_no_teacher() -> None:
    rule = [{"backbone": "deit_s", "dataset": "digits", "head": "supervised"}]
    found = grid(include=rule)
    assert [cell.stage for cell in found.cells if cell.labels["backbone"] == "deit_s"] == [
        "student"
    ]
