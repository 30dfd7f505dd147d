"""Pillow's operations on images, for batches of tensors with an argument for each image.

Images are [B, C, H, W] float32 with whole levels 0…255, on any device; C is 1 or 3. What comes back
is alike. Each operation gives Pillow's levels: a policy of timm's does the same in every pipeline.
The tests hold each against Pillow.
"""

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from ..transfer import send

# Fixed point of Pillow's grey levels (ITU-R 601-2 luma) and of its box blur.
_LUMA = (19595.0, 38470.0, 7471.0, 32768.0)
_LUMA_BITS = 16
_BLUR_BITS = 24
_BLUR_PASSES = 3
_SMOOTH_SUM = 13


# Blends -------------------------------------------------------------------------------------------


def _blend(plain: Tensor, images: Tensor, factor: Tensor) -> Tensor:
    """Go from a degenerate image (factor 0) over the image (1) and beyond."""
    return (plain + _each(factor) * (images - plain)).trunc().clamp(0, 255)


def brightness(images: Tensor, factor: Tensor) -> Tensor:
    """Blend with black by a factor [B]."""
    return _blend(torch.zeros_like(images), images, factor)


def color(images: Tensor, factor: Tensor) -> Tensor:
    """Blend with the grey image by a factor [B]; an image of one channel stays as it is."""
    return images if images.shape[1] == 1 else _blend(_grey(images), images, factor)


def contrast(images: Tensor, factor: Tensor) -> Tensor:
    """Blend with the mean of the grey image by a factor [B]."""
    mean = (_grey(images).double().mean((1, 2, 3)) + 0.5).floor().float()
    return _blend(_each(mean).expand_as(images), images, factor)


def sharpness(images: Tensor, factor: Tensor) -> Tensor:
    """Blend with the smoothed image by a factor [B]; the outermost pixels are not smoothed."""
    if min(images.shape[2:]) < 3:
        return images
    inside = images[:, :, 1:-1, 1:-1]
    total = 4 * inside
    for row in range(3):
        for column in range(3):
            height, width = images.shape[2] - 2 + row, images.shape[3] - 2 + column
            total = total + images[:, :, row:height, column:width]
    smooth = images.clone()
    # Twice and odd: no half of a level is ever met.
    smooth[:, :, 1:-1, 1:-1] = torch.div(
        2 * total + _SMOOTH_SUM, 2 * _SMOOTH_SUM, rounding_mode="floor"
    )
    return _blend(smooth, images, factor)


def _grey(images: Tensor) -> Tensor:
    """[B, 3, H, W] -> [B, 1, H, W]; of one channel: itself."""
    if images.shape[1] == 1:
        return images
    red, green, blue, half = _LUMA
    # In float64: 255 levels times 16 bits are more than float32 holds.
    parts = images.double()
    found = parts[:, 0] * red + parts[:, 1] * green + parts[:, 2] * blue + half
    return (found / (1 << _LUMA_BITS)).floor().float()[:, None]


# Level by level -----------------------------------------------------------------------------------


def invert(images: Tensor, _: Tensor) -> Tensor:
    """Turn dark into light."""
    return 255 - images


def posterize(images: Tensor, bits: Tensor) -> Tensor:
    """Keep the highest bits [B] of each level, 0 to 8."""
    step = _each(torch.exp2(8 - bits))
    return (images / step).floor() * step


def solarize(images: Tensor, threshold: Tensor) -> Tensor:
    """Invert the levels from a threshold [B] on."""
    return torch.where(images < _each(threshold), images, 255 - images)


def solarize_add(images: Tensor, added: Tensor) -> Tensor:
    """Add to the levels below 128, up to white."""
    return torch.where(images < 128, (images + _each(added)).clamp(max=255), images)


def auto_contrast(images: Tensor, _: Tensor) -> Tensor:
    """Stretch each channel so that it goes from 0 to 255; one of a single level stays as it is."""
    low, high = images.amin((2, 3), keepdim=True), images.amax((2, 3), keepdim=True)
    scale = 255 / (high - low).double()
    stretched = (images.double() * scale - low.double() * scale).trunc().clamp(0, 255).float()
    return torch.where(high > low, stretched, images)


def equalize(images: Tensor, _: Tensor) -> Tensor:
    """Spread the levels of each channel so that all are met about as often."""
    levels = images.long().flatten(2)
    counts = torch.zeros((*levels.shape[:2], 256), dtype=torch.int64, device=images.device)
    counts.scatter_add_(2, levels, torch.ones_like(levels))
    last = counts.gather(2, levels.amax(2, keepdim=True))
    step = (levels.shape[2] - last).div(255, rounding_mode="floor")
    before = counts.cumsum(2) - counts
    table = (before + step // 2).div(step.clamp(min=1), rounding_mode="floor").clamp(max=255)
    spread = table.gather(2, levels).view_as(images).float()
    return torch.where((step > 0)[..., None], spread, images)


# Geometry -----------------------------------------------------------------------------------------


def rotation(degrees: float, size: tuple[int, int]) -> tuple[float, ...]:
    """Return the matrix of Pillow's `Image.rotate` around the centre; size: (height, width)."""
    angle = -math.radians(degrees % 360.0)
    cos, sin = round(math.cos(angle), 15), round(math.sin(angle), 15)
    down, right = size[0] / 2, size[1] / 2
    return (
        cos, sin, right - cos * right - sin * down,
        -sin, cos, down + sin * right - cos * down,
    )  # fmt: skip


def affine(images: Tensor, matrices: Tensor, *, fill: Tensor, kernel: str) -> Tensor:
    """Show at (x, y) what lies at (a x + b y + c, d x + e y + f), as `Image.transform` does.

    Args:
        images: [B, C, H, W].
        matrices: [B, 6] float64: a, b, c, d, e, f; in pixels, whose centres lie at halves.
        fill: [C] levels, for what lies outside.
        kernel: `bilinear` or `bicubic` (Pillow's, with a = -1).
    """
    channels, height, width = images.shape[1:]
    a, b, c, d, e, f = (matrices[:, index, None, None] for index in range(6))
    device = images.device
    across = torch.arange(width, dtype=torch.float64, device=device)[None, None, :] + 0.5
    down = torch.arange(height, dtype=torch.float64, device=device)[None, :, None] + 0.5
    x, y = a * across + b * down + c, d * across + e * down + f
    outside = (x < 0) | (x >= width) | (y < 0) | (y >= height)
    columns, t_x = _taps(x, width, kernel)
    rows, t_y = _taps(y, height, kernel)
    pixels = images.flatten(2).double()
    lines = []
    for row in rows:
        places = [(row * width + column).flatten(1)[:, None] for column in columns]
        met = [pixels.gather(2, place.expand(-1, channels, -1)) for place in places]
        lines.append(_between(met, t_x.flatten(1)[:, None]))
    total = _between(lines, t_y.flatten(1)[:, None])
    shown = total.clamp(0, 255).floor().float().view_as(images)
    return torch.where(outside[:, None], fill.view(1, -1, 1, 1), shown)


def _taps(places: Tensor, size: int, kernel: str) -> tuple[list[Tensor], Tensor]:
    """Return the pixels that a kernel meets along one axis, cut at the edge, and how far between
    the two nearest the places lie.
    """
    first = (places - 0.5).floor()
    steps = range(2) if kernel == "bilinear" else range(-1, 3)
    return [(first + step).clamp(0, size - 1).long() for step in steps], places - 0.5 - first


def _between(values: list[Tensor], t: Tensor) -> Tensor:
    """Interpolate in Pillow's order, in which equal values give exactly themselves."""
    if len(values) == 2:
        return values[0] + (values[1] - values[0]) * t
    before, low, high, after = values
    cubic = low - before + after - high
    square = 2 * (before - low) + high - after
    return low + t * (high - before + t * (square + t * cubic))


# Blur ---------------------------------------------------------------------------------------------


def gaussian_blur(images: Tensor, radius: Tensor) -> Tensor:
    """Blur by a standard deviation in pixels, with three box blurs as Pillow does.

    Args:
        images: [B, C, H, W].
        radius: [B] on the CPU, whatever the device of the images: it decides the number of steps.
    """
    # In float32, as Pillow computes it: a weight depends on its last bit.
    box = _box_radius(radius.float())
    reach = math.floor(max(box.tolist())) + 1
    weights = send(_box_weights(box, reach), images.device)
    found = images.long()
    for _ in range(_BLUR_PASSES):
        found = _box_blur(found, weights, reach)
    found = found.transpose(2, 3)
    for _ in range(_BLUR_PASSES):
        found = _box_blur(found, weights, reach)
    return found.transpose(2, 3).float()


def _box_radius(radius: Tensor) -> Tensor:
    """Return the radius of the boxes of which three make a Gaussian (Gwosdek et al. 2011)."""
    variance = radius**2 / _BLUR_PASSES
    whole = ((torch.sqrt(12 * variance + 1) - 1) / 2).floor()
    part = (2 * whole + 1) * (whole * (whole + 1) - 3 * variance)
    return whole + part / (6 * (variance - (whole + 1) ** 2))


def _box_weights(box: Tensor, reach: int) -> Tensor:
    """Return [B, 2 reach + 1] int64: the weights of each box in fixed point."""
    inner = box.floor().long()
    one = 1 << _BLUR_BITS
    full = (one / (2 * box + 1)).floor().long()
    edge = (one - (2 * inner + 1) * full).div(2, rounding_mode="floor")
    distance = torch.arange(-reach, reach + 1).abs()[None]
    inside, border = distance <= inner[:, None], distance == inner[:, None] + 1
    return inside * full[:, None] + border * edge[:, None]


def _box_blur(images: Tensor, weights: Tensor, reach: int) -> Tensor:
    """Blur along the last axis: [B, C, H, W] int64."""
    width = images.shape[3]
    places = torch.arange(-reach, width + reach, device=images.device).clamp(0, width - 1)
    padded = images[..., places]
    total = torch.full_like(images, 1 << (_BLUR_BITS - 1))
    for index in range(2 * reach + 1):
        total += _each(weights[:, index]) * padded[..., index : index + width]
    return total >> _BLUR_BITS


def _each(values: Tensor) -> Tensor:
    """[B] -> [B, 1, 1, 1]."""
    return values[:, None, None, None]


OPERATIONS: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "auto_contrast": auto_contrast,
    "brightness": brightness,
    "color": color,
    "contrast": contrast,
    "equalize": equalize,
    "gaussian_blur": gaussian_blur,
    "invert": invert,
    "posterize": posterize,
    "sharpness": sharpness,
    "solarize": solarize,
    "solarize_add": solarize_add,
}
"""Name -> operation on images and one argument each; `affine` takes more."""
