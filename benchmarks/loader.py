"""What the images of a training cost the CPU, against timm's own loader.

    python benchmarks/loader.py [--images 512] [--epochs 4] [--rounds 5]

Pictures of CIFAR's size (32 px) and JPEG files of 500 x 375 px become batches of 128 at 224 px:
random resized crop, flip, RandAugment and erasing. With `pipeline: hybrid` vtjobs' workers read and
crop, and the device does the rest. Two measures, both sides in turn in one run:

- *core*: CPU time for an image inside one loader worker. timm's side is the dataset and the collate
  function of its `create_loader`; normalising and erasing are the device's part on both sides, and
  so are flip and RandAugment of vtjobs' `hybrid`.
- *epochs*: wall time of whole epochs with two workers and a trainer that takes batches as fast as
  they come, so what an epoch's end costs is in it. Only of `pil`: without a GPU the device's part
  takes the same cores.

Ratios are vtjobs' images a second over timm's: above 1, vtjobs is faster.
"""

import argparse
import itertools
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from startup import of_cifar, of_jpeg
from timm.data import create_loader, create_transform
from timm.data.loader import fast_collate

from vtjobs.jobs.grid import catalogue
from vtjobs.jobs.grid.recipe import Recipe
from vtjobs.jobs.run.spec import seeds_of
from vtjobs.workers.data.batches import Finish, Order, Position
from vtjobs.workers.data.image_set import ImageSet
from vtjobs.workers.data.timm_pipeline import PilSource, PilTransform
from vtjobs.workers.randomness import Streams

BATCH = 128
# Of a round of the first measure.
BATCHES = 8
EPOCHS_AT_MOST = 1000
SIZE = 224
POLICY = "rand-m9-mstd0.5-inc1"
CPU = torch.device("cpu")
DATASET = catalogue.dataset("cifar100")
FIELDS: dict[str, Any] = {
    "epochs": 1, "batch_size": BATCH, "lr": 1e-3, "drop_last": True, "image_size": SIZE,
    "interpolation": "bicubic", "crop": "resized", "flip": 0.5, "auto_augment": POLICY,
    "erasing": 0.25,
}  # fmt: skip
RECIPES = {
    pipeline: Recipe.model_validate({**FIELDS, "pipeline": pipeline}).settings
    for pipeline in ("pil", "hybrid")
}
TIMM: dict[str, Any] = {
    "input_size": (3, SIZE, SIZE), "is_training": True, "hflip": 0.5, "auto_augment": POLICY,
    "interpolation": "bicubic", "mean": tuple(DATASET.mean), "std": tuple(DATASET.std),
}  # fmt: skip


class Pictures(torch.utils.data.Dataset[Any]):
    """The same images as timm's loader takes them."""

    def __init__(self, images: ImageSet) -> None:
        self.images, self.transform = images, None

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Any:
        image = self.images.pil(index).convert("RGB")
        return self.transform(image) if self.transform else image, int(self.images.labels[index])


def source_of(
    images: ImageSet, pipeline: str, workers: int, epochs: int
) -> tuple[PilSource, Order]:
    """Return vtjobs' loader."""
    recipe = RECIPES[pipeline]
    streams = Streams(seeds_of(0))
    order = Order(len(images), BATCH, 1, drop_last=True, streams=streams)
    source = PilSource(
        PilTransform(images, DATASET, recipe, streams),
        order,
        Finish(DATASET, recipe, streams, CPU),
        virtual_ranks=[0],
        epochs=epochs,
        workers=workers,
    )
    return source, order


def core(images: ImageSet, pipeline: str) -> tuple[Callable[[], None], Callable[[], None]]:
    """Return what makes the next batches inside a worker, for vtjobs and for timm.

    One batch has a third more costly operations than another, by their draws: so there are several,
    and each call draws anew.
    """
    source, _ = source_of(images, pipeline, 0, EPOCHS_AT_MOST)
    source.begin(0)
    shares, items = source._shares, itertools.count()
    theirs = Pictures(images)
    theirs.transform = create_transform(**TIMM, use_prefetcher=True)

    def our_batches() -> None:
        for _ in range(BATCHES):
            shares[next(items)]

    def their_batches() -> None:
        for batch in range(BATCHES):
            start = batch * BATCH
            fast_collate([theirs[index % len(theirs)] for index in range(start, start + BATCH)])

    return our_batches, their_batches


def on_device(images: ImageSet, device: torch.device) -> float:
    """Return how many images a second `hybrid` finishes on a device: mirrored to normalised."""
    recipe = RECIPES["hybrid"]
    streams = Streams(seeds_of(0))
    crops = PilTransform(images, DATASET, recipe, streams)
    share = crops.collate([crops.sample(0, index, range(1)) for index in range(BATCH)])[0]
    finish, shown = Finish(DATASET, recipe, streams, device), share[:, 0].to(device)

    def wait() -> float:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter()

    finish(shown, Position(epoch=0, step=0, virtual_rank=0))
    start = wait()
    for step in range(BATCHES):
        finish(shown, Position(epoch=1, step=step, virtual_rank=0))
    return BATCHES * BATCH / (wait() - start)


def epochs(images: ImageSet, number: int, workers: int) -> tuple[Callable, Callable]:
    """Return what goes through whole epochs, for vtjobs and for timm."""
    steps = len(images) // BATCH

    def ours() -> None:
        source, order = source_of(images, "pil", workers, number)
        source.begin(0)
        for epoch in range(number):
            for step in range(steps):
                place = Position(epoch=epoch, step=step, virtual_rank=0)
                source.batch(order.step(epoch, step)[0], place)

    def theirs() -> None:
        # Without the prefetcher timm normalises in its workers; with it, its loader needs a GPU.
        loader = create_loader(
            Pictures(images), batch_size=BATCH, num_workers=workers, use_prefetcher=False,
            re_prob=0.25, re_mode="pixel", **TIMM,
        )  # fmt: skip
        for _ in range(number):
            for _batch in loader:
                pass

    return ours, theirs


def ratio(pair: tuple[Callable, Callable], clock: Callable[[], float], rounds: int) -> list[float]:
    """Return timm's time over vtjobs' for each round, the order changing from round to round."""
    found = []
    for turn in range(rounds + 1):
        taken = {}
        for which in (0, 1) if turn % 2 else (1, 0):
            start = clock()
            pair[which]()
            taken[which] = clock() - start
        found.append(taken[1] / taken[0])
    # The first round warms up.
    return found[1:]


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=512)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    torch.set_num_threads(1)
    workers = len(os.sched_getaffinity(0))
    print(f"{'images':<18}{'measure':<16}{'median':>8}{'lowest':>8}{'highest':>9}")
    with tempfile.TemporaryDirectory(prefix="vtjobs-loader-") as folder:
        sets = {
            "32 px": of_cifar(given.images),
            "500 x 375 JPEG": of_jpeg(Path(folder), given.images),
        }
        for name, images in sets.items():
            images = ImageSet(
                labels=images.labels.long(), images=images.images, reader=images.reader
            )
            for measure, pair, clock in (
                ("pil, core", core(images, "pil"), time.process_time),
                ("hybrid, core", core(images, "hybrid"), time.process_time),
                ("pil, epochs", epochs(images, given.epochs, workers), time.perf_counter),
            ):
                found = ratio(pair, clock, given.rounds)
                print(
                    f"{name:<18}{measure:<16}{statistics.median(found):>8.2f}"
                    f"{min(found):>8.2f}{max(found):>9.2f}"
                )
            print(f"{name:<18}the CPU finishes {on_device(images, CPU):,.0f} images/s of hybrid")
    return 0


if __name__ == "__main__":
    sys.exit(main())
