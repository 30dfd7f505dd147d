"""Every family of backbones and every head, small enough for a test."""

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from vtjobs.jobs.documents import to_plain
from vtjobs.jobs.grid import catalogue
from vtjobs.jobs.grid.image_folder import file_sha256
from vtjobs.jobs.run.settings import Weights
from vtjobs.jobs.run.spec import RunSpec
from vtjobs.jobs.values import changed
from vtjobs.workers.models.backbones import build

from .training import VIT, head_settings, on_folder, run_spec

SMALL = {"embed_dim": 16, "depth": 2, "num_heads": 2}
# Short name -> what makes it small; the others are small enough at 32 pixels.
FAMILIES: dict[str, dict[str, Any]] = {
    "swin_t": {"embed_dim": 8, "depths": [1, 1, 1, 1], "num_heads": [1, 1, 2, 2], "patch_size": 2},
    "resnet50": {"layers": [1, 1, 1, 1], "channels": [8, 8, 8, 8], "output_stride": 16},
    "resnet50_attention": {
        "layers": [1, 1, 1, 1],
        "channels": [8, 8, 8, 8],
        "output_stride": 16,
    },
    "resnet18_cifar": {"layers": [1, 1, 1, 1], "channels": [8, 8, 8, 8]},
    "t2t_vit_14": SMALL,
    "cvt_13": {},
    "cvt_13_drloc": {},
    "vit_s16": SMALL,
    "deit_s": SMALL,
    "deit_s_late": SMALL,
    "deit_s_scaled": SMALL,
    "deit_s_distilled": SMALL,
    "cait_xxs24": SMALL,
    "resmlp_s12": {"embed_dim": 16, "num_blocks": 2},
    "deit3_b": SMALL,
    "deit3_h26x2": SMALL,
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


def teacher(tmp_path: Path, spec: RunSpec) -> tuple[dict[str, Any], str]:
    """Return a teacher as a run has it, and where its weights lie."""
    torch.manual_seed(0)
    path = tmp_path / "teacher.safetensors"
    save_file(build(VIT, spec.shape).state_dict(), str(path))
    weights = Weights(fingerprint=f"sha256:{file_sha256(path)}")
    return to_plain(changed(VIT, weights=weights)), str(path)


def suits(family: str, head: str) -> bool:
    """Whether a head can be trained beside a family.

    A distilled backbone has two classifiers, and no place for one projector.
    """
    name, params = HEADS[head]
    return not (name == "grafit" and family.endswith("distilled") and not params.get("labels"))


def family_spec(
    family: str, head: str, images: Path, folder: Path, **recipe: Any
) -> tuple[RunSpec, dict[str, str]]:
    """Describe a run of a family beside a head, and where its files lie.

    Args:
        family: one of `FAMILIES`.
        head: one of `HEADS`.
        images: a folder of images.
        folder: where a teacher's weights may be written.
        recipe: what it trains by.
    """
    name, params = HEADS[head]
    known = catalogue.backbone(family)
    backbone = changed(known, args=known.args | FAMILIES[family])
    spec = on_folder(run_spec(backbone, name, params=params, **recipe), images)
    paths = {spec.dataset.fingerprint: str(images)}
    if name == "distill":
        model, path = teacher(folder, spec)
        paths[model["weights"]["fingerprint"]] = path
        spec = changed(spec, head=head_settings(name, teacher=model, **params))
    return spec, paths
