"""Batches of tensors are cropped, resized, flipped and erased as Pillow, torchvision and timm do
one by one.
"""

import math
import random

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from timm.data.random_erasing import RandomErasing
from torch import Tensor
from torchvision.transforms import RandomResizedCrop

from vtjobs.workers.data import augment

KERNELS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}


def _draw(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _images(count: int, height: int, width: int, channels: int = 3, seed: int = 0) -> Tensor:
    return torch.randint(0, 256, (count, channels, height, width), generator=_draw(seed)).float()


def _pillow(image: Tensor, box: list[int], size: tuple[int, int], kernel: str) -> Tensor:
    """Cut (top, left, height, width) out and resize to (height, width) with Pillow, channel by
    channel.
    """
    top, left, height, width = box
    planes = []
    for channel in image.to(torch.uint8).numpy():
        cut = Image.fromarray(channel).crop((left, top, left + width, top + height))
        planes.append(numpy.asarray(cut.resize((size[1], size[0]), KERNELS[kernel])))
    return torch.from_numpy(numpy.stack(planes)).float()


@pytest.mark.parametrize("kernel", ["bilinear", "bicubic"])
@pytest.mark.parametrize(
    ("height", "width", "size"), [(32, 32, 32), (32, 32, 224), (48, 64, 24), (8, 8, 16)]
)
def test_a_resized_crop_is_pillows(kernel: str, height: int, width: int, size: int) -> None:
    images = _images(24, height, width)
    boxes = augment.crop_boxes(24, (height, width), (0.08, 1.0), (0.75, 4 / 3), _draw(1))
    boxes[0] = torch.tensor([0, 0, height, width])
    boxes[1] = torch.tensor([height - 1, width - 1, 1, 1])
    found = augment.resized_crop(images, boxes, size, kernel)
    pairs = zip(images, boxes.int().tolist(), strict=True)
    expected = [_pillow(image, box, (size, size), kernel) for image, box in pairs]
    assert torch.equal(found, torch.stack(expected))


@settings(max_examples=100, deadline=None)
@given(
    st.integers(4, 40),
    st.integers(4, 40),
    st.integers(4, 40),
    st.integers(4, 40),
    st.sampled_from(list(KERNELS)),
)
def test_a_resize_is_pillows(
    height: int, width: int, to_height: int, to_width: int, kernel: str
) -> None:
    images = _images(4, height, width, seed=height * width)
    found = augment.resize(images, (to_height, to_width), kernel)
    expected = torch.stack(
        [_pillow(image, [0, 0, height, width], (to_height, to_width), kernel) for image in images]
    )
    assert torch.equal(found, expected)


def test_boxes_follow_the_law_of_torchvision() -> None:
    count, scale, ratio, size = 20_000, (0.08, 1.0), (0.75, 4 / 3), (60, 48)
    mine = augment.crop_boxes(count, size, scale, ratio, _draw(0))
    torch.manual_seed(0)
    blank = torch.zeros(1, *size)
    theirs = torch.tensor(
        [RandomResizedCrop.get_params(blank, list(scale), list(ratio)) for _ in range(count)],
        dtype=torch.float64,
    )
    facts = [
        lambda box: box[:, 2] * box[:, 3],
        lambda box: box[:, 3] / box[:, 2],
        lambda box: box[:, 0],
        lambda box: box[:, 1],
        lambda box: box[:, 0] + box[:, 2],
    ]
    for fact in facts:
        a, b = (fact(boxes).sort().values for boxes in (mine, theirs))
        places = torch.cat([a, b]).unique()
        gap = (
            (torch.searchsorted(a, places, right=True) - torch.searchsorted(b, places, right=True))
            .abs()
            .max()
        )
        # Two-sample Kolmogorov-Smirnov: 1.95 / sqrt(n / 2) is exceeded once in a thousand times.
        assert float(gap) / count < 1.95 / math.sqrt(count / 2)


@given(
    st.integers(2, 50),
    st.integers(2, 50),
    st.floats(0.01, 1.0),
    st.floats(0.1, 1.0),
    st.integers(0, 99),
)
@settings(max_examples=50)
def test_boxes_lie_within_the_image(
    height: int, width: int, smallest: float, ratio: float, seed: int
) -> None:
    boxes = augment.crop_boxes(
        50, (height, width), (smallest, 1.0), (ratio, 1 / ratio), _draw(seed)
    )
    top, left, h, w = boxes.unbind(1)
    assert torch.equal(boxes, boxes.round())
    assert bool(
        (
            (top >= 0)
            & (left >= 0)
            & (h >= 1)
            & (w >= 1)
            & (top + h <= height)
            & (left + w <= width)
        ).all()
    )


def test_where_no_box_fits_the_largest_centred_one_is_taken() -> None:
    # All aspects are wide and the image is tall: as torchvision's fallback.
    boxes = augment.crop_boxes(3, (40, 10), (0.9, 1.0), (2.0, 3.0), _draw(0))
    assert boxes.tolist() == [[17.0, 0.0, 5.0, 10.0]] * 3
    assert list(RandomResizedCrop.get_params(torch.zeros(1, 40, 10), [0.9, 1.0], [2.0, 3.0])) == [
        17,
        0,
        5,
        10,
    ]


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 6), st.integers(0, 5), st.integers(0, 99))
def test_a_random_shift_is_padding_and_cutting_each_image_at_its_own_place(
    batch: int, padding: int, seed: int
) -> None:
    images = _images(batch, 7, 9, seed=seed)
    found = augment.random_shift(images, padding, _draw(seed))
    places = torch.randint(0, 2 * padding + 1, (2, batch), generator=_draw(seed)).tolist()
    for index in range(batch):
        padded = torch.zeros(3, 7 + 2 * padding, 9 + 2 * padding)
        padded[:, padding : padding + 7, padding : padding + 9] = images[index]
        top, left = places[0][index], places[1][index]
        assert torch.equal(found[index], padded[:, top : top + 7, left : left + 9])


def test_shifts_are_uniform_and_independent_over_images_and_directions() -> None:
    images = torch.zeros(9000, 1, 5, 5)
    images[:, :, 2, 2] = 1
    places = augment.random_shift(images, 1, _draw(0)).flatten(1).argmax(1)
    counts = torch.bincount(places, minlength=25).view(5, 5)[1:4, 1:4].double()
    assert int(counts.sum()) == 9000
    # Chi-squared with eight degrees of freedom: 26.1 is exceeded once in a thousand times.
    assert float(((counts - 1000) ** 2 / 1000).sum()) < 26.1


def test_flips_mirror_whole_images_with_their_probability() -> None:
    images = _images(4000, 3, 4, channels=1)
    found = augment.random_flip(images, 0.3, _draw(0))
    flipped = (found == images.flip(3)).flatten(1).all(1)
    kept = (found == images).flatten(1).all(1)
    assert bool((flipped | kept).all())
    assert abs(float(flipped.double().mean()) - 0.3) < 4 * math.sqrt(0.21 / 4000)
    assert torch.equal(augment.random_flip(images, 0.0, _draw(0)), images)
    assert torch.equal(augment.random_flip(images, 1.0, _draw(0)), images.flip(3))


def test_erased_rectangles_have_the_area_and_aspect_of_the_paper() -> None:
    count, side = 6000, 40
    images = torch.full((count, 1, side, side), 100.0)
    found = augment.random_erase_(images, 0.25, _draw(0), _draw(1))
    mask = (found != 100.0)[:, 0]
    chosen = mask.flatten(1).any(1)
    assert abs(float(chosen.double().mean()) - 0.25) < 4 * math.sqrt(0.1875 / count)
    mask = mask[chosen]
    height, width = mask.any(2).sum(1), mask.any(1).sum(1)
    # One full rectangle each.
    assert torch.equal(mask.flatten(1).sum(1), height * width)
    share = (height * width).double() / side**2
    assert 0.01 < float(share.min()) and float(share.max()) < 0.36
    # Uniform from 2 to 33 %: its mean is 0.177, its standard deviation 0.09.
    assert abs(float(share.mean()) - 0.1767) < 4 * 0.0905 / math.sqrt(len(share)) + 0.004
    aspect = (height.double() / width.double()).log()
    assert float(aspect.abs().max()) < math.log(3.33) + 0.35 and abs(float(aspect.mean())) < 0.1
    assert int(height.max()) < side and int(width.max()) < side
    noise = found[chosen][:, 0][mask]
    assert abs(float(noise.mean())) < 0.01 and abs(float(noise.std()) - 1) < 0.01


@pytest.mark.paper("DE-05")
def test_erased_rectangles_are_those_of_timm() -> None:
    """The same distribution of areas, sides and places; both draw in ways of their own."""
    count, side = 4000, 24
    ours = augment.random_erase_(torch.full((count, 1, side, side), 9.0), 1.0, _draw(0), _draw(1))
    random.seed(0), torch.manual_seed(0)
    erase = RandomErasing(probability=1.0, mode="pixel", device="cpu")
    theirs = erase(torch.full((count, 1, side, side), 9.0))
    # Two-sample Kolmogorov-Smirnov: 1.95 is exceeded once in a thousand times.
    limit = 1.95 * math.sqrt(2 / count)
    for one, other in zip(_erased_facts(ours).T, _erased_facts(theirs).T, strict=True):
        values = torch.cat([one, other]).unique()
        gap = (one[:, None] <= values).double().mean(0) - (other[:, None] <= values).double().mean(
            0
        )
        assert float(gap.abs().max()) < limit


def _erased_facts(images: Tensor) -> Tensor:
    """Return (area, height, first row, first column) of each image's rectangle."""
    mask = (images != 9.0)[:, 0]
    rows, columns = mask.any(2), mask.any(1)
    facts = (mask.flatten(1).sum(1), rows.sum(1), rows.int().argmax(1), columns.int().argmax(1))
    return torch.stack(facts, 1)


def _erased(images: Tensor, probability: float, seed: int) -> Tensor:
    return augment.random_erase_(images.clone(), probability, _draw(seed), _draw(seed + 100))


@pytest.mark.parametrize("name", ["shift", "flip", "erase"])
def test_what_one_image_looks_like_does_not_touch_its_neighbours(name: str) -> None:
    operations = {
        "shift": lambda images: augment.random_shift(images, 2, _draw(5)),
        "flip": lambda images: augment.random_flip(images, 0.5, _draw(5)),
        "erase": lambda images: _erased(images, 0.9, 5),
    }
    images = _images(8, 6, 6)
    changed = images.clone()
    changed[3] = 255 - changed[3]
    one, other = operations[name](images), operations[name](changed)
    others = [index for index in range(8) if index != 3]
    assert torch.equal(one[others], other[others])
    assert not torch.equal(one[3], other[3])


@pytest.mark.parametrize("name", ["shift", "box", "flip", "erase"])
def test_draws_come_from_the_given_generator_alone(name: str) -> None:
    images = _images(8, 16, 16)

    def apply() -> Tensor:
        if name == "shift":
            return augment.random_shift(images, 2, _draw(1))
        if name == "box":
            return augment.crop_boxes(8, (16, 16), (0.1, 1.0), (0.5, 2.0), _draw(1))
        if name == "flip":
            return augment.random_flip(images, 0.5, _draw(1))
        return _erased(images, 0.5, 1)

    first = apply()
    torch.manual_seed(99), numpy.random.seed(99), random.seed(99)
    before = torch.get_rng_state()
    assert torch.equal(apply(), first)
    assert torch.equal(torch.get_rng_state(), before)
