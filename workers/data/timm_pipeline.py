"""Single images of any size in loader workers: timm's transforms, a lab's own, masks, objects."""

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from ...jobs.grid.policy_names import TRIVIAL
from ...jobs.run.loaders import PREFETCH
from ...jobs.run.settings import DatasetSettings, RecipeSettings, Task
from ..own_functions import own_transform
from ..randomness import Streams
from ..transfer import bring
from .batches import Finish, Labels, Order, Position, for_workers, in_views, side_by_side
from .image_set import ImageSet
from .loader_process import FROM_WORKER, FromWorker, start_worker
from .mask_pipeline import MaskSamples
from .object_pipeline import ObjectSamples
from .policies import limit_to_named


class Samples(Protocol):
    """Training images up to whole levels of brightness, one by one."""

    channels: int
    size: int

    def sample(self, epoch: int, index: int, copies: range) -> tuple[Tensor, Any]:
        """Return copies of one image [N, C, S, S] uint8 and its label.

        The label is a class, [] int64, a mask, [S, S] int64, or the objects of the image, which
        then has a size of its own, [C, h, w]. What is drawn follows from the arguments alone.
        """
        ...

    def collate(self, samples: Sequence[tuple[Tensor, Any]]) -> "Share":
        """Return what a share has of its images, as `sample` returned them."""
        ...


def samples(
    images: ImageSet, dataset: DatasetSettings, recipe: RecipeSettings, streams: Streams
) -> Samples:
    """Return a run's training images, to be made one by one."""
    kinds: dict[Task, Callable[..., Samples]] = {
        "classification": PilTransform,
        "segmentation": MaskSamples,
        "detection": ObjectSamples,
    }
    return kinds[dataset.task](images, dataset, recipe, streams)


class PilTransform:
    """timm's training transform up to whole levels of brightness; `Finish` does the rest.

    With `pipeline: hybrid` it only brings images to their size, after a lab's own transform. A
    random resized crop is then resized by PyTorch's kernels.

    Its draws follow from (epoch, index) alone, whichever worker makes them.
    """

    @staticmethod
    def collate(samples: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        """Return images [B, V, C, S, S] and classes [B] of as many of each."""
        images, labels = zip(*samples, strict=True)
        return _stacked(images), torch.stack(labels)

    def __init__(
        self, images: ImageSet, dataset: DatasetSettings, recipe: RecipeSettings, streams: Streams
    ) -> None:
        recipe = for_workers(recipe)
        self.images = images
        self.draws = dataset.is_own
        self.resized = recipe.crop == "resized"
        self.channels = dataset.channels
        self.mode = "RGB" if dataset.channels == 3 else "L"
        self.streams = streams
        self.padding = recipe.crop_padding if recipe.crop == "pad" else 0
        self.mirrored = recipe.crop_padding if recipe.crop == "simple" else None
        self.size = recipe.image_size
        self.kernel = recipe.interpolation
        self.own = own_transform(recipe.transform)
        by_torch = self.resized and recipe.pipeline == "hybrid"
        self.transform: Callable[[Any], Tensor] = (
            _CropByTorch(recipe) if by_torch else _by_timm(dataset, recipe)
        )

    def __call__(self, epoch: int, index: int, copy: int = 0) -> Tensor:
        """Return one augmented image [C, S, S] uint8.

        Each copy of it in an epoch has draws of its own.
        """
        return self.several(epoch, index, range(copy, copy + 1))[0]

    def sample(self, epoch: int, index: int, copies: range) -> tuple[Tensor, Tensor]:
        """Return copies of one image [N, C, S, S] uint8 and its class, [] int64."""
        return self.several(epoch, index, copies), self.images.labels[index]

    def several(self, epoch: int, index: int, copies: range) -> Tensor:
        """Return copies of one image [N, C, S, S] uint8.

        Its file is decoded once. A lab's own dataset is asked for each: it may draw as well.
        """
        shown: list[Tensor] = []
        image = None
        for copy in copies:
            self.streams.seed_sample(epoch, index, copy)
            if image is None or self.draws:
                image = self.images.pil(index)
            # Of the same mode, too, what `convert` returns is a new image.
            shown.append(self._transformed(image.convert(self.mode)))
        return _stacked(shown)

    def _transformed(self, image: Any) -> Tensor:
        if self.own is not None:
            image = self.own(image).convert(self.mode)
        if not self.resized:
            image = self._fitted(image)
        return self.transform(image)

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


def _by_timm(dataset: DatasetSettings, recipe: RecipeSettings) -> Any:
    """Return timm's transform from an image to whole levels of brightness."""
    from timm.data import create_transform
    from timm.data.auto_augment import AutoAugment

    resized = recipe.crop == "resized"
    made = create_transform(
        input_size=(dataset.channels, recipe.image_size, recipe.image_size),
        is_training=True,
        no_aug=False,
        train_crop_mode="rrc" if resized else "rkrc",
        scale=tuple(recipe.crop_scale) if resized else (1.0, 1.0),
        ratio=tuple(recipe.crop_ratio) if resized else (1.0, 1.0),
        hflip=recipe.flip,
        color_jitter=recipe.color_jitter or None,
        auto_augment=None if recipe.auto_augment == TRIVIAL else recipe.auto_augment,
        interpolation=recipe.interpolation,
        # What RandAugment fills the corners of a rotated image with.
        mean=tuple(dataset.mean),
        # Whole levels of brightness at the end, nothing normalised and nothing erased.
        normalize=False,
    )
    for one in made.transforms:
        if isinstance(one, AutoAugment):
            limit_to_named(one, recipe.auto_augment or "")
    if recipe.auto_augment == TRIVIAL:
        # Where timm has its policies: before what makes a tensor of the image.
        made.transforms.insert(-1, _trivial(dataset, recipe))
    return made


class _CropByTorch:
    """timm's random resized crop, resized by PyTorch's antialiased kernels for uint8.

    They need a quarter to three quarters of Pillow's time. One value in 200 has another level, by
    one as a rule.
    """

    def __init__(self, recipe: RecipeSettings) -> None:
        from timm.data.transforms import RandomResizedCropAndInterpolation
        from torchvision.transforms.functional import pil_to_tensor

        self.draw, self.pixels = RandomResizedCropAndInterpolation.get_params, pil_to_tensor
        self.size = recipe.image_size
        self.scale, self.ratio = tuple(recipe.crop_scale), tuple(recipe.crop_ratio)
        self.kernel = recipe.interpolation

    def __call__(self, image: Any) -> Tensor:
        """Return a part of a Pillow image, [C, S, S] uint8."""
        top, left, height, width = self.draw(image, self.scale, self.ratio)
        # Of a tiny image less than half a pixel may be drawn.
        width, height = max(1, width), max(1, height)
        left, top = min(left, image.width - width), min(top, image.height - height)
        part = self.pixels(image.crop((left, top, left + width, top + height)))
        return torch.nn.functional.interpolate(
            part[None], (self.size, self.size), mode=self.kernel, antialias=True
        )[0]


def _stacked(images: Sequence[Tensor]) -> Tensor:
    """Return [N, …, C, S, S] of N images alike, with channels as they have them in memory.

    Pillow has those of a pixel side by side. To put them apart would take a worker's time; the
    device does it when it normalises.
    """
    if images[0].is_contiguous():
        return torch.stack(tuple(images))
    return torch.stack([one.movedim(-3, -1) for one in images]).movedim(-1, -3)


Share = tuple[Tensor, Labels]
"""Images [B, V, C, S, S] uint8, V views of each, and labels [B], masks [B, S, S] or objects."""


def _trivial(dataset: DatasetSettings, recipe: RecipeSettings) -> Any:
    """Return TrivialAugment, which draws one of 14 operations and one of 31 strengths for an image.

    Müller and Hutter 2021, in its wide space; corners are filled as timm's policies fill them.
    """
    from torchvision.transforms import InterpolationMode, TrivialAugmentWide

    fill = [round(255 * value) for value in dataset.mean]
    return TrivialAugmentWide(interpolation=InterpolationMode(recipe.interpolation), fill=fill)


class _Shares(torch.utils.data.Dataset[Share | FromWorker]):
    """Item = the share of one virtual rank in one step, or why an image cannot be read.

    They go from one step to the end of training, across the ends of epochs.
    """

    def __init__(
        self,
        transform: Samples,
        order: Order,
        virtual_ranks: list[int],
        steps: range,
        views: int,
    ) -> None:
        self._views = range(views)
        self.transform = transform
        self.order = order
        self.virtual_ranks = virtual_ranks
        self.steps = steps

    def __len__(self) -> int:
        return len(self.steps) * len(self.virtual_ranks)

    def position(self, item: int) -> Position:
        """Return whose share an item is."""
        step, which = divmod(item, len(self.virtual_ranks))
        epoch, step = divmod(self.steps[step], self.order.steps)
        return Position(epoch=epoch, step=step, virtual_rank=self.virtual_ranks[which])

    def __getitem__(self, item: int) -> Share | FromWorker:
        try:
            return self._share(self.position(item))
        except FROM_WORKER as error:
            return error

    def _share(self, position: Position) -> Share:
        transform, rank = self.transform, position.virtual_rank
        indices = self.order.step(position.epoch, position.step)[rank]
        if not len(indices):
            shape = (0, len(self._views), transform.channels, transform.size, transform.size)
            return torch.empty(shape, dtype=torch.uint8), torch.empty(0, dtype=torch.int64)
        copies = self.order.copies(position.step)[rank].tolist()
        # A recipe repeats images, or its head asks for views of them: never both.
        found = [
            transform.sample(position.epoch, index, range(copy, copy + len(self._views)))
            for index, copy in zip(indices.tolist(), copies, strict=True)
        ]
        return transform.collate(found)


class PilSource:
    """Batches made by loader workers ahead of time, in the order in which this rank will ask for
    them.

    The workers stay for the whole training: during an evaluation, too, they make what comes next.
    """

    def __init__(
        self,
        transform: Samples,
        order: Order,
        finish: Finish,
        *,
        virtual_ranks: list[int],
        epochs: int,
        workers: int,
        views: int = 1,
    ) -> None:
        self.views = views
        self.transform = transform
        self.order = order
        self.finish = finish
        self.virtual_ranks = virtual_ranks
        self.total_steps = epochs * order.steps
        self.workers = workers
        self._shares: _Shares
        self._loaded: Iterator[Share | FromWorker]
        self._item = 0

    def begin(self, step: int) -> None:
        """Start the workers on what is left of training from a step on, counted from its start."""
        steps = range(step, self.total_steps)
        self._shares = _Shares(self.transform, self.order, self.virtual_ranks, steps, self.views)
        loader = torch.utils.data.DataLoader(
            self._shares,
            batch_size=None,
            num_workers=self.workers,
            prefetch_factor=PREFETCH if self.workers else None,
            worker_init_fn=start_worker,
            multiprocessing_context="fork" if self.workers else None,
            pin_memory=self.finish.device.type == "cuda",
        )
        self._loaded = iter(loader)
        self._item = 0

    def batch(self, indices: Tensor, position: Position) -> tuple[Tensor, Labels]:
        assert position == self._shares.position(self._item)
        self._item += 1
        share = next(self._loaded)
        if isinstance(share, FROM_WORKER) or self._item == len(self._shares):
            # The loader's workers end as soon as nothing refers to it; an error's frames would. In
            # the garbage collector its queues would be closed first, and nothing could tell the
            # workers to end.
            self._loaded = iter(())
        if isinstance(share, FROM_WORKER):
            raise share
        images = bring(share[0], self.finish.device)
        labels = share[1].to(self.finish.device, non_blocking=True)
        places = in_views(position, self.views)
        shown = [self.finish(images[:, place.view], place) for place in places]
        return side_by_side(shown), labels
