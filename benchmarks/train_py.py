"""Whole epochs of vtjobs against those of timm's `train.py`, program against program, on the CPU.

    python benchmarks/train_py.py --train-py FILE [--rounds 5] [--images 960] [--more 2]

`train.py` is a script of timm's repository, and no part of its package: fetch the one of the
version that is installed. Both train the same small ViT on the same JPEG files, with the recipe of
DeiT at equal settings: the crop, RandAugment, random erasing, Mixup and CutMix, label smoothing,
AdamW with a cosine schedule, and loader workers on all cores. After each epoch both score the test
images and save.

Each side runs with one epoch and with some more. The difference is what the further epochs took,
so that start-up does not count. It is taken in CPU time of all processes, which other work on the
machine changes least, and in wall time. Ratios are images a second of vtjobs over those of
`train.py`: 1 is as fast.

vtjobs trains with `pipeline: pil`, which does what timm's loader does. What `hybrid` leaves to a
GPU would be done by the trainer's one thread here.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.warm import allocate, serve
from vtjobs.jobs.config.config import load_config
from vtjobs.orchestrator.loop.context import open_context
from vtjobs.orchestrator.requests.submit import prepare, submit

TARGET = 0.97
CLASSES, SIZE, BATCH, LR = 4, 224, 64, 1e-3
SHAPE = {"patch_size": 16, "embed_dim": 64, "depth": 4, "num_heads": 2}
GRID = """\
name: epochs
backbones:
  - vit_small_patch16_224: {shape}
datasets: [{images}]
heads: [supervised]
seeds: 1
recipe: deit
train:
  {{epochs: {epochs}, warmup_epochs: 0, batch_size: {batch}, virtual_ranks: 1, lr: {lr},
    image_size: {size}, repeats: 1, drop_path: 0, ema_decay: null, precision: fp32,
    pipeline: pil}}
resources: {{gpus_per_node: 0}}
"""
TIMM = {
    "model": "vit_small_patch16_224",
    "input-size": ["3", str(SIZE), str(SIZE)],
    "num-classes": str(CLASSES),
    "batch-size": str(BATCH),
    "validation-batch-size": "256",
    "train-split": "train",
    "val-split": "test",
    "opt": "adamw",
    "weight-decay": "0.05",
    "lr": str(LR),
    "sched": "cosine",
    "warmup-epochs": "0",
    "min-lr": "1e-5",
    "aa": "rand-m9-mstd0.5-inc1",
    "reprob": "0.25",
    "remode": "pixel",
    "mixup": "0.8",
    "cutmix": "1.0",
    "smoothing": "0.1",
    "train-interpolation": "bicubic",
    "crop-pct": "0.875",
    "device": "cpu",
    "cooldown-epochs": "0",
    "model-kwargs": [f"{key}={value}" for key, value in SHAPE.items()],
}


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a program took, seconds."""

    cpu_s: float
    wall_s: float

    def __sub__(self, other: "Cost") -> "Cost":
        return Cost(cpu_s=self.cpu_s - other.cpu_s, wall_s=self.wall_s - other.wall_s)


def write_images(root: Path, train: int, test: int) -> None:
    """Write smooth JPEG files of 500 x 375 pixels, as many of each class."""
    draw = numpy.random.default_rng(0)
    for split, count in (("train", train), ("test", test)):
        for number in range(count):
            folder = root / split / f"class-{number % CLASSES}"
            folder.mkdir(parents=True, exist_ok=True)
            small = Image.fromarray(draw.integers(0, 256, (24, 32, 3), dtype=numpy.uint8))
            whole = small.resize((500, 375), Image.Resampling.BICUBIC)
            whole.save(folder / f"{number:05d}.jpg", quality=90)


def cost_of(work: Callable[[], None]) -> Cost:
    """Return what work took, in this process and in those that it started."""
    whose = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)

    def cpu_s() -> float:
        return sum(sum(resource.getrusage(who)[:2]) for who in whose)

    cpu, wall = cpu_s(), time.monotonic()
    work()
    return Cost(cpu_s=cpu_s() - cpu, wall_s=time.monotonic() - wall)


def by_timm(program: Path, images: Path, folder: Path, epochs: int) -> Cost:
    """Train with `train.py`."""
    options: list[str] = []
    for name, value in TIMM.items():
        options += [f"--{name}", *([value] if isinstance(value, str) else value)]
    command = [sys.executable, str(program), "--data-dir", str(images), *options]
    command += ["--epochs", str(epochs), "--workers", str(cores()), "--output", str(folder)]

    def train() -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        if done.returncode:
            raise RuntimeError(f"train.py ended with {done.returncode}: {done.stderr[-3000:]}")

    return cost_of(train)


def by_vtjobs(images: Path, folder: Path, epochs: int) -> Cost:
    """Train with an agent of vtjobs, in a workspace of its own."""
    config = load_config({"workspace": str(folder / "runs")}, folder=folder)
    context = open_context(config, create=True)
    path = folder / "grid.yaml"
    told = {"epochs": epochs, "batch": BATCH, "lr": LR, "size": SIZE}
    path.write_text(GRID.format(images=images, shape=SHAPE, **told))
    prepared = prepare(context.config, str(path), changes={}, max_runs=1, at=time.time())
    submit(context, prepared)
    frozen = prepared.frozen
    allocation = allocate(
        context, frozen.grid_id, [frozen.runs[0][0]], gpus=0, paths=frozen.settings.paths
    )
    cost = cost_of(lambda: serve(context, allocation, 0))
    context.ledger.engine.dispose()
    return cost


def cores() -> int:
    """Return how many processes may work at a time."""
    return len(os.sched_getaffinity(0))


def further(side: Callable[[Path, int], Cost], more: int) -> Cost:
    """Return what epochs after the first one took."""
    found = []
    for epochs in (1, 1 + more):
        with tempfile.TemporaryDirectory(prefix="vtjobs-epochs-") as folder:
            found.append(side(Path(folder), epochs))
    return found[1] - found[0]


def main() -> int:
    """Measure, print, and say by the exit status whether the target is met."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--train-py", type=Path, required=True, metavar="FILE")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--images", type=int, default=960)
    parser.add_argument("--more", type=int, default=2)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="vtjobs-images-") as folder:
        images = Path(folder)
        write_images(images, given.images, 128)
        sides: dict[str, Callable[[Path, int], Cost]] = {
            "train.py": lambda place, epochs: by_timm(given.train_py, images, place, epochs),
            "vtjobs": lambda place, epochs: by_vtjobs(images, place, epochs),
        }
        taken: dict[str, list[Cost]] = {name: [] for name in sides}
        for _ in range(given.rounds):
            for name, side in sides.items():
                taken[name].append(further(side, given.more))
    shown = given.images * given.more
    print(f"{'side':<9} {'CPU ms/image':>12} {'ratio':>7} {'images/s':>9} {'ratio':>7}")
    worst = 1e9
    for name, costs in taken.items():
        pairs = list(zip(taken["train.py"], costs, strict=True))
        cpu = statistics.median(theirs.cpu_s / ours.cpu_s for theirs, ours in pairs)
        wall = statistics.median(theirs.wall_s / ours.wall_s for theirs, ours in pairs)
        each = 1e3 * statistics.median(cost.cpu_s for cost in costs) / shown
        rate = shown / statistics.median(cost.wall_s for cost in costs)
        worst = min(worst, cpu, wall)
        print(f"{name:<9} {each:>12.2f} {cpu:>7.2f} {rate:>9.1f} {wall:>7.2f}")
    print(f"target >= {TARGET}")
    return 0 if worst >= TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
