"""Exported weights load where others expect them: in timm, and in torchvision's detectors."""

import json
import shutil
import subprocess
import sys
import time
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torchvision.models import resnet50
from torchvision.models.detection import MaskRCNN
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.backbone_utils import BackboneWithFPN
from torchvision.ops import FeaturePyramidNetwork
from torchvision.ops.feature_pyramid_network import LastLevelMaxPool

from vtjobs.jobs.documents import from_plain
from vtjobs.jobs.errors import BadInput
from vtjobs.jobs.run.card_facts import CardFacts
from vtjobs.jobs.run.settings import BackboneSettings
from vtjobs.jobs.run.spec import RunSpec
from vtjobs.jobs.workspace.journal import JournalWriter
from vtjobs.jobs.workspace.paths import Workspace
from vtjobs.workers.checkpoints.final_weights import NoWeights, final_of
from vtjobs.workers.tools.export import export

from ...support.training import VIT, make_backbone, run_spec, training

RESNET = make_backbone("resnet50")
SWIN = make_backbone(
    "swin_tiny_patch4_window7_224",
    patch_size=2,
    embed_dim=24,
    depths=[1, 1, 1, 1],
    num_heads=[1, 2, 4, 8],
    window_size=4,
)
FACTS = from_plain(
    {
        "grid_id": "tiny-12345678",
        "labels": {"backbone": "net", "dataset": "digits", "head": "drloc", "recipe": "quickstart"},
        "results": [{"set_name": "test", "metric": "top1", "last": 91.234}],
        "cell": {"n": 3, "mean": 90.5, "std": 1.25, "metric": "top1"},
    },
    CardFacts,
)


def _finished(root: Path, spec: RunSpec) -> tuple[Workspace, str]:
    """A workspace with one completed run."""
    workspace = Workspace(root / "runs").create()
    folder = workspace.run(spec.run_id)
    folder.attempt(1).mkdir(parents=True)
    folder.spec.write_text(spec.canonical())
    journal = JournalWriter(folder.journal(1, 0))
    journal.write("start", at=time.time(), attempt=1, resumed_attempt=None, resumed_step=None)
    assert training(spec, folder.checkpoints(1)).run()
    journal.write("end", at=time.time(), state="completed")
    journal.close()
    return workspace, spec.run_id


@pytest.mark.paper("DR-12")
def test_a_timm_folder_loads_by_its_name_and_by_the_cards_own_lines(tmp_path: Path) -> None:
    workspace, run_id = _finished(tmp_path, run_spec(VIT, "drloc", epochs=1))
    out = tmp_path / "out"
    export(workspace, run_id, out, "timm", facts=FACTS)
    assert sorted(path.name for path in out.iterdir()) == [
        "README.md",
        "config.json",
        "model.safetensors",
    ]
    trained = load_file(str(final_of(workspace, run_id).weights))
    model = timm.create_model(f"local-dir:{out}", pretrained=True)
    assert all(torch.equal(value, trained[name]) for name, value in model.state_dict().items())
    assert model.pretrained_cfg["mean"] == [0.305] and model.num_classes == 10
    text = (out / "README.md").read_text()
    code = (
        text.split("```python\n")[1]
        .split("```")[0]
        .replace("model.safetensors", str(out / "model.safetensors"))
    )
    found: dict[str, Any] = {}
    exec(code, found)
    assert torch.equal(found["model"].state_dict()["norm.weight"], trained["norm.weight"])


@pytest.mark.paper("GR-04")
def test_a_projector_is_left_out_of_the_exported_weights(tmp_path: Path) -> None:
    spec = run_spec(VIT, "grafit", params={"views": 2}, epochs=1)
    workspace, run_id = _finished(tmp_path, spec)
    export(workspace, run_id, tmp_path / "out", "timm", facts=FACTS)
    trained = load_file(str(final_of(workspace, run_id).weights))
    model = timm.create_model(f"local-dir:{tmp_path / 'out'}", pretrained=True)
    assert model.num_classes == 0
    assert trained.keys() - model.state_dict().keys() == {
        f"head.grafit_projector.{layer}"
        for layer in (
            "0.weight",
            "0.bias",
            *(f"1.{name}" for name in ("weight", "bias", "running_mean", "running_var")),
            "1.num_batches_tracked",
            "3.weight",
            "3.bias",
        )
    }
    assert all(torch.equal(value, trained[name]) for name, value in model.state_dict().items())
    assert "its projector" in (tmp_path / "out" / "README.md").read_text()


@pytest.mark.training
def test_a_larger_classifier_is_loaded_by_the_cards_lines_and_not_by_timm(tmp_path: Path) -> None:
    workspace, run_id = _finished(tmp_path, run_spec(VIT, epochs=1, classifier="mlp"))
    with pytest.raises(BadInput, match="Set --format safetensors"):
        export(workspace, run_id, tmp_path / "timm", "timm", facts=FACTS)
    out = tmp_path / "out"
    export(workspace, run_id, out, "safetensors", facts=FACTS)
    code = (out / "README.md").read_text().split("```python\n")[1].split("```")[0]
    found: dict[str, Any] = {}
    exec(code.replace("model.safetensors", str(out / "model.safetensors")), found)
    trained = load_file(str(final_of(workspace, run_id).weights))
    state = found["model"].state_dict()
    assert state.keys() == trained.keys()
    assert all(torch.equal(value, trained[name]) for name, value in state.items())


TINY_NET = (Path(__file__).parents[3] / "docs" / "examples" / "tiny_net.py").read_text()


@pytest.mark.parametrize(
    "backbone",
    [
        make_backbone("resmlp_s12", patch_size=8, embed_dim=16, num_blocks=1),
        BackboneSettings(args={"width": 16}, model="tiny_net", weights=None, source=TINY_NET),
    ],
    ids=["of vtjobs", "of the lab"],
)
@pytest.mark.training
def test_the_cards_lines_load_a_model_that_timm_does_not_have(
    tmp_path: Path, backbone: BackboneSettings
) -> None:
    workspace, run_id = _finished(tmp_path, run_spec(backbone, epochs=1))
    out = tmp_path / "out"
    export(workspace, run_id, out, "timm", facts=FACTS)
    code = (out / "README.md").read_text().split("```python\n")[1].split("```")[0]
    # Only a process that has imported nothing of vtjobs shows what the lines themselves bring.
    done = subprocess.run(
        [sys.executable, "-c", code + "print(sum(w.sum() for w in model.parameters()).item())"],
        cwd=out,
        capture_output=True,
        text=True,
        check=True,
    )
    trained = load_file(str(final_of(workspace, run_id).weights))
    assert float(done.stdout) == pytest.approx(sum(float(w.sum()) for w in trained.values()), 1e-4)


MAPPED = {
    "cvt": (
        make_backbone("cvt_13", depths=[1, 1, 2]),
        64,
    ),
    "resmlp": (make_backbone("resmlp_s12", patch_size=8, embed_dim=16, num_blocks=2), 32),
    "of the lab": (
        BackboneSettings(args={"width": 16}, model="tiny_net", weights=None, source=TINY_NET),
        32,
    ),
}


@pytest.mark.parametrize("name", MAPPED)
@pytest.mark.training
def test_a_model_without_feature_maps_in_timm_trains_a_mask_rcnn_by_the_cards_lines(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    backbone, size = MAPPED[name]
    workspace, run_id = _finished(tmp_path, run_spec(backbone, epochs=1, image_size=size))
    out = tmp_path / "out"
    export(workspace, run_id, out, "torchvision-backbone", facts=FACTS)
    config = json.loads((out / "config.json").read_text())
    code = (out / "README.md").read_text().split("```python\n")[1].split("```")[0]
    monkeypatch.chdir(out)
    monkeypatch.syspath_prepend(str(out))
    found: dict[str, Any] = {}
    exec(code, found)
    model = found["model"]
    trained = load_file(str(final_of(workspace, run_id).weights))
    assert all(torch.equal(value, trained[key]) for key, value in model.model.state_dict().items())
    maps = model(torch.zeros(2, 1, size, size))
    assert [one.shape[1] for one in maps] == model.channels == config["features_only"]["channels"]
    assert [size // one.shape[2] for one in maps] == config["features_only"]["reduction"]
    _detect(Maps(model, model.channels), size, maps=len(maps))


@pytest.mark.paper("DR-12")
def test_the_card_says_which_run_this_is_and_that_it_is_one_of_several_seeds(
    tmp_path: Path,
) -> None:
    workspace, run_id = _finished(tmp_path, run_spec(VIT, "drloc", epochs=1, seed=2))
    export(workspace, run_id, tmp_path / "out", "safetensors", facts=FACTS)
    card = (tmp_path / "out" / "README.md").read_text()
    for words in (
        run_id,
        "seed 2",
        "fidelity paper",
        "91.23",
        "One of 3 seeds; top1 90.50 ± 1.25",
        "not selected by a score",
    ):
        assert words in card, words
    assert not any(
        "locate" in name for name in load_file(str(tmp_path / "out" / "model.safetensors"))
    )


def test_weights_trained_without_labels_have_no_classifier(tmp_path: Path) -> None:
    params = {"labels": False, "positions": False}
    workspace, run_id = _finished(tmp_path, run_spec(VIT, "relvit", epochs=1, params=params))
    export(workspace, run_id, tmp_path / "out", "timm", facts=FACTS)
    model = timm.create_model(f"local-dir:{tmp_path / 'out'}", pretrained=True)
    assert model.pos_embed is None and isinstance(model.head, nn.Identity)


class Maps(nn.Module):
    """Feature maps of grey pictures as a detector's backbone.

    Names in order, channels first.
    """

    def __init__(self, model: Any, channels: list[int]) -> None:
        super().__init__()
        self.grey, self.model = nn.Conv2d(3, 1, 1), model
        self.channels, self.out_channels = channels, 32
        self.fpn = FeaturePyramidNetwork(self.channels, self.out_channels, LastLevelMaxPool())

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        maps = zip(self.model(self.grey(images)), self.channels, strict=True)
        first = [one if one.shape[1] == count else one.permute(0, 3, 1, 2) for one, count in maps]
        found: dict[str, Tensor] = self.fpn(
            OrderedDict((str(place), one) for place, one in enumerate(first))
        )
        return found


def _detect(backbone: nn.Module, size: int, *, maps: int = 4) -> None:
    """Run one training step of Mask R-CNN, and see the gradient reach the backbone."""
    # torchvision's own are for four maps and the pooled one.
    anchors = AnchorGenerator(((8,),) * (maps + 1), ((0.5, 1.0, 2.0),) * (maps + 1))
    detector = MaskRCNN(
        backbone, num_classes=3, min_size=size, max_size=size, rpn_anchor_generator=anchors
    ).train()
    mask = torch.zeros(1, size, size, dtype=torch.uint8)
    mask[:, 8:40, 8:40] = 1
    target = {
        "boxes": torch.tensor([[8.0, 8.0, 40.0, 40.0]]),
        "labels": torch.tensor([1]),
        "masks": mask,
    }
    losses = detector([torch.rand(3, size, size)], [target])
    total = torch.stack(list(losses.values())).sum()
    total.backward()
    assert torch.isfinite(total)
    assert any(
        one.grad is not None and bool(one.grad.abs().sum() > 0) for one in backbone.parameters()
    )


@pytest.mark.training
def test_a_resnet_becomes_the_backbone_of_torchvisions_mask_rcnn(tmp_path: Path) -> None:
    workspace, run_id = _finished(
        tmp_path, run_spec(RESNET, epochs=1, batch_size=899, image_size=32)
    )
    export(workspace, run_id, tmp_path / "out", "torchvision-backbone", facts=FACTS)
    weights = load_file(str(tmp_path / "out" / "model.safetensors"))
    body = resnet50(weights=None)
    # The digits are grey; a detector's pictures are not.
    weights["conv1.weight"] = weights["conv1.weight"].repeat(1, 3, 1, 1) / 3
    missing, unexpected = body.load_state_dict(weights, strict=False)
    assert (missing, unexpected) == (["fc.weight", "fc.bias"], [])
    layers = {f"layer{number}": str(number - 1) for number in range(1, 5)}
    backbone = BackboneWithFPN(body, layers, [256, 512, 1024, 2048], 32)
    _detect(backbone, 64)


@pytest.mark.paper("DR-58")
@pytest.mark.training
def test_a_transformers_feature_maps_train_a_mask_rcnn(tmp_path: Path) -> None:
    workspace, run_id = _finished(tmp_path, run_spec(SWIN, epochs=1, image_size=64))
    export(workspace, run_id, tmp_path / "out", "torchvision-backbone", facts=FACTS)
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["features_only"] == {"channels": [24, 48, 96, 192], "reduction": [2, 4, 8, 16]}
    model = timm.create_model(config["architecture"], features_only=True, **config["model_args"])
    model.load_state_dict(load_file(str(tmp_path / "out" / "model.safetensors")))
    _detect(Maps(model, model.feature_info.channels()), 64)


def test_what_is_there_is_not_overwritten_and_a_failure_leaves_nothing(tmp_path: Path) -> None:
    workspace, run_id = _finished(tmp_path, run_spec(VIT, epochs=1))
    out = tmp_path / "out"
    out.mkdir()
    with pytest.raises(BadInput, match="exists already"):
        export(workspace, run_id, out, "timm", facts=FACTS)
    out.rmdir()
    place = final_of(workspace, run_id).folder
    shutil.rmtree(place)
    with pytest.raises(NoWeights):
        export(workspace, run_id, out, "timm", facts=FACTS)
    assert not out.exists() and list(tmp_path.glob(".out*")) == []
