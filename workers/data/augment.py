"""Crop, flip and erase batches of tensors, each sample with its own draw.

Images are [B, C, H, W], float32 in 0…255 unless said otherwise. Draws come from the given CPU
generator, so that they do not depend on the device; only the noise in erased rectangles is drawn
where the images are.
"""

import math

import torch
from torch import Tensor

from ..transfer import send

Size = tuple[int, int]
_FIXED_POINT = float(1 << 22)


def random_shift(images: Tensor, padding: int, generator: torch.Generator) -> Tensor:
    """Pad with zeros and cut back to the size at a random place per sample.

    [B, C, H, W] -> the same shape.
    """
    batch, _, height, width = images.shape
    shifts = send(torch.randint(0, 2 * padding + 1, (2, batch), generator=generator), images.device)
    padded = torch.nn.functional.pad(images, (padding,) * 4)
    rows = shifts[0][:, None] + torch.arange(height, device=images.device)
    columns = shifts[1][:, None] + torch.arange(width, device=images.device)
    index = torch.arange(batch, device=images.device)
    return padded.permute(0, 2, 3, 1)[
        index[:, None, None], rows[:, :, None], columns[:, None, :]
    ].permute(0, 3, 1, 2)


def random_flip(images: Tensor, probability: float, generator: torch.Generator) -> Tensor:
    """Mirror each sample left to right with this probability."""
    flipped = send(torch.rand(len(images), generator=generator) < probability, images.device)
    return torch.where(flipped[:, None, None, None], images.flip(3), images)


def crop_boxes(
    count: int,
    size: Size,
    scale: tuple[float, float],
    ratio: tuple[float, float],
    generator: torch.Generator,
) -> Tensor:
    """Draw boxes as torchvision's RandomResizedCrop does: ten tries, then the largest centred box.

    Returns:
        [count, 4] whole numbers (top, left, height, width) as float64.
    """
    height, width = size
    area = (
        height
        * width
        * (scale[0] + (scale[1] - scale[0]) * torch.rand(count, 10, generator=generator).double())
    )
    low, high = math.log(ratio[0]), math.log(ratio[1])
    aspect = torch.exp(low + (high - low) * torch.rand(count, 10, generator=generator).double())
    w = (area * aspect).sqrt().round()
    h = (area / aspect).sqrt().round()
    places = torch.rand(2, count, generator=generator).double()
    fits = (w > 0) & (w <= width) & (h > 0) & (h <= height)
    first = fits.int().argmax(1, keepdim=True)
    w, h = w.gather(1, first)[:, 0], h.gather(1, first)[:, 0]
    inside = min(max(width / height, ratio[0]), ratio[1])
    fallback_w = float(width if width / height <= inside else round(height * inside))
    fallback_h = float(height if width / height >= inside else round(width / inside))
    found = fits.any(1)
    w = torch.where(found, w, torch.full_like(w, fallback_w))
    h = torch.where(found, h, torch.full_like(h, fallback_h))
    top = torch.where(found, (places[0] * (height - h + 1)).floor(), ((height - h) / 2).floor())
    left = torch.where(found, (places[1] * (width - w + 1)).floor(), ((width - w) / 2).floor())
    return torch.stack([top, left, h, w], 1)


def resample_weights(
    starts: Tensor, lengths: Tensor, source: int, target: int, kernel: str
) -> Tensor:
    """Return [B, target, source] weights that resize [start, start + length) of each sample to
    `target` pixels.

    Pillow's antialiased kernels: the support grows with the scale, taps are cut at the crop's edge
    and normalised. They are made on the device of `starts` and `lengths`, [B] float64.
    """
    device = starts.device
    scale = (lengths / target)[:, None, None]
    stretch = scale.clamp(min=1.0)
    centres = (
        starts[:, None, None]
        + (torch.arange(target, dtype=torch.float64, device=device)[None, :, None] + 0.5) * scale
    )
    pixels = torch.arange(source, dtype=torch.float64, device=device)[None, None, :] + 0.5
    distance = ((pixels - centres) / stretch).abs()
    weights = _bicubic(distance) if kernel == "bicubic" else (1 - distance).clamp(min=0)
    inside = (pixels > starts[:, None, None]) & (pixels < (starts + lengths)[:, None, None])
    weights = torch.where(inside, weights, torch.zeros_like(weights))
    # Pillow's fixed point: sums of such products are exact in float64, hence the same on every
    # device.
    return (weights / weights.sum(2, keepdim=True) * _FIXED_POINT).round() / _FIXED_POINT


def _bicubic(distance: Tensor, a: float = -0.5) -> Tensor:
    near = ((a + 2) * distance - (a + 3)) * distance.square() + 1
    far = ((distance - 5) * distance + 8) * distance * a - 4 * a
    return torch.where(
        distance < 1, near, torch.where(distance < 2, far, torch.zeros_like(distance))
    )


def resized_crop(images: Tensor, boxes: Tensor, size: int, kernel: str) -> Tensor:
    """Cut a box out of each sample and resize it.

    [B, C, H, W] -> [B, C, size, size], rounded to whole levels.

    Two matrix products per sample with Pillow's weights; the first pass is rounded as Pillow does.
    """
    top, left, height, width = send(boxes, images.device).unbind(1)
    rows = resample_weights(top, height, images.shape[2], size, kernel)
    columns = resample_weights(left, width, images.shape[3], size, kernel)
    narrowed = _whole_levels(images.double() @ columns[:, None].transpose(2, 3))
    return _whole_levels(rows[:, None] @ narrowed).float()


def resize(images: Tensor, size: Size, kernel: str) -> Tensor:
    """Resize whole images with Pillow's antialiased kernels, rounded to whole levels.

    -> [B, C, *size].
    """
    height, width = images.shape[2:]
    zero = torch.zeros(1, dtype=torch.float64)
    rows = resample_weights(zero, zero + height, height, size[0], kernel)[0].to(images.device)
    columns = resample_weights(zero, zero + width, width, size[1], kernel)[0].to(images.device)
    narrowed = _whole_levels(images.double() @ columns.T)
    return _whole_levels(rows @ narrowed).float()


def _whole_levels(images: Tensor) -> Tensor:
    """Round halves up, as Pillow does; enlarging by a whole factor meets many of them."""
    return (images + 0.5).floor().clamp(0, 255)


def erase_boxes(
    count: int, size: Size, probability: float, generator: torch.Generator
) -> list[tuple[int, int, int, int]]:
    """Draw the rectangle that each image loses, as timm's RandomErasing does (Zhong et al. 2017).

    Its area is 2 to 33 % of the image, its aspect ratio 0.3 to 3.3. Of ten tries the first that is
    smaller than the image counts.

    Returns:
        (top, left, height, width) of each image; height and width are 0 where nothing is erased.
    """
    height, width = size
    chosen = torch.rand(count, generator=generator) < probability
    area = (
        height
        * width
        * (0.02 + (1 / 3 - 0.02) * torch.rand(count, 10, generator=generator).double())
    )
    low = math.log(0.3)
    aspect = torch.exp(low - 2 * low * torch.rand(count, 10, generator=generator).double())
    h, w = (area * aspect).sqrt().round(), (area / aspect).sqrt().round()
    places = torch.rand(2, count, generator=generator).double()
    fits = (h < height) & (w < width)
    first = fits.int().argmax(1, keepdim=True)
    erased = chosen & fits.any(1)
    h, w = h.gather(1, first)[:, 0] * erased, w.gather(1, first)[:, 0] * erased
    top, left = (places[0] * (height - h + 1)).floor(), (places[1] * (width - w + 1)).floor()
    boxes = torch.stack([top, left, h, w], 1).long().tolist()
    return [(box[0], box[1], box[2], box[3]) for box in boxes]


def random_erase_(
    images: Tensor, probability: float, generator: torch.Generator, noise: torch.Generator
) -> Tensor:
    """Fill a rectangle of some normalised images with normal noise, in place.

    Args:
        images: [B, C, H, W] float32.
        probability: of an image to lose a rectangle.
        generator: draws the rectangles, on the CPU.
        noise: draws what fills them, on the device of the images.

    Returns:
        The same tensor.
    """
    size = (images.shape[2], images.shape[3])
    boxes = erase_boxes(len(images), size, probability, generator)
    for image, (top, left, height, width) in zip(images, boxes, strict=True):
        if height and width:
            image[:, top : top + height, left : left + width].normal_(generator=noise)
    return images
