"""Tiny runs for the tests of the numerics.

A spec from a few words, trained in this process or read from disk.
"""

from pathlib import Path
from typing import Any

import torch
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor, nn

from vtjobs.jobs.documents import from_plain
from vtjobs.jobs.grid import catalogue
from vtjobs.jobs.grid.heads import HEADS, preset
from vtjobs.jobs.grid.image_folder import describe_folder, describe_masks
from vtjobs.jobs.grid.object_folder import describe_objects
from vtjobs.jobs.grid.recipe import Recipe
from vtjobs.jobs.run.settings import BackboneSettings, DatasetSettings, HeadSettings
from vtjobs.jobs.run.spec import RunSpec, seeds_of
from vtjobs.jobs.values import changed
from vtjobs.workers.checkpoints.manifest import MODEL, STATE, Rejected, verify
from vtjobs.workers.environment import Origin
from vtjobs.workers.training.group import Group
from vtjobs.workers.training.loop import Training
from vtjobs.workers.training.plan import TrainingPlan
from vtjobs.workers.training.run_log import RunLog

torch.set_num_threads(1)

ORIGIN = Origin(world_size=1, threads=1, device="cpu", software={})
CPU = torch.device("cpu")
ALONE = Group(rank=0, world_size=1, device=CPU)


def make_backbone(model: str, **args: Any) -> BackboneSettings:
    """Return a backbone whose weights are drawn."""
    return BackboneSettings(model=model, args=args, weights=None)


VIT = make_backbone("vit_small_patch16_224", patch_size=8, embed_dim=16, depth=2, num_heads=2)
CONVNET = make_backbone("resnet18", layers=[1, 1, 1, 1], channels=[8, 8, 8, 8], output_stride=8)


def head_params(name: str, fidelity: str = "paper", **changes: Any) -> dict[str, Any]:
    """Return a head's parameters as a run has them."""
    usual: dict[str, Any] = {"drloc": {"weight": 0.5, "pairs": 8, "width": 16}}.get(name, {})
    values = HEADS[name].model.model_validate({**usual, **changes}).model_dump(mode="json")
    published = preset(name, fidelity, {}, values)  # type: ignore[arg-type]
    return values | {key: value for key, value in published.items() if values[key] is None}


def head_settings(name: str, fidelity: str = "paper", **changes: Any) -> HeadSettings:
    """Return a head as a run has it."""
    return HeadSettings(name=name, params=head_params(name, fidelity, **changes))


EVERYTHING = {
    "precision": "fp16", "dropout": 0.1, "drop_path": 0.2, "mixup": 0.8, "cutmix": 1.0, "ema_decay": 0.9,
    "ema_warmup": True, "label_smoothing": 0.1, "clip_grad": 5.0, "flip": 0.5, "erasing": 0.25, "weight_decay": 0.05,
}  # fmt: skip


def run_spec(
    backbone: BackboneSettings = VIT, head: str = "supervised", *, seed: int = 0, params: dict[str, Any] | None = None,
    **recipe: Any,
) -> RunSpec:  # fmt: skip
    """Describe a tiny run on the digits: four steps an epoch, the last one short."""
    fields = {
        "epochs": 2, "batch_size": 256, "lr": 1e-3, "warmup_epochs": 0.5, "image_size": 16, "interpolation": "bilinear",
        "crop": "pad", "crop_padding": 1, **recipe,
    }  # fmt: skip
    return RunSpec(
        backbone=backbone,
        dataset=catalogue.dataset("digits"),
        head=head_settings(head, **(params or {})),
        recipe=Recipe.model_validate(fields).settings,
        seeds=seeds_of(seed),
        init_from=None,
    )


def image_folder(
    root: Path, *, train: int, test: int, classes: int = 2, size: tuple[int, int] = (20, 16)
) -> Path:
    """Write `train` and `test` images for each class, of many sizes around `size`."""
    draw = torch.Generator().manual_seed(0)
    for split, count in (("train", train), ("test", test)):
        for label in range(classes):
            place = root / split / f"class-{label}"
            place.mkdir(parents=True)
            for index in range(count):
                pixels = torch.randint(
                    0, 256, (size[0] + index % 3, size[1] + index % 2, 3), generator=draw
                )
                Image.fromarray(pixels.to(torch.uint8).numpy()).save(place / f"{index}.png")
    return root


def on_folder(spec: RunSpec, root: Path) -> RunSpec:
    """Return the same run on an image folder; the plan's `paths` must name it."""
    facts = describe_folder(root) | {"mean": [0.5] * 3, "std": [0.25] * 3}
    dataset = from_plain(facts | {"name": "folder", "channels": 3}, DatasetSettings)
    return changed(spec, dataset=dataset)


MASKED = {
    "pipeline": "pil", "crop": "simple", "crop_padding": 0, "rescale": [0.5, 2.0], "color_jitter": 0.4, "flip": 0.5,
    "decoder_width": 16, "batch_size": 8, "virtual_ranks": 2, "schedule": "linear", "mixup": 0.0, "cutmix": 0.0,
    "label_smoothing": 0.0, "erasing": 0.0,
}  # fmt: skip


def on_masks(spec: RunSpec, root: Path) -> RunSpec:
    """Return the same run on a folder of images with masks; the plan's `paths` must name it."""
    facts = describe_masks(root) | {"mean": [0.5] * 3, "std": [0.25] * 3}
    given = {"name": "folder", "channels": 3, "task": "segmentation"}
    return changed(spec, dataset=from_plain(facts | given, DatasetSettings))


WITH_OBJECTS = {
    "pipeline": "pil", "crop": "none", "crop_padding": 0, "rescale": [0.7, 1.0], "color_jitter": 0.0, "flip": 0.5,
    "decoder_width": 16, "batch_size": 8, "virtual_ranks": 2, "schedule": "step", "decay_epochs": [1, 2], "mixup": 0.0,
    "cutmix": 0.0, "label_smoothing": 0.0, "erasing": 0.0, "image_size": 32,
}  # fmt: skip


def on_objects(spec: RunSpec, root: Path) -> RunSpec:
    """Return the same run on a folder of images with objects; the plan's `paths` must name it."""
    facts = describe_objects(root) | {"mean": [0.5] * 3, "std": [0.25] * 3}
    given = {"name": "folder", "channels": 3, "task": "detection"}
    return changed(spec, dataset=from_plain(facts | given, DatasetSettings))


def training(
    spec: RunSpec,
    folder: Path,
    *,
    report: Any = None,
    wants_stop: Any = None,
    log: RunLog | None = None,
    **plan: Any,
) -> Training:
    """Set up a run alone in this process."""
    plan = {"checkpoint_every_s": 1e9, "data_root": folder, **plan}
    return Training(
        spec,
        TrainingPlan(run_id=spec.run_id, folder=folder, origin=ORIGIN, **plan),
        ALONE,
        report=report or (lambda *_, **__: None),
        wants_stop=wants_stop or (lambda: False),
        log=log,
    )


def newest(folder: Path, run_id: str) -> Path | None:
    """Return the newest checkpoint that verifies."""
    for place in sorted(folder.glob("step-*"), reverse=True):
        try:
            verify(place, run_id=run_id)
        except Rejected:
            continue
        return place
    return None


def contents(place: Path) -> dict[str, Any]:
    """Read a checkpoint whole: weights, EMA and the rest of the state."""
    weights = {path.name: load_file(str(path)) for path in place.glob("*.safetensors")}
    assert MODEL in weights
    return weights | {STATE: torch.load(place / STATE, weights_only=True)}


def differences(one: Any, other: Any, where: str = "") -> list[str]:
    """Return the places where two nested values are not equal bit for bit."""
    if isinstance(one, Tensor):
        same = isinstance(other, Tensor) and one.dtype == other.dtype and torch.equal(one, other)
        return [] if same else [where]
    if isinstance(one, dict) and isinstance(other, dict):
        if one.keys() != other.keys():
            return [f"{where}: {sorted(map(str, one.keys() ^ other.keys()))}"]
        return [
            place for key in one for place in differences(one[key], other[key], f"{where}/{key}")
        ]
    if isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        return [place for index, (a, b) in pairs for place in differences(a, b, f"{where}/{index}")]
    return [] if one == other else [where]


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Return a copy of all parameters and buffers."""
    return {name: value.clone() for name, value in model.state_dict().items()}
