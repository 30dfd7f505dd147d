"""How long a run takes from its order to its first step and to its first scores.

    python benchmarks/first_step.py [--train 2560] [--test 10000] [--rounds 3]

A small model on pictures of CIFAR-100's form, brought to 224 pixels, on the CPU. Four ways, turn by
turn:

- float64: the test set is decoded before the first step, on one thread and with dense weights, as
  it was done before;
- first: the first run of a workspace, which has the set decoded beside its training;
- next: a later one, which maps what was decoded;
- warm: a later one in a process that has done a run.

Ratios are of wall time, to float64. What an allocation does once for all of its runs is not
counted: it imports torch and timm, and forks their processes.
"""

import argparse
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.startup import dense, of_cifar

WAYS = ("float64", "first", "next", "warm")
TARGET = 0.1
# Far more than the sets take.
LIMIT_BYTES = 1 << 40


def one_way(way: str, train: int, test: int, folder: Path, answer: Any) -> None:
    """Train one epoch, and send the seconds to the first step and to the scores."""
    import timm  # noqa: F401
    import torchvision  # noqa: F401

    from vtjobs.workers.data.ahead import Ahead
    from vtjobs.workers.data.decoded import Decoded
    from vtjobs.workers.training import inputs

    torch.set_num_threads(1)
    sets = {"train": of_cifar(train), "test": of_cifar(test)}
    inputs.load_part = lambda _, name, *__, **___: sets[name]  # type: ignore[assignment]
    if way == "float64":
        Ahead.decode = lambda _, images, fit: Decoded(  # type: ignore[method-assign,assignment]
            [dense(images, fit)], len(images)
        )
    if way == "warm":
        trained(folder / "before", folder / "kept")
    began = time.monotonic()
    reached = trained(folder / way, folder / "kept")
    answer.send([reached[mark] - began for mark in ("step", "scores")])


def trained(folder: Path, kept: Path) -> dict[str, float]:
    """Train a run of one epoch; return when it had done its first step, and when it had scores."""
    from vtjobs.jobs.grid import catalogue
    from vtjobs.jobs.grid.heads import HEADS
    from vtjobs.jobs.grid.recipe import Recipe
    from vtjobs.jobs.run.settings import BackboneSettings, HeadSettings
    from vtjobs.jobs.run.spec import RunSpec, seeds_of
    from vtjobs.workers.environment import Origin
    from vtjobs.workers.training.group import Group
    from vtjobs.workers.training.loop import Training
    from vtjobs.workers.training.plan import TrainingPlan

    fields = {"epochs": 1, "batch_size": 64, "lr": 1e-3, "warmup_epochs": 0, "image_size": 224}
    fields |= {"pipeline": "pil", "crop": "resized", "interpolation": "bicubic"}
    shape = {"patch_size": 32, "embed_dim": 32, "depth": 1, "num_heads": 2}
    params = HEADS["supervised"].model.model_validate({}).model_dump(mode="json")
    spec = RunSpec(
        backbone=BackboneSettings(model="vit_small_patch16_224", args=shape, weights=None),
        dataset=catalogue.dataset("cifar100"),
        head=HeadSettings(name="supervised", params=params),
        recipe=Recipe.model_validate(fields).settings,
        seeds=seeds_of(0),
        init_from=None,
    )
    cores = len(os.sched_getaffinity(0))
    folder.mkdir()
    plan = TrainingPlan(
        run_id=spec.run_id,
        folder=folder,
        origin=Origin(world_size=1, threads=1, device="cpu", software={}),
        data_root=folder,
        workers=cores,
        decoded=kept,
        decoded_bytes=LIMIT_BYTES,
        decoders=cores,
    )
    reached: dict[str, float] = {}

    def report(kind: str, **_: Any) -> None:
        if kind == "evaluation":
            reached["scores"] = time.monotonic()

    alone = Group(rank=0, world_size=1, device=torch.device("cpu"))
    training = Training(spec, plan, alone, report=report, wants_stop=lambda: False)
    step = training._one_step

    def one_step() -> None:
        step()
        reached.setdefault("step", time.monotonic())

    training._one_step = one_step  # type: ignore[method-assign]
    assert training.run()
    return reached


def measure(rounds: int, train: int, test: int) -> dict[str, list[list[float]]]:
    """Run all ways in turn, each in a process of its own."""
    spawn = multiprocessing.get_context("spawn")
    found: dict[str, list[list[float]]] = {way: [] for way in WAYS}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(prefix="vtjobs-first-step-") as folder:
            for way in WAYS:
                mine, theirs = spawn.Pipe()
                told = (way, train, test, Path(folder), theirs)
                process = spawn.Process(target=one_way, args=told)
                process.start()
                # So that its end is noticed.
                theirs.close()
                found[way].append(mine.recv())
                process.join()
    return found


def main() -> int:
    """Measure, print, and say by the exit status whether the target is met."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--train", type=int, default=2560)
    parser.add_argument("--test", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    taken = measure(options.rounds, options.train, options.test)
    print(f"{'way':<8} {'first step':>10} {'ratio':>7} {'scores':>8} {'ratio':>7}")
    middle = {
        way: [statistics.median(values) for values in zip(*rounds, strict=True)]
        for way, rounds in taken.items()
    }
    ratios = {
        way: [value / of for value, of in zip(middle[way], middle["float64"], strict=True)]
        for way in WAYS
    }
    for way, (step, scores) in middle.items():
        first, second = ratios[way]
        print(f"{way:<8} {step:>8.1f} s {first:>7.3f} {scores:>6.1f} s {second:>7.3f}")
    print(f"target for the first step: {TARGET}")
    return 0 if ratios["first"][0] <= TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
