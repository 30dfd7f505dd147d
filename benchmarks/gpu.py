"""All that has to be measured on a GPU, in half an hour and with one command.

    python benchmarks/gpu.py [--small] [--only PART ...] [--minutes 30] [--json FILE]

Equality comes first: a number is worth nothing where a resumed run is not the uninterrupted one.

- *equality*: a run that is stopped and goes on from its checkpoint, against one that is not, with
  each precision that the device has: how many tensors of weights, optimizer and streams differ.
- *waits*: how often the steps of an epoch wait for the GPU, its end included.
- *speed*: images a second for each model, precision, and compiled or not; the ratio to a plain loop
  around the same model (see `step.py`), and peak memory.
- *loader*: images a second of vtjobs' loader over timm's (see `loader.py`).
- *warm*: the time of several runs in one allocation over that of an allocation for each (see
  `warm.py`).

`--small` takes tiny models and few rounds, so that a CPU can run it: its figures say nothing. A
part that begins after `--minutes` is left out, and named. The exit status is 1 where the resumed
runs differ.
"""

import argparse
import contextlib
import dataclasses
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
from vtjobs.workers.data.datasets import ImageSet

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


def equality(bench: Bench) -> Iterator[Figure]:
    """Count what differs after a stop in the middle of the first epoch."""
    for (name, case), precision in product(bench.cases.items(), bench.precisions):
        asked = dataclasses.replace(
            case, precision=precision, deterministic=bench.device.type == "cuda", epochs=2
        )
        with tempfile.TemporaryDirectory(prefix="vtjobs-gpu-") as folder:
            whole = ended(asked, Path(folder) / "whole", bench.device)
            steps_before_stop = DIGITS // asked.batch // 2
            first = stopped_after(asked, steps_before_stop, Path(folder) / "first", bench.device)
            second = ended(asked, Path(folder) / "second", bench.device, resume=first)
            differing = differences(load(whole), load(second))
        yield Figure(
            part="equality",
            what=f"{name}, {precision}: tensors and numbers that differ",
            value=differing,
            unit="",
        )


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
        assert one.keys() == other.keys()
        return sum(differences(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return sum(differences(a, b) for a, b in zip(one, other, strict=True))
    return int(one != other)


def waits(bench: Bench) -> Iterator[Figure]:
    """Count how often the steps of an epoch wait for the GPU; on a CPU nothing does."""
    if bench.device.type == "cpu":
        return
    for name, case in bench.cases.items():
        with tempfile.TemporaryDirectory(prefix="vtjobs-gpu-") as folder:
            training = step.ours(case, Path(folder), bench.device)
            epoch = step.by_vtjobs(training)
            # The first one warms up.
            epoch()
            found, steps = waits_of(epoch), training.order.steps
        yield Figure(part="waits", what=f"{name}, {steps} steps", value=found / steps, unit="/step")


def waits_of(epoch: Callable[[], int]) -> int:
    """Count the operations that wait for the GPU."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            epoch()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return sum("synchroniz" in str(warning.message) for warning in seen)


def speed(bench: Bench) -> Iterator[Figure]:
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
            epochs=100_000,
        )
        what = f"{name}, {precision}{', compiled' if is_compiled else ''}"
        with tempfile.TemporaryDirectory(prefix="vtjobs-gpu-") as folder:
            training = step.ours(asked, Path(folder), bench.device)
            peak = peak_mib(step.by_vtjobs(training), bench.device)
            sides = {
                "vtjobs": step.by_vtjobs(training),
                "plain": step.by_hand(asked, training),
            }
            rates = step.compare(sides, rounds=1 if bench.small else 5, epochs=1)
        yield Figure(part="speed", what=what, value=rates.ours, unit="images/s")
        yield Figure(part="speed", what=f"{what}: over a plain loop", value=rates.ratio, unit="x")
        if peak is not None:
            yield Figure(part="speed", what=f"{what}: peak memory", value=peak, unit="MiB")


def peak_mib(epoch: Callable[[], int], device: torch.device) -> float | None:
    """Return the most memory of the device that an epoch took; None on a CPU."""
    if device.type == "cpu":
        epoch()
        return None
    torch.cuda.reset_peak_memory_stats()
    epoch()
    return torch.cuda.max_memory_allocated() / 2**20


def loaders(bench: Bench) -> Iterator[Figure]:
    """Measure the loader's worker against timm's."""
    pictures = of_cifar(loader.BATCH if bench.small else 512)
    images = ImageSet(labels=pictures.labels.long(), images=pictures.images, reader=pictures.reader)
    found = loader.ratio(loader.core(images), time.process_time, 1 if bench.small else 5)
    yield Figure(part="loader", what="CIFAR's images, over timm's", value=median(found), unit="x")


def warmth(bench: Bench) -> Iterator[Figure]:
    """Measure runs one after another in one allocation against one for each."""
    runs = 2 if bench.small else 5
    job = warm.SMALL if bench.small else warm.CIFAR_SHAPED
    job = dataclasses.replace(job, gpus=int(bench.device.type == "cuda"))
    seconds = {apart: warm.measure(runs, apart=apart, job=job) for apart in (False, True)}
    yield Figure(
        part="warm",
        what=f"{runs} runs in one allocation, over one for each",
        value=seconds[False] / seconds[True],
        unit="x",
    )


def median(values: list[float]) -> float:
    """Return the middle one."""
    return sorted(values)[len(values) // 2]


PARTS = {
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
    bench = Bench(
        device=torch.device("cuda" if torch.cuda.is_available() else "cpu"), small=options.small
    )
    torch.set_num_threads(1)
    print(f"{place(bench.device)}; torch {torch.__version__}")
    figures = list(measured(bench, options.only, options.minutes * 60))
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(figure) for figure in figures], indent=1))
    return int(any(figure.value for figure in figures if figure.part == "equality"))


def place(device: torch.device) -> str:
    """Name the device."""
    if device.type == "cpu":
        return "CPU: a small form, whose figures say nothing"
    return f"{torch.cuda.get_device_name()}, CUDA {torch.version.cuda}"


def measured(bench: Bench, parts: list[str], limit_s: float) -> Iterator[Figure]:
    """Yield the figures of these parts, each printed as soon as it is known."""
    began = time.monotonic()
    for part in parts:
        if time.monotonic() - began > limit_s:
            print(f"{part:<9} left out: the time is up")
            continue
        with contextlib.closing(PARTS[part](bench)) as figures:
            for figure in figures:
                print(
                    f"{figure.part:<9} {figure.what:<60} {figure.value:>9.2f} {figure.unit}",
                    flush=True,
                )
                yield figure


if __name__ == "__main__":
    sys.exit(main())
