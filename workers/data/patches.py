"""What RelViT does to the patches of images, batched on the device.

Camporese et al. 2022, sections 3.2.1, 4.1 and 4.3.

Images are [B, C, S, S], normalised; P is the patch side. Draws come from a CPU generator of the
`augment` stream, so that they do not depend on the device.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from ...jobs.documents import Document, from_plain
from ...jobs.run.settings import DatasetSettings, HeadSettings
from ..transfer import send
from .augment import resample_weights

# The published code's, of which the paper gives no numbers: patches are cropped to round(P / 1.15).
CROP = 1.15
JITTER, HUE, JITTER_PROBABILITY, GREY_PROBABILITY = 0.4, 0.1, 0.8, 0.2
_GREY = (0.299, 0.587, 0.114)


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchWork:
    """What is done to the patches of a run's images."""

    patch: int
    """P, pixels a side."""
    mega: int | None
    shared_cuts: bool
    augment: bool
    clamp: bool
    shuffle: bool
    mean: Tensor
    std: Tensor
    """[1, C, 1, 1], of images in 0…1."""

    def train(self, images: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor | None]:
        """Return a training batch and [B, N] where each of its patches lay.

        None where they lie as they did.
        """
        images = self.evaluate(images, generator)
        if self.augment:
            mean, std = (
                (images.new_tensor([0.0]), images.new_tensor([1.0]))
                if self.clamp
                else (self.mean, self.std)
            )
            images = (augment_patches(images * std + mean, self.patch, generator) - mean) / std
        return shuffle_patches(images, self.patch, generator) if self.shuffle else (images, None)

    def evaluate(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Return an evaluation batch: mega-patches are what the model gets there as well."""
        if self.mega is None:
            return images
        return mega_patches(images, self.patch, self.mega, generator, shared=self.shared_cuts)


class PatchParameters(Document, frozen=True, kw_only=True):
    """Parameters of a head that works on the patches of the input."""

    mega: int | None
    mega_cuts: Literal["apart", "shared"]
    patch_augment: bool
    patch_clamp: bool
    shuffle: bool


def patch_work(
    head: HeadSettings, dataset: DatasetSettings, patch: int | None, device: torch.device
) -> PatchWork | None:
    """Return what a head asks for, or None."""
    if patch is None or "mega" not in head.params:
        return None
    params = from_plain(head.params, PatchParameters)
    mean, std = (
        torch.tensor(values, device=device).view(1, -1, 1, 1)
        for values in (dataset.mean, dataset.std)
    )
    return PatchWork(
        patch=patch,
        mega=params.mega,
        shared_cuts=params.mega_cuts == "shared",
        augment=params.patch_augment,
        clamp=params.patch_clamp,
        shuffle=params.shuffle,
        mean=mean,
        std=std,
    )


def mega_patches(
    images: Tensor, patch: int, count: int, generator: torch.Generator, *, shared: bool
) -> Tensor:
    """Cut each image into M×M rectangles at random multiples of P and resize each to P×P.

    -> [B, C, M·P, M·P].

    Args:
        images: [B, C, S, S].
        patch: P.
        count: M, at most S / P.
        generator: of the cuts, M - 1 different ones an axis and image.
        shared: one draw for both axes, as in the published code.
    """
    batch, _, side, _ = images.shape
    rows = _cut_weights(batch, side, patch, count, generator)
    columns = rows if shared else _cut_weights(batch, side, patch, count, generator)
    rows, columns = (send(part.to(images.dtype), images.device) for part in (rows, columns))
    return rows[:, None] @ (images @ columns[:, None].transpose(2, 3))


def _cut_weights(
    batch: int, side: int, patch: int, count: int, generator: torch.Generator
) -> Tensor:
    """Return [B, M·P, S].

    Bilinear weights that resize the M stretches between random cuts to P pixels each.
    """
    cuts = (
        torch.rand(batch, side // patch - 1, generator=generator)
        .argsort(1)[:, : count - 1]
        .sort(1)
        .values
        + 1
    )
    edges = F.pad(cuts * patch, (1, 0), value=0)
    ends = F.pad(cuts * patch, (0, 1), value=side)
    starts, lengths = edges.flatten().double(), (ends - edges).flatten().double()
    return (
        resample_weights(starts, lengths, side, patch, "bilinear")
        .unflatten(0, (batch, count))
        .flatten(1, 2)
    )


def as_patches(images: Tensor, patch: int) -> Tensor:
    """Return [B·N, C, P, P], patches of each image row by row: [B, C, S, S]."""
    batch, channels, height, width = images.shape
    cut = images.view(batch, channels, height // patch, patch, width // patch, patch)
    return cut.permute(0, 2, 4, 1, 3, 5).reshape(-1, channels, patch, patch)


def as_images(patches: Tensor, batch: int, rows: int) -> Tensor:
    """Put patches back together; `as_patches` undone."""
    channels, patch = patches.shape[1], patches.shape[2]
    columns = len(patches) // batch // rows
    whole = patches.view(batch, rows, columns, channels, patch, patch).permute(0, 3, 1, 4, 2, 5)
    return whole.reshape(batch, channels, rows * patch, columns * patch)


def shuffle_patches(
    images: Tensor, patch: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Permute the patches of each image.

    Return it and [B, N] int64, where each patch lay before.
    """
    batch, rows = len(images), images.shape[2] // patch
    patches = as_patches(images, patch).unflatten(0, (batch, -1))
    order = torch.rand(batch, patches.shape[1], generator=generator).argsort(1)
    places = send(order, images.device)
    moved = patches[torch.arange(batch, device=images.device)[:, None], places]
    return as_images(moved.flatten(0, 1), batch, rows), places


def augment_patches(images: Tensor, patch: int, generator: torch.Generator) -> Tensor:
    """Crop, colour and grey-scale every patch by itself: [B, C, S, S] in 0…1 -> the same shape.

    The crop is of one size at a random place, resized back; then, with its probability, brightness,
    contrast and saturation by a factor of 0.6 to 1.4 and hue by up to a tenth of the circle, in an
    order drawn for the batch; then grey. Colours are clamped to 0…1 after each change, as
    torchvision does. One-channel images keep their hue.
    """
    patches = as_patches(images, patch)
    patches = _crop(patches, patch, generator)
    changed = _jitter(patches, generator)
    if images.shape[1] == 3:
        grey = send(_drawn(len(patches), GREY_PROBABILITY, generator), images.device)
        changed = torch.where(grey, _luma(changed).expand_as(changed), changed)
    return as_images(changed, len(images), images.shape[2] // patch)


def _crop(patches: Tensor, patch: int, generator: torch.Generator) -> Tensor:
    size = round(patch / CROP)
    if size >= patch:
        return patches
    corners = torch.randint(0, patch - size + 1, (2, len(patches)), generator=generator)
    top, left = send(corners, patches.device)
    span = torch.arange(size, device=patches.device)
    index = torch.arange(len(patches), device=patches.device)[:, None, None]
    rows, columns = (top[:, None] + span)[:, :, None], (left[:, None] + span)[:, None, :]
    cut = patches.permute(0, 2, 3, 1)[index, rows, columns].permute(0, 3, 1, 2)
    return F.interpolate(cut, size=(patch, patch), mode="bilinear", align_corners=False)


def _jitter(patches: Tensor, generator: torch.Generator) -> Tensor:
    count = len(patches)
    device, dtype = patches.device, patches.dtype
    drawn = 2 * torch.rand(4, count, 1, 1, 1, generator=generator) - 1
    *factors, shift = send(drawn.to(dtype), device)
    factors, shift = [1 + JITTER * factor for factor in factors], HUE * shift
    chosen = send(_drawn(count, JITTER_PROBABILITY, generator), device)
    changed = patches
    for change in torch.randperm(4, generator=generator).tolist():
        if change == 0:
            changed = changed * factors[0]
        elif change == 1:
            mean = _luma(changed).mean((1, 2, 3), keepdim=True)
            changed = changed * factors[1] + mean * (1 - factors[1])
        elif patches.shape[1] != 3:
            continue
        elif change == 2:
            changed = changed * factors[2] + _luma(changed) * (1 - factors[2])
        else:
            changed = turn_hue(changed.clamp(0, 1), shift)
        changed = changed.clamp(0, 1)
    return torch.where(chosen, changed, patches)


def _drawn(count: int, probability: float, generator: torch.Generator) -> Tensor:
    return (torch.rand(count, generator=generator) < probability)[:, None, None, None]


def _luma(images: Tensor) -> Tensor:
    if images.shape[1] != 3:
        return images
    red, green, blue = images.split(1, dim=1)
    return _GREY[0] * red + _GREY[1] * green + _GREY[2] * blue


def turn_hue(images: Tensor, shift: Tensor) -> Tensor:
    """Turn the hue of RGB images in 0…1 by a share of the circle each.

    HSV's definition, value and saturation kept.

    Args:
        images: [B, 3, H, W].
        shift: [B, 1, 1, 1] in -0.5…0.5.
    """
    value, low = images.amax(1, keepdim=True), images.amin(1, keepdim=True)
    chroma = value - low
    safe = torch.where(chroma > 0, chroma, torch.ones_like(chroma))
    red, green, blue = images.split(1, dim=1)
    sixth = torch.where(
        value == red,
        (green - blue) / safe,
        torch.where(value == green, 2 + (blue - red) / safe, 4 + (red - green) / safe),
    )
    hue = (sixth / 6 + shift) * 6
    # f(n) = V - C·max(0, min(k, 4 - k, 1)), k = (n + hue) mod 6, n = 5, 3, 1 for red, green and
    # blue.
    turned = [
        value - chroma * torch.minimum(k, 4 - k).clamp(0, 1)
        for k in ((n + hue) % 6 for n in (5, 3, 1))
    ]
    return torch.cat(turned, dim=1)
