"""Finished weights are scored again without training, with the numbers of the training itself."""

import time
from pathlib import Path
from typing import Any, get_args

import pytest
import torch

from vtjobs.jobs.grid import catalogue
from vtjobs.jobs.run.settings import ModelShape, Token
from vtjobs.jobs.run.spec import RunSpec
from vtjobs.jobs.workspace.journal import JournalWriter, read_all
from vtjobs.jobs.workspace.paths import Workspace
from vtjobs.workers.checkpoints.manifest import MODEL
from vtjobs.workers.data.batches import EvalSource
from vtjobs.workers.data.decoded import Decoder
from vtjobs.workers.data.image_set import ImageSet
from vtjobs.workers.models.backbones import build
from vtjobs.workers.tools.neighbours import features_of
from vtjobs.workers.tools.score import NoWeights, score
from vtjobs.workers.tools.scorer import ByNeighbours, Counted
from vtjobs.workers.training.trainee import make_numerics

from ...support.tools import call_here
from ...support.training import CONVNET, make_backbone, run_spec, training


@pytest.fixture
def finished(tmp_path: Path) -> tuple[Workspace, RunSpec, dict[str, float]]:
    """A workspace with a completed run, and its last scores."""
    return complete(tmp_path, run_spec(CONVNET, "drloc", epochs=2, ema_decay=0.9))


def complete(root: Path, spec: RunSpec, **plan: Any) -> tuple[Workspace, RunSpec, dict[str, float]]:
    workspace = Workspace(root / "runs").create()
    folder = workspace.run(spec.run_id)
    folder.attempt(1).mkdir(parents=True)
    folder.spec.write_text(spec.canonical())
    journal = JournalWriter(folder.journal(1, 0))
    journal.write("start", at=time.time(), attempt=1, resumed_attempt=None, resumed_step=None)
    scores: dict[str, float] = {}

    def report(kind: str, **event: Any) -> None:
        if kind == "evaluation":
            scores.update(event["metrics"])

    assert training(spec, folder.checkpoints(1), report=report, **plan).run()
    journal.write("end", at=time.time(), state="completed")
    journal.close()
    return workspace, spec, scores


@pytest.mark.paper("GR-09")
def test_features_are_scored_by_arbitrary_halves_of_the_classes(
    finished: Any, tmp_path: Path
) -> None:
    workspace, spec, _ = finished
    found = score(workspace, spec.run_id, ["train"], data_root=tmp_path, paths={}, splits=3)
    scores = found["train"]
    assert scores["n"] == 899 and 0 <= scores["separability_std"] < 10
    # Ten classes of digits: a linear layer does better than to guess among twenty halves.
    assert 5 < scores["separability"] < 100 and 0 < scores["separability_conditioned"] < 100
    (path,) = workspace.run(spec.run_id).evaluations.glob("*.jsonl")
    (event,) = [event for event in read_all(path) if event["kind"] == "evaluation"]
    assert event["set"] == "train" and event["metrics"] == scores


@pytest.mark.paper("OR-04")
def test_the_scores_are_those_of_the_last_epoch(finished: Any, tmp_path: Path) -> None:
    workspace, spec, scores = finished
    found = score(workspace, spec.run_id, ["test", "train"], data_root=tmp_path, paths={})
    assert found["test"] == {
        name: value for name, value in scores.items() if not name.startswith("ema_")
    }
    assert (found["test"]["n"], found["train"]["n"]) == (898, 899)


def test_the_scores_are_journalled_with_the_step_that_they_belong_to(
    finished: Any, tmp_path: Path
) -> None:
    workspace, spec, _ = finished
    for _ in range(2):
        score(workspace, spec.run_id, ["test"], data_root=tmp_path, paths={})
    journals = sorted(workspace.run(spec.run_id).evaluations.iterdir())
    assert len(journals) == 2 and all(path.name.startswith("0001-") for path in journals)
    for path in journals:
        (event,) = read_all(path)
        assert (event["kind"], event["set"], event["epoch"], event["step"]) == (
            "evaluation",
            "test",
            2,
            8,
        )
        assert event["metrics"]["n"] == 898


def test_a_run_that_has_not_completed_is_not_scored(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path).create()
    with pytest.raises(NoWeights, match="has not completed"):
        score(workspace, "a" * 16, ["test"], data_root=tmp_path, paths={})


def test_damaged_weights_are_not_scored(finished: Any, tmp_path: Path) -> None:
    workspace, spec, _ = finished
    victim = next(workspace.run(spec.run_id).checkpoints(1).glob(f"step-*/{MODEL}"))
    data = bytearray(victim.read_bytes())
    data[-1] ^= 1
    victim.write_bytes(data)
    with pytest.raises(NoWeights, match="checksum mismatch"):
        score(workspace, spec.run_id, ["test"], data_root=tmp_path, paths={})
    assert not workspace.run(spec.run_id).evaluations.exists()


def test_one_run_that_cannot_be_scored_does_not_keep_the_others_from_it(
    finished: Any, tmp_path: Path
) -> None:
    workspace, spec, scores = finished
    words = ["--workspace", str(workspace.root), "--data", str(tmp_path), "--sets", "test"]
    done = call_here("score", *words, "f" * 16, spec.run_id)
    assert done.returncode == 1
    assert f"error: run {'f' * 16} has not completed" in done.stderr
    assert (
        done.stdout
        == f"{spec.run_id} test: top1 {scores['top1']:.2f}  loss {scores['loss']:.4f}  n 898\n"
    )


@pytest.mark.paper("CA-14", "PC-09", "D3-14", "OR-04")
def test_another_size_and_crop_are_a_set_of_their_own_and_train_nothing(
    finished: Any, tmp_path: Path
) -> None:
    workspace, spec, scores = finished
    before = sorted(path for path in workspace.run(spec.run_id).path.rglob("*.safetensors"))
    found = score(
        workspace, spec.run_id, ["test"], data_root=tmp_path, paths={}, image_size=24, crop_pct=0.75
    )
    assert set(found) == {"test@24px-crop0.75"}
    assert found["test@24px-crop0.75"]["loss"] != scores["loss"]
    same = score(workspace, spec.run_id, ["test"], data_root=tmp_path, paths={}, crop_pct=1.0)
    assert same["test@crop1"]["loss"] == pytest.approx(scores["loss"], rel=1e-6)
    assert before == sorted(path for path in workspace.run(spec.run_id).path.rglob("*.safetensors"))


@pytest.mark.paper("DE-07")
def test_a_student_with_two_tokens_may_be_scored_by_one_of_them(tmp_path: Path) -> None:
    student = make_backbone(
        "deit_tiny_distilled_patch16_224", patch_size=8, embed_dim=16, depth=2, num_heads=2
    )
    workspace, spec, scores = complete(tmp_path, run_spec(student, epochs=1))
    found = {}
    for token in get_args(Token):
        found |= score(workspace, spec.run_id, ["test"], data_root=tmp_path, paths={}, token=token)
    assert set(found) == {"test@class-token", "test@distillation-token"}
    assert len({one["loss"] for one in (*found.values(), scores)}) == 3


@pytest.mark.paper("RM-05")
def test_features_are_scored_by_their_nearest_training_images(
    finished: Any, tmp_path: Path
) -> None:
    workspace, spec, _ = finished
    by_ten = ByNeighbours(counts=[10])
    found = score(workspace, spec.run_id, ["test"], data_root=tmp_path, paths={}, neighbours=by_ten)
    assert found.keys() == {"test"}
    assert found["test"].keys() == {"knn10", "map", "map_conditioned", "n"}
    assert found["test"]["n"] == 898 and found["test"]["knn10"] > 50, "digits look alike"


@pytest.mark.paper("GR-03")
def test_embeddings_of_a_projector_are_compared_and_neighbours_classify(tmp_path: Path) -> None:
    spec = run_spec(CONVNET, "grafit", params={"views": 2, "dim": 8}, epochs=2)
    workspace, _, scores = complete(tmp_path, spec)
    assert {"loss", "knn_loss", "instance_loss", "nearest_top1", "n"} == scores.keys()
    model = build(spec.backbone, spec.shape, spec.head).eval()
    assert model(torch.zeros(1, 1, 16, 16)).shape == (1, 8)
    by_ten = ByNeighbours(counts=[10])
    found = score(workspace, spec.run_id, ["test"], data_root=tmp_path, paths={}, neighbours=by_ten)
    assert found["test"].keys() == {"knn10", "map", "map_conditioned", "n"}
    with pytest.raises(NoWeights, match="has no classifier"):
        score(workspace, spec.run_id, ["test"], data_root=tmp_path, paths={})


@pytest.mark.paper("GR-12")
def test_neighbours_are_judged_by_the_classes_of_another_level(
    finished: Any, tmp_path: Path
) -> None:
    workspace, spec, _ = finished
    by_parity = ByNeighbours(counts=[10], labels="digits_parity")
    found = score(
        workspace, spec.run_id, ["test"], data_root=tmp_path, paths={}, neighbours=by_parity
    )
    assert found.keys() == {"test@digits_parity"}
    assert {"knn10", "map", "map_oracle"} <= found["test@digits_parity"].keys()
    (event,) = read_all(next(workspace.run(spec.run_id).evaluations.iterdir()))
    assert event["set"] == "test@digits_parity"


@pytest.mark.paper("GR-03")
@pytest.mark.parametrize(
    "backbone",
    [
        "resnet50",
        "swin_mini",
        "cvt_13",
        "t2t_vit_14",
        "resmlp_s12",
        "vit_mini",
        "deit_ti_distilled",
        "patchconvnet_s60",
    ],
)
def test_the_features_of_every_family_are_what_its_classifier_gets(backbone: str) -> None:
    torch.manual_seed(0)
    settings = catalogue.backbone(backbone)
    shape = ModelShape(classes=10, channels=3, image_size=32)
    model = build(settings, shape).eval()
    images = ImageSet(
        images=torch.randint(0, 256, (3, 3, 32, 32), dtype=torch.uint8), labels=torch.arange(3)
    )
    spec = run_spec(CONVNET, "supervised", precision="fp32", image_size=32)
    numerics = make_numerics(torch.device("cpu"), precision="fp32")
    found = features_of(
        model, images, images.labels, catalogue.dataset("cifar10"), spec.recipe,
        numerics=numerics, decoder=Decoder(), classifies=True,
    )  # fmt: skip
    assert len(found.embeddings) == 3 and found.logits is not None
    assert torch.allclose(found.embeddings.norm(dim=1), torch.ones(3))
    (batch,) = EvalSource(
        images, catalogue.dataset("cifar10"), spec.recipe, torch.device("cpu")
    ).batches()
    assert batch is not None
    assert torch.equal(found.logits, model(batch[0]))


def test_long_work_is_counted_on_stderr(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Counted, "EVERY_S", 3600.0)
    Counted("features of train", 50_000)(4096)
    assert capsys.readouterr().err == "", "short work says nothing"
    monkeypatch.setattr(Counted, "EVERY_S", 0.0)
    Counted("features of train", 50_000)(4096)
    assert capsys.readouterr().err == "features of train: 4,096 of 50,000 images\n"
