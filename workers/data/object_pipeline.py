"""Images with objects: one augmentation for both, and whole images for scoring."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...jobs.run.settings import DatasetSettings, RecipeSettings
from ..errors import DataError
from ..randomness import Streams
from .batches import normaliser
from .image_set import ImageSet
from .mask_pipeline import mode_of
from .objects import Objects, OfImage, Size
from .read_ahead import read_ahead, turns_of

# The sides of an image are filled up to a multiple of this, in pixels.
STEP = 32


def fitted_size(size: Size, recipe: RecipeSettings, factor: float = 1.0) -> Size:
    """Return the size that an image is brought to, its ratio kept.

    Args:
        size: as it is stored.
        recipe: of the run. With a `longest_side` the shorter side has `image_size` pixels and the
            longer one `longest_side` at most; without one the longer side has `image_size` pixels.
        factor: of `image_size`.
    """
    shorter, longer = min(size), max(size)
    side = max(1.0, factor * recipe.image_size)
    scale = side / longer
    if recipe.longest_side is not None:
        scale = min(side / shorter, recipe.longest_side / longer)
    height, width = (max(1, round(scale * length)) for length in size)
    return height, width


def canvas(sizes: Sequence[Size], recipe: RecipeSettings) -> Size:
    """Return what images of such sizes are filled up to: a square where there is no longest side.

    Args:
        sizes: of the images.
        recipe: of the run.
    """
    if recipe.longest_side is None:
        return recipe.image_size, recipe.image_size
    height, width = (-(-max(lengths) // STEP) * STEP for lengths in zip(*sizes, strict=True))
    return height, width


class ObjectSamples:
    """A split's training images with objects, one by one; see `timm_pipeline.Samples`."""

    def __init__(
        self, images: ImageSet, dataset: DatasetSettings, recipe: RecipeSettings, streams: Streams
    ) -> None:
        self.channels, self.size = dataset.channels, recipe.image_size
        self._images, self._streams, self._recipe = images, streams, recipe
        self._mode = mode_of(dataset)
        self._fill = torch.tensor([round(255 * value) for value in dataset.mean]).byte()

    def sample(self, epoch: int, index: int, copies: range) -> tuple[Tensor, OfImage]:
        """Return one image [C, h, w] uint8, and its objects.

        Raises:
            DataError: the image has not the size that its annotations are for.
        """
        (copy,) = copies
        self._streams.seed_sample(epoch, index, copy)
        factor = 1.0
        if self._recipe.rescale is not None:
            low, high = self._recipe.rescale
            factor = low + (high - low) * torch.rand(()).item()
        image, _ = _fitted(self._images, index, self._mode, self._recipe, factor)
        found = self._images.objects().objects(index, (image.shape[1], image.shape[2]))
        if self._recipe.flip and torch.rand(()).item() < self._recipe.flip:
            image, found = _mirrored(image, found)
        return image, found

    def collate(self, samples: Sequence[tuple[Tensor, OfImage]]) -> tuple[Tensor, Objects]:
        """Return images [B, 1, C, H, W] uint8, and their objects.

        They are filled up with the mean colour.
        """
        sizes = tuple((image.shape[1], image.shape[2]) for image, _ in samples)
        height, width = canvas(sizes, self._recipe)
        fill = self._fill[:, None, None]
        images = fill.repeat(len(samples), 1, 1, height, width)
        for whole, (image, _) in zip(images[:, 0], samples, strict=True):
            whole[:, : image.shape[1], : image.shape[2]] = image
        counts = tuple(len(found.classes) for _, found in samples)
        masks = torch.zeros(sum(counts), height, width, dtype=torch.bool)
        start = 0
        for _, found in samples:
            stop = start + len(found.masks)
            masks[start:stop, : found.masks.shape[1], : found.masks.shape[2]] = found.masks
            start = stop
        objects = Objects(
            boxes=torch.cat([found.boxes for _, found in samples]),
            classes=torch.cat([found.classes for _, found in samples]),
            masks=masks,
            counts=counts,
            sizes=sizes,
        )
        return images, objects


def check_size(images: ImageSet, index: int, image: Any) -> Size:
    """Return height and width of an image, pixels.

    Raises:
        DataError: it has not the size that its annotations are for.
    """
    size: Size = (image.height, image.width)
    known = images.objects().size(index)
    if size != known:
        what = images.files[index] if images.files is not None else f"number {index}"
        message = f"image {what} has {size[1]}x{size[0]} pixels, by its annotations"
        turned = ". Its EXIF data may turn it: save it upright" if size == known[::-1] else ""
        raise DataError(f"{message} {known[1]}x{known[0]}{turned}")
    return size


def _fitted(
    images: ImageSet, index: int, mode: str, recipe: RecipeSettings, factor: float = 1.0
) -> tuple[Tensor, Size]:
    """Return an image [C, h, w] uint8 at the size of a recipe, and the size that it is stored in.

    Raises:
        DataError: the image has not the size that its annotations are for.
    """
    from torchvision.transforms import InterpolationMode
    from torchvision.transforms import functional as F

    image: Any = images.pil(index).convert(mode)
    size = check_size(images, index, image)
    kernel = InterpolationMode(recipe.interpolation)
    resized = F.resize(image, list(fitted_size(size, recipe, factor)), kernel)
    return F.pil_to_tensor(resized), size


def _mirrored(image: Tensor, found: OfImage) -> tuple[Tensor, OfImage]:
    left, top, right, bottom = found.boxes.unbind(1)
    width = image.shape[2]
    boxes = torch.stack([width - right, top, width - left, bottom], dim=1)
    return image.flip(2), OfImage(boxes, found.classes, found.masks.flip(2))


class Look(NamedTuple):
    """A whole image for scoring."""

    place: int
    """Of the image in the split."""
    image: Tensor
    """[1, C, H, W] float32, on the device."""
    shown: Size
    """Of the image within it."""
    stored: Size
    """Of the image as it is stored."""


class ObjectSource:
    """A split for scoring: each rank scores its own images, one at a time.

    Args:
        images: the split.
        dataset: of the run.
        recipe: of the run.
        device: where the model is.
        rank: of this process.
        world_size: ranks of the run.
        threads: that read images ahead.
    """

    def __init__(
        self,
        images: ImageSet,
        dataset: DatasetSettings,
        recipe: RecipeSettings,
        device: torch.device,
        *,
        rank: int = 0,
        world_size: int = 1,
        threads: int = 1,
    ) -> None:
        self.size = len(images)
        self.classes = dataset.classes
        self._images, self._device, self._recipe = images, device, recipe
        self._mode = mode_of(dataset)
        self._turns = turns_of(rank, world_size, len(images))
        self._threads = max(1, threads)
        self._mean, self._std = normaliser(dataset, device)

    def looks(self) -> Iterator[Look | None]:
        """Yield this rank's images, and None where only other ranks still have one."""
        found = read_ahead(self._turns, self.size, self._read, threads=self._threads)
        for index, read in zip(self._turns, found, strict=True):
            yield None if read is None else self._look(index, *read)

    def truth(self) -> dict[str, Any]:
        """Return all objects of the split as COCO's own program takes them."""
        numbered = [
            one | {"image_id": index}
            for index in range(self.size)
            for one in self._images.objects().truth(index)
        ]
        sizes = [self._images.objects().size(index) for index in range(self.size)]
        return {
            "images": [
                {"id": index, "height": height, "width": width}
                for index, (height, width) in enumerate(sizes)
            ],
            # To that program number 0 means none.
            "annotations": [one | {"id": number} for number, one in enumerate(numbered, start=1)],
            "categories": [{"id": label} for label in range(self.classes)],
        }

    def _read(self, index: int) -> tuple[Tensor, Size]:
        return _fitted(self._images, index, self._mode, self._recipe)

    def _look(self, index: int, image: Tensor, stored: Size) -> Look:
        shown = image.shape[1], image.shape[2]
        height, width = canvas([shown], self._recipe)
        levels = (image[None].to(self._device).float() - self._mean) / self._std
        # What is added is zero, the mean colour.
        more = (0, width - shown[1], 0, height - shown[0])
        return Look(index, torch.nn.functional.pad(levels, more), shown, stored)
