"""A student beside its teacher.

The loss of both kinds, the distillation token, and a teacher of an earlier stage.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from vtjobs.jobs.documents import to_plain
from vtjobs.jobs.grid.image_folder import file_sha256
from vtjobs.jobs.run.settings import BackboneSettings, DistillParameters, Token, Weights
from vtjobs.jobs.run.spec import RunSpec
from vtjobs.jobs.values import changed
from vtjobs.workers.checkpoints.manifest import MODEL
from vtjobs.workers.errors import BackboneError
from vtjobs.workers.models.backbones import build
from vtjobs.workers.models.students import answer_by
from vtjobs.workers.training.distill import Distillation
from vtjobs.workers.training.trainee import Numerics

from ...support.training import (
    CPU,
    VIT,
    contents,
    differences,
    head_settings,
    make_backbone,
    newest,
    run_spec,
    training,
    weights_of,
)

DISTILLED = make_backbone(
    "deit_tiny_distilled_patch16_224",
    patch_size=8,
    embed_dim=16,
    depth=2,
    num_heads=2,
)
DRAW = torch.Generator().manual_seed(0)
IMAGES = torch.rand(6, 4, generator=DRAW)
STUDENT = torch.randn(6, 5, generator=DRAW)


class Linear(nn.Module):
    """A teacher whose answers are easily had."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 5)

    def forward(self, images: Tensor) -> Tensor:
        answer: Tensor = self.layer(images)
        return answer


def _params(**params: Any) -> DistillParameters:
    usual: dict[str, Any] = {"teacher": "stage", "weight": 0.5}
    found = head_settings("distill", **usual | params).distillation
    assert found is not None
    return found


def _loss(**params: Any) -> tuple[Tensor, Tensor]:
    """Return the loss and the teacher's probabilities, float64."""
    torch.manual_seed(1)
    teacher = Linear()
    numerics = Numerics(CPU, None, None)
    loss = Distillation(_params(**params), teacher, numerics)(IMAGES, STUDENT)
    return loss, teacher(IMAGES).detach().double()


@pytest.mark.paper("DE-08", "RM-06")
def test_hard_distillation_takes_the_teachers_decision_for_the_label() -> None:
    loss, taught = _loss(kind="hard")
    wanted = -STUDENT.double().softmax(1)[torch.arange(6), taught.argmax(1)].log().sum()
    torch.testing.assert_close(loss.double(), wanted)


@pytest.mark.paper("DE-08")
@pytest.mark.parametrize(("mean_over", "share"), [("images", 1), ("elements", 5)])
def test_soft_distillation_is_the_divergence_at_the_temperature(mean_over: str, share: int) -> None:
    loss, taught = _loss(kind="soft", temperature=3.0, mean_over=mean_over)
    p, q = (taught / 3).softmax(1), (STUDENT.double() / 3).softmax(1)
    torch.testing.assert_close(loss, (9 * (p * (p.log() - q.log())).sum() / share).float())


def _teacher_file(tmp_path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Return a teacher as a run has it, and where its weights lie."""
    spec = run_spec(seed=5)
    torch.manual_seed(5)
    save_file(
        build(spec.backbone, spec.shape).state_dict(),
        str(tmp_path / "teacher.safetensors"),
    )
    sha = f"sha256:{file_sha256(tmp_path / 'teacher.safetensors')}"
    teacher = changed(VIT, weights=Weights(fingerprint=sha))
    return to_plain(teacher), {sha: str(tmp_path / "teacher.safetensors")}


def _student(teacher: Any, backbone: BackboneSettings = VIT, **params: Any) -> RunSpec:
    return run_spec(backbone, "distill", params={"teacher": teacher, "weight": 0.5, **params})


@pytest.mark.paper("CA-11", "RM-06")
def test_labels_and_teacher_share_the_loss_by_its_weight(tmp_path: Path) -> None:
    teacher, paths = _teacher_file(tmp_path)
    one = training(_student(teacher, weight=0.25), tmp_path, paths=paths)
    one._one_step()
    sums = {name: float(value) for name, value in one.sums.values.items()}
    assert sums["loss"] == pytest.approx(0.75 * sums["cross_entropy"] + 0.25 * sums["distillation"])
    assert sums["distillation"] > 0


def test_the_teacher_is_neither_trained_nor_saved(tmp_path: Path) -> None:
    teacher, paths = _teacher_file(tmp_path)
    one = training(_student(teacher), tmp_path, paths=paths)
    assert one.objective._distillation is not None
    model = one.objective._distillation.teacher
    before = {name: value.clone() for name, value in model.state_dict().items()}
    one.run()
    assert not model.training
    assert not differences(before, dict(model.state_dict()))
    # The checkpoint holds a plain student.
    place = newest(tmp_path, one.spec.run_id)
    assert place is not None
    build(one.spec.backbone, one.spec.shape).load_state_dict(contents(place)[MODEL])


@pytest.mark.paper("DE-09")
@pytest.mark.parametrize("image_size", [16, 32])
def test_the_teacher_sees_the_very_images_of_its_student_mixed_and_at_its_size(
    tmp_path: Path, image_size: int
) -> None:
    teacher, paths = _teacher_file(tmp_path)
    spec = _student(teacher)
    recipe = changed(spec.recipe, epochs=1, mixup=0.8, erasing=0.5, image_size=image_size)
    one = training(changed(spec, recipe=recipe), tmp_path / str(image_size), paths=paths)
    seen: dict[str, list[Tensor]] = {"student": [], "teacher": []}
    assert one.objective._distillation is not None
    # The module that gets the images first.
    models = {
        "student": one.trainee.backbone.patch_embed,
        "teacher": one.objective._distillation.teacher,
    }
    for name, model in models.items():

        def note(module: nn.Module, inputs: tuple[Tensor], name: str = name) -> None:
            # The student is evaluated as well, where it is not in training.
            if module.training or name == "teacher":
                seen[name].append(inputs[0].clone())

        model.register_forward_pre_hook(note)
    assert one.run()
    assert len(seen["teacher"]) == len(seen["student"]) == one.total_steps
    for shown, taught in zip(seen["student"], seen["teacher"], strict=True):
        assert shown.shape[-1] == image_size and torch.equal(shown, taught)


def test_a_share_of_zero_trains_the_baseline_bit_for_bit(tmp_path: Path) -> None:
    ends = []
    for number, spec in enumerate((run_spec(), _student("stage", weight=0.0))):
        one = training(spec, tmp_path / str(number))
        one.run()
        ends.append(weights_of(one.trainee.backbone))
    assert not differences(*ends)


def test_a_share_of_zero_leaves_a_distillation_token_as_timm_trains_it(tmp_path: Path) -> None:
    one = training(_student("stage", DISTILLED, weight=0.0), tmp_path)
    assert not isinstance(one.trainee.backbone.train()(torch.rand(2, 1, 16, 16)), tuple)
    assert one.run()


def test_a_head_of_the_labs_own_with_a_teacher_is_no_student() -> None:
    spec = changed(_student("stage"), init_from="0" * 16)
    assert spec.learns_from_parent
    assert not changed(
        spec, head=changed(spec.head, source="class distill: ...")
    ).learns_from_parent
    assert not changed(spec, head=changed(spec.head, name="other")).learns_from_parent


@pytest.mark.paper("DE-09")
@pytest.mark.parametrize("classifier", ["linear", "mlp"])
def test_a_student_takes_its_teacher_and_not_its_start_from_the_earlier_stage(
    tmp_path: Path, classifier: str
) -> None:
    teacher = run_spec(seed=3, classifier=classifier)
    before = training(teacher, tmp_path / "teacher")
    before.run()
    init = max((tmp_path / "teacher").glob("step-*")) / "model.safetensors"
    student = changed(_student("stage"), init_from=teacher.run_id)
    one = training(student, tmp_path / "student", init=init, parent=teacher)
    fresh = training(run_spec(), tmp_path / "fresh")
    assert not differences(one.trainee.backbone.state_dict(), fresh.trainee.backbone.state_dict())
    assert one.objective._distillation is not None
    taught = dict(one.objective._distillation.teacher.state_dict())
    assert not differences(taught, weights_of(before.trainee.backbone))


@pytest.mark.paper("DE-07")
@pytest.mark.parametrize("fusion", ["softmax", "logits"])
def test_a_distillation_token_learns_from_the_teacher_and_is_joined_at_test_time(
    tmp_path: Path, fusion: str
) -> None:
    teacher, paths = _teacher_file(tmp_path)
    one = training(_student(teacher, DISTILLED, fusion=fusion, weight=0.5), tmp_path, paths=paths)
    model: Any = one.trainee.backbone
    images = torch.rand(3, 1, 16, 16)
    model.train()
    own, to_teacher = model(images)
    model.eval()
    with torch.no_grad():
        joined = model(images)
        tokens = model.forward_features(images)
        own, to_teacher = model.head(tokens[:, 0]), model.head_dist(tokens[:, 1])
    wanted = (
        (own + to_teacher) / 2
        if fusion == "logits"
        else ((own.softmax(1) + to_teacher.softmax(1)) / 2).log()
    )
    torch.testing.assert_close(joined, wanted)
    assert one.run()


@pytest.mark.paper("DE-07")
def test_each_of_the_two_tokens_may_answer_alone(tmp_path: Path) -> None:
    teacher, paths = _teacher_file(tmp_path)
    one = training(_student(teacher, DISTILLED, weight=0.5), tmp_path, paths=paths)
    model: Any = one.trainee.backbone.eval()
    images = torch.rand(3, 1, 16, 16)
    tokens = model.forward_features(images)
    wanted: dict[Token, Tensor] = {
        "class": model.head(tokens[:, 0]), "distillation": model.head_dist(tokens[:, 1])
    }  # fmt: skip
    for token, logits in wanted.items():
        answer_by(model, token)
        assert torch.equal(model(images), logits)


def test_a_model_with_one_token_cannot_answer_by_another(tmp_path: Path) -> None:
    model = build(VIT, run_spec(VIT).shape)
    with pytest.raises(BackboneError, match="VisionTransformer has no distillation token"):
        answer_by(model, "distillation")


def test_only_the_token_of_the_teacher_gets_its_gradient(tmp_path: Path) -> None:
    teacher, paths = _teacher_file(tmp_path)
    one = training(_student(teacher, DISTILLED, weight=1.0), tmp_path, paths=paths)
    model: Any = one.trainee.backbone
    total, _ = one.objective(
        IMAGES_OF_DIGITS, model.train()(IMAGES_OF_DIGITS), torch.zeros(4).long(), None, 1.0
    )
    total.backward()
    assert float(model.head_dist.weight.grad.abs().sum()) > 0
    assert float(model.head.weight.grad.abs().sum()) == 0


IMAGES_OF_DIGITS = torch.rand(4, 1, 16, 16, generator=DRAW)
