"""Images with masks: one augmentation for both, and whole images for scoring."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...jobs.run.settings import DatasetSettings, RecipeSettings
from ..errors import DataError
from ..randomness import Streams
from .batches import normaliser, stacked
from .image_set import ImageSet
from .masks import IGNORED
from .read_ahead import read_ahead, turns_of

# As in mmsegmentation's programs: a crop is drawn anew, ten times at most, where one class takes
# more of it than this.
_MOST_OF_ONE_CLASS = 0.75
_DRAWS = 10
# Channels of an image with colours.
COLOURS = 3
# What a distortion of strength 1 changes: levels of brightness, and shares of the circle of hues.
_LEVELS, _HUE = 64, 0.2


class MaskTransform:
    """One augmentation for an image and its mask: scale, crop, mirror image, colours.

    Draws from Python's and torch's global generators, which the caller seeds.

    Args:
        dataset: of the run.
        recipe: of the run. Its `crop: simple` takes a square at random, `crop: none` the middle.
    """

    def __init__(self, dataset: DatasetSettings, recipe: RecipeSettings) -> None:
        self.size = recipe.image_size
        self.kernel = recipe.interpolation
        self.rescale = recipe.rescale
        self.is_random = recipe.crop == "simple"
        self.flip = recipe.flip
        self.fill = [round(255 * value) for value in dataset.mean]
        self.jitter = recipe.color_jitter

    def __call__(self, image: Any, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Return the image [C, S, S] uint8 and its mask [S, S] int64.

        Args:
            image: of Pillow.
            mask: [H, W] uint8, of the same size.
        """
        from torchvision.transforms import functional as F

        factor = 1.0
        if self.rescale is not None:
            low, high = self.rescale
            factor = low + (high - low) * torch.rand(()).item()
        image = _fitted(image, max(1, round(factor * self.size)), self.kernel)
        mask = _fitted_mask(mask, image.height, image.width)
        image = F.pil_to_tensor(image)
        top, left = self._corner(mask)
        image = image[:, top : top + self.size, left : left + self.size]
        mask = mask[top : top + self.size, left : left + self.size]
        if self.flip and torch.rand(()).item() < self.flip:
            image, mask = image.flip(2), mask.flip(1)
        if self.jitter and len(image) == COLOURS:
            image = distorted(image, self.jitter)
        image, mask = self._padded(image, mask)
        return image.contiguous(), mask.long()

    def _padded(self, image: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Make both at least as large as a crop: the mean colour, and no class."""
        height, width = mask.shape
        below, right = max(0, self.size - height), max(0, self.size - width)
        if not below and not right:
            return image, mask
        shape = (height + below, width + right)
        whole = torch.tensor(self.fill, dtype=torch.uint8)[:, None, None].repeat(1, *shape)
        whole[:, :height, :width] = image
        classes = torch.full(shape, IGNORED, dtype=torch.uint8)
        classes[:height, :width] = mask
        return whole, classes

    def _corner(self, mask: Tensor) -> tuple[int, int]:
        """Return top and left of a crop."""
        rows, columns = (max(0, length - self.size) for length in mask.shape)
        if not self.is_random:
            return rows // 2, columns // 2
        top = left = 0
        for _ in range(_DRAWS):
            top = int(torch.randint(rows + 1, ()))
            left = int(torch.randint(columns + 1, ()))
            counts = mask[top : top + self.size, left : left + self.size].flatten().bincount()
            counts = counts[:IGNORED]
            if (counts > 0).sum() > 1 and counts.max() < _MOST_OF_ONE_CLASS * counts.sum():
                break
        return top, left


def _fitted(image: Any, side: int, kernel: str) -> Any:
    """Return an image of Pillow with a shorter side of `side`."""
    from torchvision.transforms import InterpolationMode
    from torchvision.transforms import functional as F

    shorter = min(image.size)
    size = [max(1, round(length * side / shorter)) for length in (image.height, image.width)]
    return F.resize(image, size, InterpolationMode(kernel))


def _fitted_mask(mask: Tensor, height: int, width: int) -> Tensor:
    """Return the nearest pixels of a mask [H, W] at another size."""
    from torchvision.transforms import InterpolationMode
    from torchvision.transforms import functional as F

    fitted: Tensor = F.resize(mask[None], [height, width], InterpolationMode.NEAREST_EXACT)[0]
    return fitted


def distorted(image: Tensor, strength: float) -> Tensor:
    """Change brightness, contrast, saturation and hue, each with probability 0.5.

    The photometric distortion of mmsegmentation's programs, whose strength is 0.5: levels change by
    up to 64 · strength, contrast and saturation by factors of 1 ± strength, and hue by up to a
    fifth of the circle · strength. Contrast comes before or after saturation and hue.

    Args:
        image: [3, H, W] uint8.
        strength: from 0 to 1.
    """
    levels = image.float()
    if _is_drawn():
        levels = (levels + _between(-_LEVELS * strength, _LEVELS * strength)).clamp(0, 255)
    comes_first = _is_drawn()
    if comes_first:
        levels = _with_contrast(levels, strength)
    levels = _with_colours(levels, strength)
    if not comes_first:
        levels = _with_contrast(levels, strength)
    return levels.byte()


def _with_contrast(levels: Tensor, strength: float) -> Tensor:
    if not _is_drawn():
        return levels
    return (levels * _between(1 - strength, 1 + strength)).clamp(0, 255)


def _with_colours(levels: Tensor, strength: float) -> Tensor:
    """Return levels with another saturation and hue, by way of Pillow's HSV."""
    from PIL import Image
    from torchvision.transforms import functional as F

    saturation = _between(1 - strength, 1 + strength) if _is_drawn() else None
    hue = _between(-_HUE * strength, _HUE * strength) if _is_drawn() else None
    if saturation is None and hue is None:
        return levels
    hsv = F.pil_to_tensor(F.to_pil_image(levels.byte()).convert("HSV")).float()
    if saturation is not None:
        hsv[1] = (hsv[1] * saturation).clamp(0, 255)
    if hue is not None:
        hsv[0] = (hsv[0] + 256 * hue).remainder(256)
    bands = [Image.fromarray(band) for band in hsv.byte().numpy()]
    return F.pil_to_tensor(Image.merge("HSV", bands).convert("RGB")).float()


def _is_drawn() -> bool:
    return torch.rand(()).item() < 0.5


def _between(low: float, high: float) -> float:
    return low + (high - low) * torch.rand(()).item()


class MaskSamples:
    """A split's training images with masks, one by one; see `timm_pipeline.Samples`."""

    collate = staticmethod(stacked)

    def __init__(
        self, images: ImageSet, dataset: DatasetSettings, recipe: RecipeSettings, streams: Streams
    ) -> None:
        self.channels, self.size = dataset.channels, recipe.image_size
        self._images, self._streams = images, streams
        self._mode = mode_of(dataset)
        self._transform = MaskTransform(dataset, recipe)

    def sample(self, epoch: int, index: int, copies: range) -> tuple[Tensor, Tensor]:
        """Return one image [1, C, S, S] uint8 and its mask, [S, S] int64.

        Raises:
            DataError: image and mask have different sizes.
        """
        (copy,) = copies
        self._streams.seed_sample(epoch, index, copy)
        image, mask = read(self._images, index, self._mode)
        shown, classes = self._transform(image, mask)
        return shown[None], classes


def mode_of(dataset: DatasetSettings) -> str:
    """Return Pillow's mode of a dataset's images."""
    return "RGB" if dataset.channels == 3 else "L"


def read(images: ImageSet, index: int, mode: str) -> tuple[Any, Tensor]:
    """Return an image of a split as Pillow's, and its mask [H, W] uint8.

    Raises:
        DataError: they have different sizes.
    """
    image, mask = images.pil(index).convert(mode), images.mask(index)
    if (image.height, image.width) != tuple(mask.shape):
        sizes = f"{image.width}x{image.height}, its mask {mask.shape[1]}x{mask.shape[0]}"
        what = images.files[index] if images.files is not None else f"number {index}"
        raise DataError(f"image {what} has {sizes} pixels")
    return image, mask


class Scene(NamedTuple):
    """A whole image for scoring."""

    images: list[Tensor]
    """[1, C, h, w] float32 each, on the device: the image at every scale."""
    mask: Tensor
    """[H, W] int64 on the device, of the image as it is stored."""


class MaskSource:
    """A split for scoring: each rank scores its own images, one at a time.

    Args:
        images: the split.
        dataset: of the run.
        recipe: of the run.
        device: where the model is.
        rank: of this process.
        world_size: ranks of the run.
        threads: that read images ahead.
        scales: of the shorter side, as factors of the size of training.
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
        scales: Sequence[float] = (1.0,),
    ) -> None:
        self._sides = [max(1, round(scale * recipe.image_size)) for scale in scales]
        self.size = len(images)
        self.classes = dataset.classes
        self.side = recipe.image_size
        self._images, self._device = images, device
        self._kernel = recipe.interpolation
        self._mode = mode_of(dataset)
        self._turns = turns_of(rank, world_size, len(images))
        self._threads = max(1, threads)
        self._mean, self._std = normaliser(dataset, device)

    def scenes(self) -> Iterator[Scene | None]:
        """Yield this rank's images, and None where only other ranks still have one."""
        for found in read_ahead(self._turns, self.size, self._read, threads=self._threads):
            yield None if found is None else self._scene(*found)

    def _read(self, index: int) -> tuple[list[Tensor], Tensor]:
        from torchvision.transforms import functional as F

        image, mask = read(self._images, index, self._mode)
        fitted = [_fitted(image, side, self._kernel) for side in self._sides]
        return [F.pil_to_tensor(one)[None] for one in fitted], mask

    def _scene(self, images: list[Tensor], mask: Tensor) -> Scene:
        levels = [image.to(self._device).float() for image in images]
        shown = [(one - self._mean) / self._std for one in levels]
        return Scene(shown, mask.to(self._device).long())
