"""From a split to batches.

Resident tensors, augmented in batches with draws that follow from the position.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias

import torch
from torch import Tensor

from ...jobs.run.settings import DatasetSettings, RecipeSettings
from ...jobs.values import changed
from ..errors import DataError
from ..randomness import Streams
from ..transfer import send
from . import augment
from .ahead import Ahead, Later
from .decoded import Decoded, Decoder, Fit
from .image_set import ImageSet
from .objects import Objects
from .policies import Policy

EVAL_BATCH = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """The share of one virtual rank in one step."""

    epoch: int
    step: int
    virtual_rank: int
    view: int = 0
    """Which view of its images, for a head that wants several."""

    @property
    def key(self) -> tuple[int, ...]:
        """What the draws for it follow from."""
        first = (self.epoch, self.step, self.virtual_rank)
        return (*first, self.view) if self.view else first


Labels: TypeAlias = Tensor | Objects
"""Of a batch: classes [B] int64, masks [B, S, S] int64, or objects."""


class TrainSource(Protocol):
    """Gives augmented, normalised batches."""

    def begin(self, step: int) -> None:
        """Get ready for the batches from a step on, counted from the start of training."""
        ...

    def batch(self, indices: Tensor, position: Position) -> tuple[Tensor, Labels]:
        """Return images [B, C, S, S] float32 and their labels, on the device.

        Made for several views, [B·V, C, S, S]: those of an image follow each other.
        """
        ...


class Order:
    """Which images each step and virtual rank gets.

    A permutation per epoch, cut the same way at any world size.

    With `repeats` each image stands that many times in a row, and the copies go to different
    virtual ranks (repeated augmentation, Hoffer et al. 2020); an epoch is as long as ever, so it
    ends before all images were seen.
    """

    def __init__(
        self,
        size: int,
        batch_size: int,
        virtual_ranks: int,
        *,
        drop_last: bool,
        streams: Streams,
        repeats: int = 1,
    ) -> None:
        self.size = size
        self.batch_size = batch_size
        self.repeats = repeats
        self.virtual_ranks = virtual_ranks
        self.steps = size // batch_size if drop_last else -(-size // batch_size)
        if self.steps == 0:
            raise DataError(
                f"{size} training images are fewer than one batch of {batch_size} (drop_last)"
            )
        self._streams = streams
        self._epoch = -1
        self._permutation = torch.empty(0)

    def step(self, epoch: int, step: int) -> list[Tensor]:
        """Return the indices of each virtual rank.

        A short last batch is shared as evenly as it goes.
        """
        if epoch != self._epoch:
            self._permutation, self._epoch = self.permutation(epoch), epoch
        return [self._permutation[slots // self.repeats] for slots in self._slots(step)]

    def permutation(self, epoch: int) -> Tensor:
        """Return all images in the order of an epoch: [size] int64."""
        return torch.randperm(self.size, generator=self._streams.generator("order", "train", epoch))

    def copies(self, step: int) -> list[Tensor]:
        """Return, in the form of `step`, which copy of its image each one is, counted from 0."""
        return [slots % self.repeats for slots in self._slots(step)]

    def _slots(self, step: int) -> list[Tensor]:
        whole = torch.arange(step * self.batch_size, min((step + 1) * self.batch_size, self.size))
        if self.repeats == 1:
            return list(torch.tensor_split(whole, self.virtual_ranks))
        return [whole[rank :: self.virtual_ranks] for rank in range(self.virtual_ranks)]


def normaliser(dataset: DatasetSettings, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return mean and std of 0…255 images as [1, C, 1, 1]."""
    mean, std = (
        torch.tensor(values, device=device).view(1, -1, 1, 1) * 255
        for values in (dataset.mean, dataset.std)
    )
    return mean, std


def normalised(images: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Return levels 0…255 [B, C, S, S] as a model takes them: float32, in memory of their own.

    Args:
        images: of any type, and in any order in memory.
        mean: [1, C, 1, 1], as `normaliser` returns it.
        std: the same.
    """
    # In place, since on a CPU fresh memory costs more than arithmetic. Images of loader workers lie
    # pixel by pixel; a model may compute otherwise on such memory.
    found = torch.empty(images.shape, device=images.device).copy_(images)
    return found.sub_(mean).div_(std)


# Values that switch off what either the loader's workers or the device do.
_AFTER_THE_CROP = {"flip": 0.0, "color_jitter": 0.0, "auto_augment": None}


def for_workers(recipe: RecipeSettings) -> RecipeSettings:
    """Return a recipe as the loader's workers carry it out, of a pipeline that has them."""
    return changed(recipe, **_AFTER_THE_CROP) if recipe.pipeline == "hybrid" else recipe


def for_device(recipe: RecipeSettings) -> RecipeSettings:
    """Return a recipe as the device carries it out, once an image has its size."""
    return changed(recipe, **_AFTER_THE_CROP) if recipe.pipeline == "pil" else recipe


class Finish:
    """The end of every training pipeline, on the device: images have their size already.

    Mirror some and do what the policy says, unless loader workers did; normalise, erase parts of
    some. That is timm's order.
    """

    def __init__(
        self,
        dataset: DatasetSettings,
        recipe: RecipeSettings,
        streams: Streams,
        device: torch.device,
    ) -> None:
        recipe = for_device(recipe)
        self.flip = recipe.flip
        has_policy = recipe.auto_augment or recipe.color_jitter
        self.policy = Policy(recipe, dataset.mean) if has_policy else None
        self.erasing = recipe.erasing
        self.streams = streams
        self.device = device
        self.mean, self.std = normaliser(dataset, device)

    def __call__(self, images: Tensor, position: Position) -> Tensor:
        """Return images [B, C, S, S], levels 0…255 on the device, as float32 for the model."""
        finished = normalised(self._augmented(images, position), self.mean, self.std)
        if not self.erasing:
            return finished
        where = position.key
        boxes = self.streams.generator("augment", "erase", *where)
        noise = self.streams.generator_on(self.device, "augment", "noise", *where)
        return augment.random_erase_(finished, self.erasing, boxes, noise)

    def _augmented(self, images: Tensor, position: Position) -> Tensor:
        where = position.key
        if self.flip:
            draws = self.streams.generator("augment", "flip", *where)
            images = augment.random_flip(images, self.flip, draws)
        if self.policy is not None:
            key = self.streams.key("augment", "policy", *where)
            size = (images.shape[2], images.shape[3])
            drawn = self.policy.draw(len(images), size, key)
            # Images of loader workers lie pixel by pixel; operations go channel by channel.
            levels = images.to(torch.float32, memory_format=torch.contiguous_format)
            images = self.policy.apply(levels, drawn)
        return images


class TensorSource:
    """The training split in memory (on the GPU where there is one), augmented in batches."""

    def __init__(
        self,
        images: ImageSet,
        dataset: DatasetSettings,
        recipe: RecipeSettings,
        streams: Streams,
        device: torch.device,
        decoder: Decoder | None = None,
        *,
        views: int = 1,
    ) -> None:
        self.recipe = recipe
        self.streams = streams
        self.views = views
        self.labels = images.labels.to(device)
        if recipe.crop == "resized":
            if images.images is None:
                raise DataError(
                    "crop: resized on images of different sizes needs the recipe's `pipeline: pil`"
                    " or `hybrid`"
                )
            self.images = images.images.to(device)
        else:
            fit = Fit(size=recipe.image_size, kernel=recipe.interpolation)
            decoded = (decoder or Decoder()).decode(images, fit)
            self.images = decoded.rows(0, len(images)).to(device)
        self.finish = Finish(dataset, recipe, streams, device)

    def begin(self, step: int) -> None:
        pass

    def batch(self, indices: Tensor, position: Position) -> tuple[Tensor, Tensor]:
        indices = send(indices, self.images.device)
        plain = self.images[indices].float()
        places = in_views(position, self.views)
        shown = [self.finish(self._cropped(plain, place), place) for place in places]
        return side_by_side(shown), self.labels[indices]

    def _cropped(self, images: Tensor, position: Position) -> Tensor:
        recipe, where = self.recipe, position.key
        if recipe.crop == "pad":
            return augment.random_shift(images, recipe.crop_padding, self._draw("shift", where))
        if recipe.crop == "resized":
            size = (images.shape[2], images.shape[3])
            boxes = augment.crop_boxes(
                len(images), size, recipe.crop_scale, recipe.crop_ratio, self._draw("box", where)
            )
            return augment.resized_crop(images, boxes, recipe.image_size, recipe.interpolation)
        return images

    def _draw(self, consumer: str, where: tuple[int, ...]) -> torch.Generator:
        return self.streams.generator("augment", consumer, *where)


def stacked(samples: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Return images [B, V, C, S, S] and labels [B, …] of as many of each, all of one size."""
    images, labels = zip(*samples, strict=True)
    return torch.stack(images), torch.stack(labels)


def in_views(position: Position, views: int) -> list[Position]:
    """Return a share's position once for each view of its images."""
    return [replace(position, view=view) for view in range(views)]


def side_by_side(views: list[Tensor]) -> Tensor:
    """Return views of the same images, [B, C, S, S] each, so that those of an image follow each
    other: [B·V, C, S, S].
    """
    return views[0] if len(views) == 1 else torch.stack(views, dim=1).flatten(0, 1)


class EvalSource:
    """A split for scoring: each rank scores its own part, each example is in exactly one."""

    def __init__(
        self,
        images: ImageSet,
        dataset: DatasetSettings,
        recipe: RecipeSettings,
        device: torch.device,
        *,
        rank: int = 0,
        world_size: int = 1,
        decoder: Decoder | Ahead | None = None,
    ) -> None:
        self.classes = dataset.classes
        self.size = len(images)
        self.batch_size = EVAL_BATCH
        self.device = device
        # As many batches on every rank; where only other ranks still have one, this one has none.
        starts = range(0, len(images), EVAL_BATCH * world_size)
        bounds = [(start + rank * EVAL_BATCH, start + (rank + 1) * EVAL_BATCH) for start in starts]
        own = [(min(low, len(images)), min(high, len(images))) for low, high in bounds]
        parts = [torch.arange(*part) for part in own]
        mine = torch.cat(parts) if parts else torch.empty(0, dtype=torch.int64)
        self.has_answers = images.answers is not None
        """Whether a batch has all right classes, [B, classes] bool, in place of labels."""
        self.labels = (images.labels if images.answers is None else images.answers)[mine].to(device)
        self.only = None if images.only is None else images.only.to(device)
        """[classes] bool, what a model may choose from; None: all classes."""
        fit = Fit(
            size=recipe.image_size, kernel=recipe.interpolation, crop_pct=recipe.eval_crop_pct
        )
        decoder = decoder or Decoder()
        self.images: Decoded | Later | None = None
        # Where each batch lies among the decoded images: all of them where the workspace keeps
        # them, else only this rank's.
        if decoder.keeps(images, fit):
            self.places = own
            self.images = decoder.decode(images, fit)
        else:
            ends = list(itertools.accumulate((high - low for low, high in own), initial=0))
            self.places = list(itertools.pairwise(ends))
            if len(mine):
                self.images = decoder.decode(images.part(mine), fit)
        self.mean, self.std = normaliser(dataset, device)

    def batches(self) -> Iterator[tuple[Tensor, Tensor] | None]:
        """Yield this rank's batches, and None where only other ranks still have one.

        Images are [B, C, S, S]. Labels are [B] int64, or [B, classes] bool (`has_answers`).
        """
        if self.images is not None:
            self.images.say_used()
        start = 0
        for low, high in self.places:
            part = slice(start, start + high - low)
            start = part.stop
            if low < high and self.images is not None:
                shown = self.images.rows(low, high).to(self.device)
                yield normalised(shown, self.mean, self.std), self.labels[part]
            else:
                yield None
