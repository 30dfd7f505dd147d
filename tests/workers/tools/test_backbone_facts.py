"""Questions about backbones, answered before anything is submitted."""

import json
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import save_file

from vtjobs.jobs.documents import to_plain
from vtjobs.jobs.run.backbone_facts import Facts, Question
from vtjobs.jobs.run.settings import BackboneSettings, HeadSettings, ModelShape, Weights
from vtjobs.jobs.values import changed
from vtjobs.workers.models.backbones import build
from vtjobs.workers.tools.backbone_facts import describe

from ...support.tools import call_here
from ...support.training import CONVNET, VIT, head_settings, make_backbone, run_spec


def _question_of(backbone: BackboneSettings, **recipe: Any) -> Question:
    spec = run_spec(backbone, **recipe)
    return Question(backbone=spec.backbone, shape=spec.shape, head=spec.head)


def _ask(backbone: BackboneSettings, **recipe: Any) -> Facts:
    return describe(_question_of(backbone, **recipe))


def test_a_backbone_is_described_by_its_size_grid_and_batch_norms() -> None:
    vit = _ask(VIT)
    assert (vit.width, vit.grid, vit.batch_norm) == (16, (2, 2), False)
    convnet = _ask(CONVNET, image_size=32)
    assert (convnet.width, convnet.grid, convnet.batch_norm) == (8, (4, 4), True)
    for backbone, facts in ((VIT, vit), (CONVNET, convnet)):
        spec = run_spec(backbone)
        model = build(spec.backbone, spec.shape)
        assert facts.parameters == sum(parameter.numel() for parameter in model.parameters())


def test_a_large_backbone_is_described_without_its_weights_being_made() -> None:
    facts = _ask(make_backbone("vit_giant_patch14_224"), image_size=28)
    assert facts.parameters > 10**9 and facts.grid == (2, 2)


@pytest.mark.parametrize(
    ("backbone", "size", "words"),
    [
        (make_backbone("resnet18", nonsense=1), 16, "nonsense"),
        (make_backbone("vit_small_patch16_224", patch_size=32), 16, "16"),
        (make_backbone("vit_small_patch16_224", num_heads=5), 16, "divisible"),
    ],
)
def test_what_cannot_be_made_is_told_in_timms_words(
    backbone: BackboneSettings, size: int, words: str
) -> None:
    assert words in (_ask(backbone, image_size=size).error or "")


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"trainable": "attention"}, "trainable: attention needs attention; ResNet has none"),
        ({"trainable": "classifier"}, None),
        ({"by_layer": True}, None),
        ({"frozen": ("layer1.*", "*.bn1.*")}, None),
        (
            {"frozen": ("stem.*",)},
            "frozen: ResNet has no parameter 'stem.*'; it has conv1.weight, bn1.weight, bn1.bias,"
            " layer1.0.conv1.weight …",
        ),
        ({"frozen": ("*",)}, "frozen: * leaves nothing of the backbone to train"),
    ],
)
def test_a_backbone_without_the_part_that_is_to_be_trained_is_told_before_anything_is_submitted(
    asked: dict[str, Any], words: str | None
) -> None:
    assert describe(changed(_question_of(CONVNET), **asked)).error == words


def test_parameters_to_take_are_those_that_the_parent_has_and_that_fit() -> None:
    parent = _question_of(CONVNET)
    more = changed(parent, shape=changed(parent.shape, classes=7), parent=parent)
    assert describe(changed(more, init_only=("layer1.*",))).error is None
    told = describe(changed(more, init_only=("layer1.*", "fc.*"))).error or ""
    assert "have nothing named 'fc.*' that the model can take" in told


def test_many_questions_are_answered_by_one_process() -> None:
    backbones = {"a": VIT, "b": CONVNET, "c": make_backbone("resnet18", nonsense=1)}
    questions = to_plain({name: _question_of(one) for name, one in backbones.items()})
    answers = json.loads(call_here("backbone_facts", given=json.dumps(questions)).stdout)
    assert (
        answers["a"]["grid"] == [2, 2]
        and answers["b"]["batch_norm"]
        and "nonsense" in answers["c"]["error"]
    )


def _question(model: str, size: int, **more: Any) -> Question:
    args = {"num_blocks": 1} if "resmlp" in model else {"embed_dim": 16, "depth": 1, "num_heads": 2}
    return Question(
        backbone=make_backbone(model, patch_size=8, **args),
        shape=ModelShape(channels=3, classes=10, image_size=size),
        head=head_settings("supervised"),
        **more,
    )


def _error(question: Question) -> str:
    return describe(question).error or ""


@pytest.mark.paper("RM-10")
def test_a_backbone_that_is_tied_to_its_size_starts_from_no_other_one() -> None:
    tied = _error(_question("resmlp_s12", 32, parent=_question("resmlp_s12", 16)))
    assert "linear_tokens.weight has shape 4x4, the backbone expects 16x16" in tied
    free = _question("deit_tiny_patch16_224", 32, parent=_question("deit_tiny_patch16_224", 16))
    assert _error(free) == ""


def test_a_teacher_must_work_at_its_students_size_and_be_a_model() -> None:
    student = "deit_tiny_patch16_224"
    tied = _question(student, 32, parent=_question("resmlp_s12", 16), teacher="stage")
    assert "linear_tokens.weight" in _error(tied)
    fits = _question(student, 32, parent=_question("resmlp_s12", 32), teacher="stage")
    assert _error(fits) == ""
    odd = _question(student, 32, teacher=make_backbone("resnet18", nonsense=3))
    assert "nonsense" in _error(odd)


def test_weights_that_do_not_fit_are_known_before_anything_is_submitted(tmp_path: Path) -> None:
    cell = run_spec(VIT)
    state = build(VIT, cell.shape).state_dict()
    whole, part = tmp_path / "whole.safetensors", tmp_path / "part.safetensors"
    save_file(state, str(whole))
    save_file({name: value for name, value in state.items() if "norm" not in name}, str(part))
    plain = Question(
        backbone=changed(VIT, weights=Weights(fingerprint="sha256:0")),
        shape=cell.shape,
        head=HeadSettings(name="supervised", params={}),
    )
    assert describe(changed(plain, weights_file=str(whole))).error is None
    error = describe(changed(plain, weights_file=str(part))).error
    assert error is not None and "allow_missing" in error
