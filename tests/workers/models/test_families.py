"""Every family of backbones beside every head takes an optimizer step on two ranks, with no
parameter unused.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from vtjobs.jobs.documents import changed, to_plain
from vtjobs.jobs.grid import catalogue, heads
from vtjobs.jobs.grid.image_folder import file_sha256
from vtjobs.jobs.run.settings import Weights
from vtjobs.jobs.run.spec import RunSpec
from vtjobs.workers.models.backbones import build

from ...support.ranks import Ranks
from ...support.training import VIT, head_settings, image_folder, on_folder, run_spec

SMALL = {"embed_dim": 16, "depth": 2, "num_heads": 2}
# Short name -> what makes it small; the others are small enough at 32 pixels.
FAMILIES: dict[str, dict[str, Any]] = {
    "swin_t": {"embed_dim": 8, "depths": [1, 1, 1, 1], "num_heads": [1, 1, 2, 2], "patch_size": 2},
    "resnet50": {"layers": [1, 1, 1, 1], "channels": [8, 8, 8, 8], "output_stride": 16},
    "resnet18_cifar": {"layers": [1, 1, 1, 1], "channels": [8, 8, 8, 8]},
    "t2t_vit_14": SMALL,
    "cvt_13": {},
    "cvt_13_drloc": {},
    "vit_s16": SMALL,
    "deit_s": SMALL,
    "deit_s_distilled": SMALL,
    "cait_xxs24": SMALL,
    "resmlp_s12": {"embed_dim": 16, "num_blocks": 2},
    "deit3_b": SMALL,
    "patchconvnet_s60": {"depth": 2},
}
TASKS = ["sprel", "dist", "ang", "abspos"]
HEADS: dict[str, tuple[str, dict[str, Any]]] = {
    "supervised": ("supervised", {}),
    "drloc": ("drloc", {"grid": 2}),
    "drloc at every block": ("drloc", {"grid": 2, "blocks": "all", "loss": "ce"}),
    "relvit": ("relvit", {"tasks": TASKS}),
    "relvit without labels": ("relvit", {"tasks": TASKS, "labels": False}),
    "grafit": ("grafit", {"views": 2, "dim": 16}),
    "grafit beside the classifier": (
        "grafit",
        {"losses": ["instance"], "labels": True, "projector": "none", "views": 2},
    ),
    "distill": ("distill", {"kind": "soft"}),
}


def _teacher(tmp_path: Path, spec: RunSpec) -> tuple[dict[str, Any], str]:
    """Return a teacher as a run has it, and where its weights lie."""
    torch.manual_seed(0)
    path = tmp_path / "teacher.safetensors"
    save_file(build(VIT, spec.shape).state_dict(), str(path))
    weights = Weights(fingerprint=f"sha256:{file_sha256(path)}")
    return to_plain(changed(VIT, weights=weights)), str(path)


def test_every_built_in_head_is_tried_beside_every_family() -> None:
    assert {name for name, _ in HEADS.values()} == heads.HEADS.keys()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.training
def test_a_family_trains_beside_every_head_on_two_ranks(
    ranks: Ranks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    root = image_folder(tmp_path / "images", train=2, test=1, size=(32, 32))
    known = catalogue.backbone(family)
    backbone = changed(known, args=known.args | FAMILIES[family])
    recipe = {
        "epochs": 1,
        "warmup_epochs": 0.0,
        "batch_size": 4,
        "virtual_ranks": 2,
        "image_size": 32,
    }
    for number, (name, params) in enumerate(HEADS.values()):
        if name == "grafit" and family.endswith("distilled") and not params.get("labels"):
            # It has two classifiers, and no place for one projector.
            continue
        spec = on_folder(run_spec(backbone, name, params=params, **recipe), root)
        paths = {spec.dataset.fingerprint: str(root)}
        if name == "distill":
            teacher, path = _teacher(tmp_path, spec)
            paths[teacher["weights"]["fingerprint"]] = path
            spec = changed(spec, head=head_settings(name, teacher=teacher, **params))
        ended = ranks.train(
            spec, tmp_path / str(number), world_size=2, paths=paths, checkpoint_every_s=1e9
        )
        assert ended.statuses == [0, 0], f"{family} beside {name}: {ended.text}"
        assert [event["kind"] for event in ended.events if event["kind"] == "evaluation"] == [
            "evaluation"
        ]
