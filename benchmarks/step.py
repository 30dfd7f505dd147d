"""What a step of training costs beside the model, against a plain loop around the same model.

    python benchmarks/step.py [--rounds 5] [--epochs 1] [--threads 1]

The plain loop is what a script of timm's comes down to: a permutation, an index, normalising, the
loss, AdamW, a cosine schedule and clipped gradients. Ours adds the streams of randomness, the
shares of virtual ranks, sums by name, the vote to stop and the look at a loss that is not finite.
Both train whole epochs on the digits, in memory, in turn in one process, on a GPU where there is
one. With several virtual ranks the plain loop adds up as many gradients before a step.

Ratios are vtjobs' images a second over the plain loop's: 1 is as fast. On a CPU a second is one of
CPU time, so that other work on the machine counts less.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import timm
import torch
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler
from torch import Tensor, nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from vtjobs.jobs.grid import catalogue
from vtjobs.jobs.grid.heads import HEADS
from vtjobs.jobs.grid.recipe import Recipe
from vtjobs.jobs.run.settings import BackboneSettings, HeadSettings
from vtjobs.jobs.run.spec import RunSpec, seeds_of
from vtjobs.workers.environment import Origin
from vtjobs.workers.training.group import Group
from vtjobs.workers.training.loop import Training
from vtjobs.workers.training.plan import TrainingPlan

TARGET = 0.97
SIZE, BATCH, CLIP, LR = 32, 128, 5.0, 1e-3
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "ViT, 4 blocks of 64": (
        "vit_small_patch16_224",
        {"patch_size": 8, "embed_dim": 64, "depth": 4, "num_heads": 2},
    ),
    "ResNet, 4 blocks": (
        "resnet18",
        {"layers": [1, 1, 1, 1], "channels": [16, 32, 64, 64]},
    ),
}


def main() -> int:
    """Measure, print, and say by the exit status whether the target is met."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    where = torch.cuda.get_device_name() if device.type == "cuda" else f"CPU, {options.threads}"
    print(f"{where}; images a second")
    print(f"{'model':<22} {'virtual ranks':>13} {'vtjobs':>8} {'plain':>8} {'ratio':>6}")
    worst = 1e9
    for name, (model, arguments) in MODELS.items():
        for virtual_ranks in (1, 4):
            with tempfile.TemporaryDirectory(prefix="vtjobs-step-") as folder:
                training = ours(model, arguments, virtual_ranks, Path(folder), device)
                sides = {"vtjobs": by_vtjobs(training), "plain": by_hand(training, device)}
                worst = min(worst, compare(f"{name:<22} {virtual_ranks:>13}", sides, options))
    print(f"worst ratio {worst:.2f} (target >= {TARGET})")
    return 0 if worst >= TARGET else 1


def compare(title: str, sides: dict[str, Callable[[], int]], options: argparse.Namespace) -> float:
    """Run both sides in turn, print their medians, and return the median ratio."""
    for side in sides.values():
        side()
    clock = time.perf_counter if torch.cuda.is_available() else time.process_time
    rates: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(options.rounds):
        # The order alternates, so that neither side always meets the warmer caches.
        for name in sorted(sides, reverse=bool(number % 2)):
            began = clock()
            images = sum(sides[name]() for _ in range(options.epochs))
            rates[name].append(images / (clock() - began))
    ratios = [mine / plain for mine, plain in zip(*rates.values(), strict=True)]
    shown = [statistics.median(values) for values in rates.values()]
    ratio = statistics.median(ratios)
    print(f"{title} {shown[0]:>8.0f} {shown[1]:>8.0f} {ratio:>6.2f}", flush=True)
    return ratio


def ours(
    model: str, arguments: dict[str, Any], virtual_ranks: int, folder: Path, device: torch.device
) -> Training:
    """Return a training of the digits, alone in this process."""
    recipe = Recipe.model_validate(
        {
            "epochs": 100_000,
            "batch_size": BATCH,
            "virtual_ranks": virtual_ranks,
            "lr": LR,
            "drop_last": True,
            "image_size": SIZE,
            "clip_grad": CLIP,
            "warmup_epochs": 0,
            "interpolation": "bilinear",
        }
    ).settings
    params = HEADS["supervised"].model.model_validate({}).model_dump(mode="json")
    spec = RunSpec(
        backbone=BackboneSettings(model=model, args=arguments, weights=None),
        dataset=catalogue.dataset("digits"),
        head=HeadSettings(name="supervised", params=params),
        recipe=recipe,
        seeds=seeds_of(0),
        init_from=None,
    )
    origin = Origin(world_size=1, threads=1, device=device.type, software={})
    plan = TrainingPlan(
        run_id=spec.run_id, folder=folder, origin=origin, checkpoint_every_s=1e9, data_root=folder
    )
    group = Group(rank=0, world_size=1, device=device)
    return Training(spec, plan, group, report=lambda *_, **__: None, wants_stop=lambda: False)


def by_vtjobs(training: Training) -> Callable[[], int]:
    """Return what trains one epoch as vtjobs does."""

    def epoch() -> int:
        training.step = 0
        training._train_epoch()
        training.sums.clear()
        training.epoch += 1
        return training.order.steps * BATCH

    return epoch


def by_hand(training: Training, device: torch.device) -> Callable[[], int]:
    """Return what trains one epoch of the same model on the same images in a plain loop."""
    dataset, backbone = training.spec.dataset, training.spec.backbone
    model: nn.Module = timm.create_model(
        backbone.model,
        num_classes=dataset.classes,
        in_chans=dataset.channels,
        **({"img_size": SIZE} if backbone.model.startswith("vit") else {}),
        **backbone.args,
    ).to(device)
    images: Tensor = training.source.images  # type: ignore[attr-defined]
    labels: Tensor = training.source.labels  # type: ignore[attr-defined]
    mean, std = (
        torch.tensor(values, device=device).view(1, -1, 1, 1) * 255
        for values in (dataset.mean, dataset.std)
    )
    steps, parts = len(images) // BATCH, training.recipe.virtual_ranks
    optimizer = create_optimizer_v2(model, opt="adamw", lr=LR, weight_decay=0.05)
    schedule = CosineLRScheduler(optimizer, t_initial=100_000 * steps, t_in_epochs=False)
    done = 0

    def epoch() -> int:
        nonlocal done
        model.train()
        order = torch.randperm(len(images)).to(device)
        total = torch.zeros((), device=device)
        for step in range(steps):
            chosen = order[step * BATCH : (step + 1) * BATCH]
            optimizer.zero_grad()
            for part in chosen.chunk(parts):
                shown = (images[part].float() - mean) / std
                loss = F.cross_entropy(model(shown), labels[part]) / parts
                loss.backward()
                total += loss.detach()
            nn.utils.clip_grad_norm_(model.parameters(), CLIP)
            optimizer.step()
            done += 1
            schedule.step_update(done)
        # As ours: the epoch's loss is looked at, which waits for the device.
        assert torch.isfinite(total)
        return steps * BATCH

    return epoch


if __name__ == "__main__":
    sys.exit(main())
