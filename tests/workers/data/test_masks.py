"""Images with masks: read as they are published, and augmented together."""

from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from PIL import Image

from vtjobs.jobs.grid import catalogue
from vtjobs.jobs.grid.recipe import Recipe
from vtjobs.jobs.values import changed
from vtjobs.workers.data.datasets import load_masks
from vtjobs.workers.data.image_set import ImageSet
from vtjobs.workers.data.mask_pipeline import (
    MaskSamples,
    MaskSource,
    MaskTransform,
    distorted,
)
from vtjobs.workers.data.masks import IGNORED, ade20k
from vtjobs.workers.errors import DataError, DataMissing
from vtjobs.workers.randomness import Streams

from ...support.mask_images import mask_folder
from ...support.training import CPU, MASKED, run_spec

DATASET = changed(catalogue.dataset("ade20k"), classes=3, train=6, test=2)


def _write(path: Path, levels: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(numpy.asarray(levels, dtype=numpy.uint8)).save(path)


# Reading -------------------------------------------------------------------------------------------


def test_of_ade20k_the_levels_from_1_on_are_classes_and_0_is_none(tmp_path: Path) -> None:
    root = tmp_path / "ade20k" / "ADEChallengeData2016"
    for part in ("training", "validation"):
        _write(root / "images" / part / "ADE_1.jpg", numpy.zeros((2, 3, 3)))
        _write(root / "annotations" / part / "ADE_1.png", [[0, 1, 2], [150, 7, 0]])
    found = ade20k(tmp_path, "test")
    expected = [[IGNORED, 0, 1], [149, 6, IGNORED]]
    assert found.mask(0).tolist() == expected
    assert found.pictures.paths == [root / "images" / "validation" / "ADE_1.jpg"]


def test_of_a_labs_own_folder_a_level_is_a_class_and_255_is_none(tmp_path: Path) -> None:
    root = mask_folder(tmp_path / "scenes", train=3, test=2)
    loaded = load_masks(root, "train", classes=3)
    mask = loaded.mask(2)
    picture = loaded.pil(2)
    assert (picture.height, picture.width) == tuple(mask.shape)
    assert set(mask.unique().tolist()) <= {0, 1, 2, IGNORED}
    assert (mask[0] == IGNORED).all()
    assert torch.equal(loaded.part(torch.tensor([2])).mask(0), mask), "a part keeps its masks"


def test_what_is_no_image_is_no_part_of_a_folder(tmp_path: Path) -> None:
    root = mask_folder(tmp_path / "scenes", train=2, test=1)
    (root / "images" / "train" / ".DS_Store").write_bytes(b"")
    assert len(load_masks(root, "train", classes=3)) == 2


@pytest.mark.parametrize(
    ("spoil", "error", "message"),
    [
        (lambda mask: _write(mask, [[0, 3]]), DataError, "level 3; classes are 0 to 2"),
        (lambda mask: _write(mask, numpy.zeros((2, 2, 3))), DataError, "one channel of 8 bits"),
        (lambda mask: mask.write_bytes(b"no picture"), DataError, "cannot be read"),
        (Path.unlink, DataMissing, "cannot be read"),
    ],
    ids=["a level too high", "colours", "no picture", "gone"],
)
def test_a_mask_that_cannot_be_used_is_an_error_that_names_its_file(
    tmp_path: Path, spoil: Any, error: type[Exception], message: str
) -> None:
    root = mask_folder(tmp_path / "scenes", train=2, test=1)
    loaded = load_masks(root, "train", classes=3)
    mask = root / "masks" / "train" / "1.png"
    spoil(mask)
    with pytest.raises(error, match=f"{mask}.*{message}"):
        loaded.mask(1)


def test_an_image_without_a_mask_is_named(tmp_path: Path) -> None:
    root = mask_folder(tmp_path / "scenes", train=2, test=1)
    (root / "masks" / "train" / "1.png").unlink()
    with pytest.raises(DataMissing, match=r"images/train/1\.png has no mask .*masks/train/1\.png"):
        load_masks(root, "train", classes=3)


def test_an_image_and_a_mask_of_different_sizes_are_an_error_that_names_both(
    tmp_path: Path,
) -> None:
    root = mask_folder(tmp_path / "scenes", train=2, test=1)
    _write(root / "masks" / "train" / "0.png", numpy.zeros((4, 4)))
    samples = _samples(load_masks(root, "train", classes=3))
    with pytest.raises(DataError, match=r"0\.png has 24x20, its mask 4x4 pixels"):
        samples.sample(0, 0, range(1))


# Augmentation --------------------------------------------------------------------------------------


def _recipe(**more: Any) -> Any:
    fields = {"epochs": 1, "lr": 1e-3, "image_size": 16, "interpolation": "bilinear"}
    return Recipe.model_validate(fields | MASKED | more).settings


def _samples(images: ImageSet, **more: Any) -> MaskSamples:
    return MaskSamples(images, DATASET, _recipe(**more), Streams(run_spec().seeds))


def _striped(height: int, width: int) -> ImageSet:
    """Return a set of one image whose pixels are 100 · their class."""
    mask = (torch.arange(width) // 5 % 3).repeat(height, 1).to(torch.uint8)
    levels = (100 * mask).numpy()
    image = Image.fromarray(numpy.stack([levels] * 3, axis=2))
    return ImageSet(
        labels=torch.zeros(1, dtype=torch.int64), reader=lambda _: image, masks=lambda _: mask
    )


def test_a_mask_goes_wherever_its_image_goes() -> None:
    samples = _samples(_striped(40, 55), color_jitter=0.0)
    corners = set()
    for epoch in range(30):
        image, mask = samples.sample(epoch, 0, range(1))
        assert tuple(image.shape) == (1, 3, 16, 16) and tuple(mask.shape) == (16, 16)
        known = mask != IGNORED
        off = (image[0, 0].float() - 100 * mask).abs()[known]
        # Between two stripes a resized image has levels in between.
        assert (off < 50).float().mean() > 0.75, epoch
        corners.add(tuple(mask[0].tolist()))
    assert len(corners) > 10, "each epoch has draws of its own"


def test_what_is_drawn_follows_from_epoch_and_image_alone() -> None:
    images = _striped(40, 55)
    first = _samples(images).sample(3, 0, range(1))
    torch.manual_seed(99)
    again = _samples(images).sample(3, 0, range(1))
    assert all(torch.equal(one, other) for one, other in zip(first, again, strict=True))


def test_what_an_image_lacks_for_a_crop_is_the_mean_colour_and_no_class() -> None:
    transform = MaskTransform(DATASET, _recipe(rescale=[0.5, 0.5], flip=0.0, color_jitter=0.0))
    images = _striped(30, 30)
    image, mask = transform(images.pil(0), images.mask(0))
    assert (mask[8:] == IGNORED).all() and (mask[:, 8:] == IGNORED).all()
    assert (mask[:8, :8] != IGNORED).all()
    mean = [round(255 * value) for value in DATASET.mean]
    assert image[:, 8:, 8:].flatten(1).unique(dim=1).flatten().tolist() == mean


def test_without_a_random_crop_the_middle_is_taken() -> None:
    transform = MaskTransform(
        DATASET, _recipe(crop="none", rescale=None, flip=0.0, color_jitter=0.0)
    )
    images = _striped(16, 36)
    _, mask = transform(images.pil(0), images.mask(0))
    assert torch.equal(mask, images.mask(0)[:, 10:26].long())


def test_a_distortion_of_colours_is_within_the_bounds_of_the_published_program() -> None:
    torch.manual_seed(0)
    grey = torch.full((3, 4, 4), 100, dtype=torch.uint8)
    red = torch.zeros(3, 4, 4, dtype=torch.uint8)
    red[0] = 200
    brightest = [int(distorted(grey, 0.5)[0, 0, 0]) for _ in range(400)]
    # Brightness by 32 either way, then a factor from 0.5 to 1.5.
    assert 30 <= min(brightest) < 50 and 150 < max(brightest) <= 198
    assert 0.15 < brightest.count(100) / len(brightest) < 0.35, "half times half is left as it is"
    hues = {tuple(distorted(red, 0.5)[:, 0, 0].tolist()) for _ in range(400)}
    assert any(green > 0 for _, green, _ in hues) and any(blue > 0 for _, _, blue in hues)
    assert all(first >= max(rest) for first, *rest in hues), "by 36 degrees red stays red"


def test_a_crop_of_mostly_one_class_is_drawn_again() -> None:
    # One column in five is of class 1: most squares of 16 have none or little of it.
    mask = torch.zeros(16, 200, dtype=torch.uint8)
    mask[:, 150:] = 1
    image = Image.fromarray(numpy.zeros((16, 200, 3), dtype=numpy.uint8))
    images = ImageSet(
        labels=torch.zeros(1, dtype=torch.int64), reader=lambda _: image, masks=lambda _: mask
    )
    samples = _samples(images, rescale=None)
    mixed = [len(samples.sample(epoch, 0, range(1))[1].unique()) == 2 for epoch in range(60)]
    # A square at random lies over the border in 15 of 185 places; ten draws find it more often.
    assert sum(mixed) / len(mixed) > 0.25


def test_for_scoring_an_image_keeps_its_sides_ratio_and_its_mask_its_size(tmp_path: Path) -> None:
    source = MaskSource(_striped(20, 50), DATASET, _recipe(), CPU, scales=(0.5, 1.0))
    (scene,) = source.scenes()
    assert scene is not None
    assert [tuple(one.shape) for one in scene.images] == [(1, 3, 8, 20), (1, 3, 16, 40)]
    assert torch.equal(scene.mask, _striped(20, 50).mask(0).long())
