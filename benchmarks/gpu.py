"""All that has to be measured on a GPU, with one command that begins nothing after half an hour.

    python benchmarks/gpu.py [--small] [--only PART ...] [--minutes 30] [--json FILE]

Equality comes first: a number is worth nothing where a resumed run is not the uninterrupted one.

- *equality*: a run that is stopped and goes on from its checkpoint, against one that is not, with
  each precision that the device has: how many tensors of weights, optimizer and streams differ.
- *waits*: how often the steps of an epoch wait for the GPU, its end included, as far as torch's
  debug mode sees it.
- *speed*: images a second for each model, precision, and compiled or not; the ratio to a plain loop
  around the same model (see `step.py`), and peak memory.
- *loader*: images a second of vtjobs' loader over timm's (see `loader.py`), and how many a second
  the device finishes of `pipeline: hybrid`.
- *warm*: the time of several runs in one allocation over that of an allocation for each (see
  `warm.py`).

`--small` takes a tiny model and few rounds, so that a CPU can run it: its figures say nothing. What
fails, or would begin after `--minutes`, is named and left out. The exit status is 1 where resumed
runs differ, and 3 where something failed.
"""

import argparse
import dataclasses
import functools
import gc
import json
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import loader
import step
import warm
from startup import of_cifar
from step import Case

from vtjobs.workers.checkpoints.checkpoint import load
from vtjobs.workers.data.image_set import ImageSet

DIGITS = 1437
"""Training images of the digits, on which everything but the loader is measured."""
FULL = {
    "DeiT-Ti": Case(model="deit_tiny_patch16_224", size=224),
    "DeiT-S": Case(model="deit_small_patch16_224", size=224),
    "ResNet-50": Case(model="resnet50", size=224),
}
SMALL = {"ViT, 4 blocks of 64": step.MODELS["ViT, 4 blocks of 64"]}


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One measured number."""

    part: str
    what: str
    value: float
    unit: str


@dataclass(frozen=True, kw_only=True)
class Task:
    """What is measured at a time."""

    what: str
    measure: Callable[[], dict[str, float]]
    """Returns values by their units."""


@dataclass(frozen=True, kw_only=True)
class Bench:
    """What is measured, and on what."""

    device: torch.device
    small: bool

    @property
    def cases(self) -> dict[str, Case]:
        """The models."""
        return SMALL if self.small else FULL

    @property
    def precisions(self) -> list[str]:
        """Those that the device is made for."""
        if self.device.type == "cpu":
            return ["fp32", "bf16"]
        # V100 and older have no bfloat16, which torch would emulate.
        return ["fp32", "fp16", *(["bf16"] if torch.cuda.get_device_capability() >= (8, 0) else [])]


def equality(bench: Bench) -> Iterator[Task]:
    """Count what differs after a stop in the middle of the first epoch."""
    for (name, case), precision in product(bench.cases.items(), bench.precisions):
        asked = dataclasses.replace(
            case, precision=precision, deterministic=bench.device.type == "cuda", epochs=2
        )
        yield Task(
            what=f"{name}, {precision}",
            measure=functools.partial(stopped_and_whole, asked, bench.device),
        )


def stopped_and_whole(case: Case, device: torch.device) -> dict[str, float]:
    """Train a case with a stop and without, and count what differs."""
    with tempfile.TemporaryDirectory(prefix="vtjobs-gpu-") as folder:
        whole = ended(case, Path(folder) / "whole", device)
        first = stopped_after(case, DIGITS // case.batch // 2, Path(folder) / "first", device)
        second = ended(case, Path(folder) / "second", device, resume=first)
        return {"differing": differences(load(whole), load(second))}


def ended(case: Case, folder: Path, device: torch.device, **told: Any) -> Path:
    """Train to the end, and return the last checkpoint."""
    folder.mkdir()
    training = step.ours(case, folder, device, **told)
    assert training.run()
    return newest(folder)


def stopped_after(case: Case, steps: int, folder: Path, device: torch.device) -> Path:
    """Train so many steps, stop, and return the checkpoint of that step."""
    folder.mkdir()
    asked = 0

    def wants_stop() -> bool:
        nonlocal asked
        asked += 1
        return asked >= steps

    assert not step.ours(case, folder, device, wants_stop=wants_stop).run()
    return newest(folder)


def newest(folder: Path) -> Path:
    """Return the newest checkpoint of an attempt."""
    return max(folder.glob("step-*"))


def differences(one: Any, other: Any) -> int:
    """Count the values of two checkpoints that are not equal bit for bit."""
    if isinstance(one, torch.Tensor):
        return int(not torch.equal(one, other))
    if isinstance(one, dict):
        return len(one.keys() ^ other.keys()) + sum(
            differences(one[key], other[key]) for key in one.keys() & other.keys()
        )
    if isinstance(one, list | tuple):
        pairs = zip(one, other, strict=False)
        return abs(len(one) - len(other)) + sum(differences(a, b) for a, b in pairs)
    return int(one != other)


def waits(bench: Bench) -> Iterator[Task]:
    """Count how often the steps of an epoch wait for the GPU; on a CPU nothing does."""
    if bench.device.type == "cuda":
        for name, case in bench.cases.items():
            yield Task(what=name, measure=functools.partial(waits_of, case, bench.device))


def waits_of(case: Case, device: torch.device) -> dict[str, float]:
    """Count the operations of an epoch that wait for the GPU."""
    with tempfile.TemporaryDirectory(prefix="vtjobs-gpu-") as folder:
        training = step.ours(case, Path(folder), device)
        epoch = step.by_vtjobs(training)
        # The first one warms up.
        epoch()
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            try:
                epoch()
            finally:
                torch.cuda.set_sync_debug_mode("default")
    found = sum("called a synchronizing" in str(warning.message) for warning in seen)
    return {"/step": found / training.order.steps}


def speed(bench: Bench) -> Iterator[Task]:
    """Measure each model against a plain loop around it."""
    choices = product(bench.cases.items(), bench.precisions, (False, True))
    for (name, case), precision, is_compiled in choices:
        if bench.small and is_compiled:
            continue
        asked = dataclasses.replace(
            case,
            precision=precision,
            channels_last=bench.device.type == "cuda" and precision != "fp32",
            compile=is_compiled,
        )
        yield Task(
            what=f"{name}, {precision}{', compiled' if is_compiled else ''}",
            measure=functools.partial(speed_of, asked, bench),
        )


def speed_of(case: Case, bench: Bench) -> dict[str, float]:
    """Return images a second, their ratio to a plain loop's, and on a GPU peak memory."""
    with tempfile.TemporaryDirectory(prefix="vtjobs-gpu-") as folder:
        training = step.ours(case, Path(folder), bench.device)
        epoch = step.by_vtjobs(training)
        # The first one tries kernels out, and compiles.
        epoch()
        peak = {}
        if bench.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
            epoch()
            peak["MiB at most"] = torch.cuda.max_memory_allocated() / 2**20
        sides = {"vtjobs": epoch, "plain": step.by_hand(case, training)}
        rates = step.compare(sides, rounds=1 if bench.small else 5, epochs=1)
    return {"images/s": rates.ours, "x a plain loop": rates.ratio, **peak}


def loaders(bench: Bench) -> Iterator[Task]:
    """Measure the loader's worker against timm's."""

    def measure(pipeline: str) -> dict[str, float]:
        pictures = of_cifar(loader.BATCH if bench.small else 512)
        images = ImageSet(
            labels=pictures.labels.long(), images=pictures.images, reader=pictures.reader
        )
        pair = loader.core(images, pipeline)
        found = loader.ratio(pair, time.process_time, 1 if bench.small else 5)
        figures = {"x timm's": sorted(found)[len(found) // 2]}
        if pipeline == "hybrid":
            figures["finished images/s"] = loader.on_device(images, bench.device)
        return figures

    for pipeline in loader.RECIPES:
        yield Task(what=f"CIFAR's images, {pipeline}", measure=functools.partial(measure, pipeline))


def warmth(bench: Bench) -> Iterator[Task]:
    """Measure runs one after another in one allocation against one for each."""
    runs = 2 if bench.small else 5
    job = warm.SMALL if bench.small else warm.CIFAR_SHAPED
    job = dataclasses.replace(job, gpus=int(bench.device.type == "cuda"))

    def measure() -> dict[str, float]:
        together, apart = (warm.measure(runs, apart=apart, job=job) for apart in (False, True))
        return {"x one for each": together / apart}

    yield Task(what=f"{runs} runs in one allocation", measure=measure)


PARTS: dict[str, Callable[[Bench], Iterator[Task]]] = {
    "equality": equality,
    "waits": waits,
    "speed": speed,
    "loader": loaders,
    "warm": warmth,
}


def main() -> int:
    """Measure, print, and say by the exit status whether resumed runs are equal."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if not (options.small or torch.cuda.is_available()):
        parser.error("torch finds no GPU here. A small form runs on a CPU: --small")
    torch.set_num_threads(1)
    bench = Bench(
        device=torch.device("cuda" if torch.cuda.is_available() else "cpu"), small=options.small
    )
    print(f"{place(bench.device)}; torch {torch.__version__}")
    figures: list[Figure] = []
    has_failed = False
    ends_at = time.monotonic() + options.minutes * 60
    for part in options.only:
        for task in PARTS[part](bench):
            title = f"{part:<9} {task.what:<34}"
            if time.monotonic() > ends_at:
                print(f"{title} left out: the time is up")
                continue
            try:
                found = measured(task, bench.device)
            except Exception as error:
                # Such as a GPU that is too small for one of the models: the others are measured.
                has_failed = True
                print(f"{title} failed: {type(error).__name__}: {error}", flush=True)
                continue
            for unit, value in found.items():
                print(f"{title} {value:>9.2f} {unit}", flush=True)
                figures.append(Figure(part=part, what=task.what, value=value, unit=unit))
            if options.json is not None:
                options.json.write_text(
                    json.dumps([asdict(figure) for figure in figures], indent=1)
                )
    if any(figure.value for figure in figures if figure.part == "equality"):
        return 1
    return 3 if has_failed else 0


def measured(task: Task, device: torch.device) -> dict[str, float]:
    """Measure on a device that holds nothing of what was measured before."""
    gc.collect()
    # A model is compiled so often and no more, whatever came before it.
    torch.compiler.reset()
    if device.type == "cuda":
        torch.cuda.empty_cache()
    return task.measure()


def place(device: torch.device) -> str:
    """Name the device."""
    if device.type == "cpu":
        return "CPU: a small form, whose figures say nothing"
    return f"{torch.cuda.get_device_name()}, CUDA {torch.version.cuda}"


if __name__ == "__main__":
    sys.exit(main())
