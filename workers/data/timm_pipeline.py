"""timm's image-by-image pipeline in loader workers, for recipes that need RandAugment or colour
jitter.
"""

import random
from collections.abc import Iterator
from typing import Any

import numpy
import torch
from torch import Tensor

from ...jobs.run.settings import DatasetSettings, RecipeSettings
from ..randomness import Streams
from .batches import Order, Position
from .datasets import ImageSet
from .loader_process import FROM_WORKER, FromWorker, start_worker

PREFETCH = 2


class PilTransform:
    """timm's training transform, whose draws follow from (epoch, index) alone, whichever worker
    makes them.
    """

    def __init__(
        self, images: ImageSet, dataset: DatasetSettings, recipe: RecipeSettings, streams: Streams
    ) -> None:
        from timm.data import create_transform

        resized, simple = recipe.crop == "resized", recipe.crop == "simple"
        self.images = images
        self.resized = resized
        self.channels = dataset.channels
        self.streams = streams
        self.padding = recipe.crop_padding if recipe.crop == "pad" else 0
        self.mirrored = recipe.crop_padding if simple else None
        self.size = recipe.image_size
        self.kernel = recipe.interpolation
        self.transform = create_transform(
            input_size=(dataset.channels, self.size, self.size),
            is_training=True,
            no_aug=False,
            train_crop_mode="rrc" if resized else "rkrc",
            scale=tuple(recipe.crop_scale) if resized else (1.0, 1.0),
            ratio=tuple(recipe.crop_ratio) if resized else (1.0, 1.0),
            hflip=recipe.flip,
            color_jitter=recipe.color_jitter or None,
            auto_augment=recipe.auto_augment,
            interpolation=recipe.interpolation,
            mean=tuple(dataset.mean),
            std=tuple(dataset.std),
            re_prob=recipe.erasing,
            re_mode="pixel",
        )

    def __call__(self, epoch: int, index: int, copy: int = 0) -> Tensor:
        """Return one augmented, normalised image [C, S, S].

        Each copy of it in an epoch has draws of its own.
        """
        key = self.streams.key("augment", "pil", epoch, index, *([copy] if copy else []))
        random.seed(key)
        numpy.random.seed(key & 0xFFFFFFFF)
        torch.default_generator.manual_seed(key)
        image = self.images.pil(index).convert("RGB" if self.channels == 3 else "L")
        if not self.resized:
            image = self._fitted(image)
        transformed: Tensor = self.transform(image)
        return transformed

    def _fitted(self, image: Any) -> Any:
        """Show what the tensor pipeline shows.

        Shorter side to size, centre, and the padded crop where there is one.

        Or DeiT III's simple random crop (Touvron et al. 2022, section 3): a square at random,
        borders mirrored.
        """
        from torchvision.transforms import InterpolationMode, RandomCrop
        from torchvision.transforms import functional as F

        image = F.resize(image, self.size, InterpolationMode(self.kernel))
        if self.mirrored is not None:
            return RandomCrop(self.size, padding=self.mirrored, padding_mode="reflect")(image)
        image = F.center_crop(image, self.size)
        if not self.padding:
            return image
        padded = F.pad(image, self.padding)
        top, left = random.randint(0, 2 * self.padding), random.randint(0, 2 * self.padding)
        return F.crop(padded, top, left, self.size, self.size)


Share = tuple[Tensor, Tensor]


class _Steps(torch.utils.data.Dataset[Share | FromWorker]):
    """Item = the share of one virtual rank in one step, or why an image cannot be read."""

    def __init__(
        self, transform: PilTransform, order: Order, epoch: int, shares: list[tuple[int, int]]
    ) -> None:
        self.transform = transform
        self.order = order
        self.epoch = epoch
        self.shares = shares

    def __len__(self) -> int:
        return len(self.shares)

    def __getitem__(self, item: int) -> Share | FromWorker:
        try:
            return self._share(item)
        except FROM_WORKER as error:
            return error

    def _share(self, item: int) -> Share:
        step, virtual_rank = self.shares[item]
        indices = self.order.step(self.epoch, step)[virtual_rank]
        if not len(indices):
            return torch.empty(0), torch.empty(0, dtype=torch.int64)
        pairs = zip(indices.tolist(), self.order.copies(step)[virtual_rank].tolist(), strict=True)
        images = torch.stack([self.transform(self.epoch, index, copy) for index, copy in pairs])
        return images, self.transform.images.labels[indices]


class PilSource:
    """Batches made by loader workers ahead of time, in the order in which this rank will ask for
    them.
    """

    def __init__(
        self, transform: PilTransform, order: Order, *, workers: int, device: torch.device
    ) -> None:
        self.transform = transform
        self.order = order
        self.workers = workers
        self.device = device
        self._epoch = -1
        self._iterator: Any = None
        self._expected: Iterator[tuple[int, int]] = iter(())

    def begin(self, epoch: int, first_step: int, virtual_ranks: list[int]) -> None:
        """Start on an epoch from a step on; a resumed run asks for just what is left."""
        shares = [
            (step, rank) for step in range(first_step, self.order.steps) for rank in virtual_ranks
        ]
        steps = _Steps(self.transform, self.order, epoch, shares)
        loader = torch.utils.data.DataLoader(
            steps,
            batch_size=None,
            num_workers=self.workers,
            prefetch_factor=PREFETCH if self.workers else None,
            worker_init_fn=start_worker,
            multiprocessing_context="fork" if self.workers else None,
            pin_memory=self.device.type == "cuda",
        )
        self._iterator = iter(loader)
        self._epoch = epoch
        self._expected = iter(shares)

    def batch(self, indices: Tensor, position: Position) -> tuple[Tensor, Tensor]:
        expected = next(self._expected)
        assert (position.epoch, (position.step, position.virtual_rank)) == (self._epoch, expected)
        share = next(self._iterator)
        if isinstance(share, FROM_WORKER):
            raise share
        images, labels = share
        return images.to(self.device, non_blocking=True), labels.to(self.device, non_blocking=True)
