"""timm's image-by-image pipeline: each image follows from epoch and index alone."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from vtjobs.jobs.spec import RunSpec
from vtjobs.workers.data import Order, Position, TensorSource
from vtjobs.workers.datasets import ImageSet, load
from vtjobs.workers.pil import PilSource, PilTransform
from vtjobs.workers.randomness import Streams

from ..support.training import CPU, image_folder, on_folder, run_spec

RICH: dict[str, Any] = {
    "pipeline": "pil", "crop": "resized", "flip": 0.5, "auto_augment": "rand-m9-mstd0.5-inc1", "erasing": 0.25,
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[RunSpec, ImageSet]:
    """A run on an image folder of 14 images, four a step."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    root = image_folder(tmp_path / "images", train=7, test=1)
    spec = on_folder(run_spec(batch_size=4, virtual_ranks=2, **RICH), root)
    return spec, load(spec.dataset, "train", data_root=tmp_path, paths={spec.dataset["fingerprint"]: str(root)})


def _source(spec: RunSpec, images: ImageSet, workers: int) -> tuple[PilSource, Order]:
    streams = Streams(spec.seeds)
    order = Order(len(images), 4, 2, drop_last=False, streams=streams)
    transform = PilTransform(images, spec.dataset, spec.recipe, streams)
    return PilSource(transform, order, workers=workers, device=CPU), order


def _batches(spec: RunSpec, images: ImageSet, workers: int, first: int = 0, epoch: int = 1) -> list[Any]:
    source, order = _source(spec, images, workers)
    source.begin(epoch, first, [0, 1])
    return [
        source.batch(order.step(epoch, step)[rank], Position(epoch=epoch, step=step, virtual_rank=rank))
        for step in range(first, order.steps)
        for rank in (0, 1)
    ]


@pytest.mark.parametrize("workers", [1, 2])
def test_the_images_do_not_depend_on_the_number_of_loader_workers(folder: Any, workers: int) -> None:
    alone, loaded = _batches(*folder, 0), _batches(*folder, workers)
    assert len(alone) == len(loaded) == 8
    for (images, labels), (other_images, other_labels) in zip(alone, loaded, strict=True):
        assert torch.equal(images, other_images) and torch.equal(labels, other_labels)


def test_an_epoch_that_is_begun_in_its_middle_gives_what_is_left_of_it(folder: Any) -> None:
    whole, rest = _batches(*folder, 1), _batches(*folder, 1, first=2)
    for (images, _), (other_images, _) in zip(whole[4:], rest, strict=True):
        assert torch.equal(images, other_images)


def test_an_image_looks_different_in_each_epoch_and_has_the_shape_of_the_recipe(folder: Any) -> None:
    spec, images = folder
    transform = PilTransform(images, spec.dataset, spec.recipe, Streams(spec.seeds))
    first, second = transform(0, 3), transform(1, 3)
    assert first.shape == (3, 16, 16) and first.dtype == torch.float32
    assert not torch.equal(first, second)
    assert torch.equal(transform(0, 3), first)


@pytest.mark.parametrize("kernel", ["bilinear", "bicubic"])
def test_without_augmentation_both_pipelines_show_the_same_images(folder: Any, tmp_path: Path, kernel: str) -> None:
    spec, images = folder
    shown = []
    for pipeline in ("tensor", "pil"):
        recipe = run_spec(pipeline=pipeline, crop="none", interpolation=kernel).recipe
        if pipeline == "pil":
            transform = PilTransform(images, spec.dataset, recipe, Streams(spec.seeds))
            shown.append(torch.stack([transform(0, index) for index in range(4)]))
        else:
            source = TensorSource(images, spec.dataset, recipe, Streams(spec.seeds), CPU)
            shown.append(source.batch(torch.arange(4), Position(epoch=0, step=0, virtual_rank=0))[0])
    torch.testing.assert_close(shown[0], shown[1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kernel", ["bilinear", "bicubic"])
def test_a_padded_crop_shifts_the_image_that_the_tensor_pipeline_shows(folder: Any, kernel: str) -> None:
    spec, images = folder
    plain = run_spec(crop="none", interpolation=kernel).recipe
    source = TensorSource(images, spec.dataset, plain, Streams(spec.seeds), CPU)
    whole = source.batch(torch.arange(14), Position(epoch=0, step=0, virtual_rank=0))[0]
    recipe = run_spec(pipeline="pil", crop="pad", crop_padding=2, interpolation=kernel).recipe
    transform = PilTransform(images, spec.dataset, recipe, Streams(spec.seeds))
    black = (0.0 - 0.5) / 0.25
    places = set()
    for index in range(14):
        padded = torch.nn.functional.pad(whole[index], (2,) * 4, value=black)
        shown = transform(0, index)
        fits = [
            (top, left)
            for top in range(5)
            for left in range(5)
            if torch.allclose(padded[:, top : top + 16, left : left + 16], shown, atol=1e-4)
        ]
        assert len(fits) == 1
        places.add(fits[0])
    assert len(places) > 5


def test_grey_images_stay_grey(tmp_path: Path) -> None:
    spec = run_spec(**RICH)
    images = load(spec.dataset, "train", data_root=tmp_path, paths={})
    transform = PilTransform(images, spec.dataset, spec.recipe, Streams(spec.seeds))
    assert {transform(0, index).shape for index in range(20)} == {(1, 16, 16)}


def test_a_share_without_images_is_empty(folder: Any) -> None:
    spec, images = folder
    few = replace(images, labels=images.labels[:5])
    found = _batches(spec, few, 0)
    assert [len(labels) for _, labels in found] == [2, 2, 1, 0]
