"""What a test set costs before the first step: decoded, and mapped where it was decoded before.

    python benchmarks/startup.py [--images 2000] [--size 224] [--rounds 3]

Pictures of CIFAR's size (32 px) and JPEG files of 500 x 375 px, brought to the input's size. Three
ways, turn by turn in one run: with dense weights in float64, as it was done before; decoded anew by
the workers; mapped. Ratios are of CPU time, workers included, and of the memory that the process
takes for itself. Each way runs in a process of its own.
"""

import argparse
import multiprocessing
import os
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from vtjobs.workers.data import augment
from vtjobs.workers.data.decoded import Decoder, Fit
from vtjobs.workers.data.image_set import ImageSet
from vtjobs.workers.data.listed import Listed

WAYS = ("float64", "decoded", "mapped")


def dense(images: ImageSet, fit: Fit) -> torch.Tensor:
    """Resize with dense matrices of weights in float64, on one thread."""
    torch.set_num_threads(1)
    if images.images is not None:
        return torch.cat([_dense(part, fit) for part in images.images.split(1024)])
    from torchvision.transforms.functional import pil_to_tensor

    return torch.cat([_dense(pil_to_tensor(images.pil(i))[None], fit) for i in range(len(images))])


def _dense(part: torch.Tensor, fit: Fit) -> torch.Tensor:
    height, width = part.shape[2:]
    larger = fit.shorter_side
    target = tuple(int(larger * side / min(height, width)) for side in (height, width))
    resized = augment.resize(part.float(), (target[0], target[1]), fit.kernel)
    top, left = (round((side - fit.size) / 2) for side in target)
    return resized[:, :, top : top + fit.size, left : left + fit.size].to(torch.uint8)


def of_cifar(count: int) -> ImageSet:
    """Return smooth pictures of 32 px in one tensor."""
    draw = torch.Generator().manual_seed(0)
    small = torch.rand(count, 3, 8, 8, generator=draw) * 255
    pixels = torch.nn.functional.interpolate(small, size=32, mode="bicubic").clamp(0, 255)
    return ImageSet(labels=torch.zeros(count, dtype=torch.int64), images=pixels.to(torch.uint8))


def of_jpeg(folder: Path, count: int) -> ImageSet:
    """Write JPEG files and return them as a set."""
    from PIL import Image

    draw = numpy.random.default_rng(0)
    paths = [folder / f"{number:05d}.jpg" for number in range(count)]
    for path in paths:
        small = Image.fromarray(draw.integers(0, 256, (24, 32, 3), dtype=numpy.uint8))
        small.resize((500, 375), Image.Resampling.BICUBIC).save(path, quality=90)
    found = Listed((path, 0) for path in paths)
    return ImageSet(labels=found.labels, reader=found.__getitem__, files=found.paths)


def one_way(way: str, images: ImageSet, fit: Fit, kept: Path, answer: Any) -> None:
    """Make the set ready and send CPU seconds, wall seconds and the bytes of own memory."""
    decoder = Decoder(folder=kept, workers=len(os.sched_getaffinity(0)), limit_bytes=1 << 40)
    before = _own_bytes()
    wall, cpu = time.perf_counter(), _cpu_s()
    held = dense(images, fit) if way == "float64" else decoder.decode(images, fit)
    cost = (_cpu_s() - cpu, time.perf_counter() - wall)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
    rows = held if isinstance(held, torch.Tensor) else held.rows(0, len(images))
    answer.send((*cost, peak, int(rows.long().sum())))


def _cpu_s() -> float:
    found = os.times()
    return found.user + found.system + found.children_user + found.children_system


def _own_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def measure(images: ImageSet, fit: Fit, rounds: int) -> dict[str, list[tuple[float, ...]]]:
    """Run all ways in turn, each in a process of its own."""
    spawn = multiprocessing.get_context("spawn")
    found: dict[str, list[tuple[float, ...]]] = {way: [] for way in WAYS}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(prefix="vtjobs-startup-") as kept:
            sums = set()
            for way in WAYS:
                mine, theirs = spawn.Pipe()
                process = spawn.Process(target=one_way, args=(way, images, fit, Path(kept), theirs))
                process.start()
                *costs, pixels = mine.recv()
                process.join()
                found[way].append(tuple(costs))
                sums.add(pixels)
            assert len(sums) == 1, "the ways show different pixels"
    return found


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    fit = Fit(size=options.size, kernel="bicubic", crop_pct=0.875)
    with tempfile.TemporaryDirectory(prefix="vtjobs-pictures-") as folder:
        sets = {
            "32 px": of_cifar(options.images),
            "500 x 375 JPEG": of_jpeg(Path(folder), options.images // 2),
        }
        print(
            f"{'images':<16} {'way':<9} {'CPU ms/image':>12} {'CPU':>7} {'wall':>7} {'memory':>7}"
        )
        for name, images in sets.items():
            taken = measure(images, fit, options.rounds)
            middle = {
                way: [statistics.median(values) for values in zip(*costs, strict=True)]
                for way, costs in taken.items()
            }
            base = middle["float64"]
            for way in WAYS:
                cpu, wall, memory = (
                    value / of for value, of in zip(middle[way], base, strict=True)
                )
                each = 1e3 * middle[way][0] / len(images)
                print(f"{name:<16} {way:<9} {each:>12.2f} {cpu:>7.3f} {wall:>7.3f} {memory:>7.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
