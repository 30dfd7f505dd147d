"""Questions about backbones, answered before anything is submitted."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from vtjobs.workers.models.backbones import build
from vtjobs.workers.tools.backbone_facts import describe

from ...support.training import CONVNET, VIT, run_spec


def _ask(backbone: dict[str, Any], **recipe: Any) -> dict[str, Any]:
    spec = run_spec(backbone, **recipe)
    return describe(
        {
            "backbone": spec.backbone,
            "dataset": spec.dataset,
            "recipe": spec.recipe,
            "head": spec.head,
        }
    )


def test_a_backbone_is_described_by_its_size_grid_and_batch_norms() -> None:
    vit = _ask(VIT)
    assert (vit["width"], vit["grid"], vit["batch_norm"]) == (16, [2, 2], False)
    convnet = _ask(CONVNET, image_size=32)
    assert (convnet["width"], convnet["grid"], convnet["batch_norm"]) == (8, [4, 4], True)
    for backbone, facts in ((VIT, vit), (CONVNET, convnet)):
        spec = run_spec(backbone)
        model = build(spec.backbone, spec.dataset, spec.recipe)
        assert facts["parameters"] == sum(parameter.numel() for parameter in model.parameters())


def test_a_large_backbone_is_described_without_its_weights_being_made() -> None:
    facts = _ask({"model": "vit_giant_patch14_224", "args": {}}, image_size=28)
    assert facts["parameters"] > 10**9 and facts["grid"] == [2, 2]


@pytest.mark.parametrize(
    ("backbone", "size", "words"),
    [
        ({"model": "resnet18", "args": {"nonsense": 1}}, 16, "nonsense"),
        ({"model": "vit_small_patch16_224", "args": {"patch_size": 32}}, 16, "16"),
        ({"model": "vit_small_patch16_224", "args": {"num_heads": 5}}, 16, "divisible"),
    ],
)
def test_what_cannot_be_made_is_told_in_timms_words(
    backbone: dict[str, Any], size: int, words: str
) -> None:
    assert words in _ask(backbone, image_size=size)["error"]


def test_many_questions_are_answered_by_one_process(tmp_path: Path) -> None:
    questions = {}
    for name, backbone in (
        ("a", VIT),
        ("b", CONVNET),
        ("c", {"model": "resnet18", "args": {"nonsense": 1}}),
    ):
        spec = run_spec(backbone)
        questions[name] = {
            "backbone": spec.backbone,
            "dataset": spec.dataset,
            "recipe": spec.recipe,
            "head": spec.head,
        }
    done = subprocess.run(
        [sys.executable, "-m", "vtjobs.workers.tools.backbone_facts"],
        input=json.dumps(questions), capture_output=True, text=True, cwd=tmp_path, check=True,
    )  # fmt: skip
    answers = json.loads(done.stdout)
    assert (
        answers["a"]["grid"] == [2, 2]
        and answers["b"]["batch_norm"]
        and "nonsense" in answers["c"]["error"]
    )


def _question(model: str, size: int, **more: Any) -> dict[str, Any]:
    args = {"num_blocks": 1} if "resmlp" in model else {"embed_dim": 16, "depth": 1, "num_heads": 2}
    return {
        "backbone": {"model": model, "args": {"patch_size": 8, **args}, "weights": None},
        "dataset": {"channels": 3, "classes": 10},
        "recipe": {"image_size": size, "dropout": None, "drop_path": None},
        "head": {"params": {}},
        **more,
    }


def test_a_backbone_that_is_tied_to_its_size_starts_from_no_other_one() -> None:
    tied = describe(_question("resmlp_s12", 32, parent=_question("resmlp_s12", 16)))
    assert "linear_tokens.weight has shape 4x4, the backbone expects 16x16" in tied["error"]
    assert "error" not in describe(
        _question("deit_tiny_patch16_224", 32, parent=_question("deit_tiny_patch16_224", 16))
    )


def test_a_teacher_must_work_at_its_students_size_and_be_a_model() -> None:
    student = "deit_tiny_patch16_224"
    tied = describe(_question(student, 32, parent=_question("resmlp_s12", 16), teacher="stage"))
    assert "linear_tokens.weight" in tied["error"]
    assert "error" not in describe(
        _question(student, 32, parent=_question("resmlp_s12", 32), teacher="stage")
    )
    odd = describe(
        _question(
            student, 32, teacher={"model": "resnet18", "args": {"nonsense": 3}, "weights": None}
        )
    )
    assert "nonsense" in odd["error"]
