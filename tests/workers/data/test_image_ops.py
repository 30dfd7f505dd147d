"""Operations on batches, held against Pillow's on single images."""

from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
from PIL import Image, ImageEnhance, ImageFilter, ImageOps
from torch import Tensor

from vtjobs.workers.data.image_ops import OPERATIONS, affine, rotation

FILL = (124, 116, 104)


def pictures(channels: int = 3, *, height: int = 24, width: int = 24) -> Tensor:
    """Noise, a ramp, a picture of few levels, one of one level."""
    generator = torch.Generator().manual_seed(7)
    shape = (channels, height, width)
    noise = torch.randint(0, 256, shape, generator=generator)
    ramp = torch.arange(torch.Size(shape).numel()).view(shape) % 256
    few = torch.randint(90, 95, shape, generator=generator)
    one = torch.full(shape, 77)
    return torch.stack([noise, ramp, few, one]).float()


def as_pil(image: Tensor) -> Any:
    array = image.to(torch.uint8).numpy()
    return Image.fromarray(array[0] if len(array) == 1 else array.transpose(1, 2, 0))


def as_tensor(image: Any) -> Tensor:
    array = numpy.atleast_3d(numpy.array(image))
    return torch.from_numpy(array.transpose(2, 0, 1).copy()).float()


def by_pillow(images: Tensor, arguments: Any, change: Callable[[Any, Any], Any]) -> Tensor:
    pairs = zip(images, arguments, strict=True)
    return torch.stack([as_tensor(change(as_pil(image), one)) for image, one in pairs])


def added(image: Any, amount: float) -> Any:
    table = [min(255, level + int(amount)) if level < 128 else level for level in range(256)]
    return image.point(table * len(image.getbands()))


PILLOW: dict[str, Callable[[Any, float], Any]] = {
    "auto_contrast": lambda image, _: ImageOps.autocontrast(image),
    "brightness": lambda image, factor: ImageEnhance.Brightness(image).enhance(factor),
    "color": lambda image, factor: ImageEnhance.Color(image).enhance(factor),
    "contrast": lambda image, factor: ImageEnhance.Contrast(image).enhance(factor),
    "equalize": lambda image, _: ImageOps.equalize(image),
    "gaussian_blur": lambda image, radius: image.filter(ImageFilter.GaussianBlur(radius)),
    "invert": lambda image, _: ImageOps.invert(image),
    "posterize": lambda image, bits: ImageOps.posterize(image, int(bits)),
    "sharpness": lambda image, factor: ImageEnhance.Sharpness(image).enhance(factor),
    "solarize": lambda image, threshold: ImageOps.solarize(image, int(threshold)),
    "solarize_add": added,
}
ARGUMENTS = {
    "gaussian_blur": [0.1, 0.7, 1.3, 2.0, 4.5],
    "posterize": [0, 1, 3, 4, 7],
    "solarize": [0, 26, 128, 255, 256],
    "solarize_add": [0, 11, 55, 99, 110],
}
FACTORS = [0.1, 0.37, 0.8, 1.0, 1.19, 1.9]


def test_each_operation_is_held_against_pillow() -> None:
    assert PILLOW.keys() == OPERATIONS.keys()


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", sorted(PILLOW))
def test_an_operation_gives_the_levels_of_pillow(name: str, channels: int) -> None:
    for image in pictures(channels):
        arguments = ARGUMENTS.get(name, FACTORS)
        images = image.expand(len(arguments), -1, -1, -1)
        found = OPERATIONS[name](images, torch.tensor(arguments, dtype=torch.float32))
        assert torch.equal(found, by_pillow(images, arguments, PILLOW[name]))


MATRICES = [
    (1, 0.27, 0, 0, 1, 0),
    (1, 0, 0, -0.15, 1, 0),
    (1, 0, 4.05, 0, 1, 0),
    (1, 0, 0, 0, 1, -7.3),
    (1, 0, 3.0, 0, 1, 0),
    rotation(-27.0, (20, 28)),
    rotation(12.5, (20, 28)),
    rotation(0.0, (20, 28)),
]


@pytest.mark.parametrize("kernel", ["bilinear", "bicubic"])
def test_an_affine_map_gives_the_levels_of_pillow(kernel: str) -> None:
    resample = Image.Resampling[kernel.upper()]
    for image in pictures(height=20, width=28):
        images = image.expand(len(MATRICES), -1, -1, -1)
        expected = by_pillow(
            images,
            MATRICES,
            lambda one, matrix: one.transform(
                one.size, Image.Transform.AFFINE, matrix, resample=resample, fillcolor=FILL
            ),
        )
        matrices = torch.tensor(MATRICES, dtype=torch.float64)
        found = affine(images, matrices, fill=torch.tensor(FILL).float(), kernel=kernel)
        # Pillow adds up step by step along a line: a level on the edge may fall to the other side.
        differs = (found - expected).abs()
        assert differs.max() <= 1 and (differs > 0).float().mean() < 0.002


@pytest.mark.parametrize("degrees", [-30.0, -4.7, 0.0, 8.1, 30.0])
@pytest.mark.parametrize("size", [(24, 24), (20, 29)])
def test_a_rotation_turns_around_the_centre_as_pillow_does(
    degrees: float, size: tuple[int, int]
) -> None:
    images = pictures(height=size[0], width=size[1])[:1]
    expected = by_pillow(
        images,
        [degrees],
        lambda one, angle: one.rotate(angle, Image.Resampling.BICUBIC, fillcolor=FILL),
    )
    matrix = torch.tensor([rotation(degrees, size)], dtype=torch.float64)
    found = affine(images, matrix, fill=torch.tensor(FILL).float(), kernel="bicubic")
    differs = (found - expected).abs()
    assert differs.max() <= 1 and (differs > 0).float().mean() < 0.002
