"""Random operations on batches, held against timm's transforms on single images."""

import random
from collections import Counter
from typing import Any

import numpy
import pytest
import torch
from timm.data.auto_augment import NAME_TO_OP, auto_augment_transform, rand_augment_transform
from torch import Tensor

from vtjobs.jobs.values import changed
from vtjobs.workers.data.policies import _OURS, Policy

from ...support.training import run_spec
from .test_image_ops import PILLOW, as_pil, as_tensor, pictures

RECIPE = run_spec().recipe
MEAN = (0.49, 0.48, 0.45)
SIZE = (32, 40)
POLICIES = [
    "rand-m9-mstd0.5-inc1",
    "rand-m7-n3-p0.8-mstd101",
    "rand-mstd1-tweights",
    "original-mstd0.5",
    "v0r",
    "3a",
]


def policy(name: str | None, *, jitter: float = 0.0, kernel: str = "bicubic") -> Policy:
    wanted = {"auto_augment": name, "color_jitter": jitter, "interpolation": kernel}
    return Policy(changed(RECIPE, image_size=32, **wanted), MEAN)


def by_timm(name: str, image: Tensor, key: int, kernel: str) -> Tensor:
    """Return what timm's transform makes of an image, as its `create_transform` sets it up."""
    from PIL import Image

    given: dict[str, Any] = {
        "translate_const": int(32 * 0.45),
        "img_mean": tuple(min(255, round(255 * value)) for value in MEAN),
        "interpolation": Image.Resampling[kernel.upper()],
    }
    make = rand_augment_transform if name.startswith("rand") else auto_augment_transform
    transform = make(name, given)
    random.seed(key)
    numpy.random.seed(key)
    return as_tensor(transform(as_pil(image)))


def test_every_operation_of_timm_is_known() -> None:
    assert _OURS.keys() == NAME_TO_OP.keys()


@pytest.mark.paper("DE-05", "D3-10")
@pytest.mark.parametrize("kernel", ["bilinear", "bicubic"])
@pytest.mark.parametrize("name", POLICIES)
def test_from_the_same_draws_come_the_images_of_timm(name: str, kernel: str) -> None:
    mine = policy(name, kernel=kernel)
    images = pictures(height=SIZE[0], width=SIZE[1])[:2]
    differing: list[float] = []
    for key in range(60):
        for image in images:
            found = mine.apply(image[None], mine.draw(1, SIZE, key))[0]
            expected = by_timm(name, image, key, kernel)
            differing.append(float((found != expected).float().mean()))
    # Pillow adds up places along a line; a pixel may fall to the other side of an edge or a level.
    assert numpy.mean(differing) < 0.002 and numpy.mean([one > 0.05 for one in differing]) < 0.02


def test_each_image_of_a_batch_gets_its_own_operations() -> None:
    mine = policy("rand-m9-mstd0.5-inc1")
    images = pictures(height=SIZE[0], width=SIZE[1])
    drawn = mine.draw(len(images), SIZE, key=5)
    alone = [mine.apply(image[None], [one]) for image, one in zip(images, drawn, strict=True)]
    assert torch.equal(mine.apply(images, drawn), torch.cat(alone))


def test_all_operations_are_drawn_alike() -> None:
    mine = policy("rand-m9-mstd0.5-inc1")
    drawn = [name for one in mine.draw(6000, SIZE, key=1) for name, _ in one]
    # Two turns at one half; five of the fifteen operations are affine maps.
    assert len(drawn) == pytest.approx(6000, rel=0.05)
    counts = Counter(drawn)
    assert counts.pop("affine") == pytest.approx(2000, rel=0.1)
    assert len(counts) == 10
    assert all(count == pytest.approx(400, rel=0.2) for count in counts.values())


@pytest.mark.paper("D3-01")
def test_a_3_augment_draws_its_named_operations_equally_often() -> None:
    drawn = policy("3a-grayscale-blur").draw(400, SIZE, key=2)
    names = Counter(name for one in drawn for name, _ in one)
    # No colour is grey.
    assert names.keys() == {"color", "gaussian_blur"}
    # 200 of each on average, with a deviation of 10.
    assert all(150 < count < 250 for count in names.values())


@pytest.mark.paper("D3-01")
def test_colour_jitter_draws_three_factors_in_a_random_order() -> None:
    drawn = policy(None, jitter=0.3).draw(600, SIZE, key=2)
    orders = Counter(tuple(name for name, _ in one) for one in drawn)
    assert len(orders) == 6 and min(orders.values()) > 60
    factors = torch.tensor([values for one in drawn for _, values in one])
    assert 0.7 <= factors.min() < 0.71 and 1.29 < factors.max() <= 1.3


def test_colour_jitter_gives_the_levels_of_pillow_and_comes_after_the_policy() -> None:
    mine = policy("3a", jitter=0.3)
    image = pictures(height=SIZE[0], width=SIZE[1])[0]
    (drawn,) = mine.draw(1, SIZE, key=3)
    assert {name for name, _ in drawn[1:]} == {"brightness", "contrast", "color"}
    expected = as_pil(image)
    for name, (value,) in drawn:
        expected = PILLOW[name](expected, numpy.float32(value).item())
    assert torch.equal(mine.apply(image[None], [drawn])[0], as_tensor(expected))


def test_draws_follow_from_the_key_and_leave_the_generators_of_python_as_they_were() -> None:
    random.seed(4)
    numpy.random.seed(4)
    before = random.getstate(), numpy.random.get_state()[1].tolist()
    mine = policy("rand-m9-mstd0.5-inc1", jitter=0.0)
    first = mine.draw(8, SIZE, key=6)
    assert (random.getstate(), numpy.random.get_state()[1].tolist()) == before
    assert first == mine.draw(8, SIZE, key=6) != mine.draw(8, SIZE, key=7)


def test_the_images_that_are_given_stay_as_they_are() -> None:
    mine = policy("rand-m9-mstd0.5-inc1")
    images = pictures(height=SIZE[0], width=SIZE[1])
    mine.apply(images, mine.draw(len(images), SIZE, key=8))
    assert torch.equal(images, pictures(height=SIZE[0], width=SIZE[1]))
