"""timm's image-by-image pipeline: each image follows from epoch and index alone."""

import errno
import multiprocessing
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torchvision.transforms import autoaugment

from vtjobs.jobs.run.spec import RunSpec
from vtjobs.jobs.run.states import FailureClass
from vtjobs.jobs.values import changed
from vtjobs.workers.data.batches import Finish, Order, Position, TensorSource, normaliser
from vtjobs.workers.data.datasets import load
from vtjobs.workers.data.image_set import ImageSet
from vtjobs.workers.data.timm_pipeline import PilSource, PilTransform
from vtjobs.workers.randomness import Streams
from vtjobs.workers.ranks.failure import classify

from ...support.training import CPU, image_folder, on_folder, run_spec

RICH: dict[str, Any] = {
    "pipeline": "pil", "crop": "resized", "flip": 0.5, "auto_augment": "rand-m9-mstd0.5-inc1", "erasing": 0.25,
}  # fmt: skip

PLAIN: dict[str, Any] = {"flip": 0.0, "auto_augment": None, "erasing": 0.0}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[RunSpec, ImageSet]:
    """A run on an image folder of 14 images, four a step."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    root = image_folder(tmp_path / "images", train=7, test=1)
    spec = on_folder(run_spec(batch_size=4, virtual_ranks=2, **RICH), root)
    return spec, load(
        spec.dataset, "train", data_root=tmp_path, paths={spec.dataset.fingerprint: str(root)}
    )


def _source(
    spec: RunSpec,
    images: ImageSet,
    workers: int,
    *,
    repeats: int = 1,
    epochs: int = 2,
    views: int = 1,
) -> tuple[PilSource, Order]:
    streams = Streams(spec.seeds)
    order = Order(len(images), 4, 2, drop_last=False, streams=streams, repeats=repeats)
    transform = PilTransform(images, spec.dataset, spec.recipe, streams)
    finish = Finish(spec.dataset, spec.recipe, streams, CPU)
    source = PilSource(
        transform, order, finish, virtual_ranks=[0, 1], epochs=epochs, workers=workers, views=views
    )
    return source, order


def _batches(spec: RunSpec, images: ImageSet, workers: int, first: int = 0) -> list[Any]:
    """Return the batches of two epochs from a step on."""
    source, order = _source(spec, images, workers)
    source.begin(first)
    return [
        source.batch(
            order.step(epoch, step)[rank], Position(epoch=epoch, step=step, virtual_rank=rank)
        )
        for epoch, step in (divmod(step, order.steps) for step in range(first, 2 * order.steps))
        for rank in (0, 1)
    ]


def _normalised(images: torch.Tensor, spec: RunSpec) -> torch.Tensor:
    mean, std = normaliser(spec.dataset, CPU)
    return (images - mean) / std


@pytest.mark.parametrize("workers", [1, 2])
def test_the_images_do_not_depend_on_the_number_of_loader_workers(
    folder: Any, workers: int
) -> None:
    alone, loaded = _batches(*folder, 0), _batches(*folder, workers)
    assert len(alone) == len(loaded) == 16
    for (images, labels), (other_images, other_labels) in zip(alone, loaded, strict=True):
        assert torch.equal(images, other_images) and torch.equal(labels, other_labels)


@pytest.mark.parametrize("first", [2, 4, 7])
def test_who_begins_in_the_middle_gets_what_is_left_of_all_epochs(folder: Any, first: int) -> None:
    whole, rest = _batches(*folder, 1), _batches(*folder, 1, first=first)
    for (images, _), (other_images, _) in zip(whole[2 * first :], rest, strict=True):
        assert torch.equal(images, other_images)


def test_the_loader_workers_stay_when_an_epoch_ends(folder: Any) -> None:
    source, order = _source(*folder, 2, epochs=5)
    source.begin(0)
    workers = set()
    for epoch in range(5):
        for step in range(order.steps):
            for rank in (0, 1):
                place = Position(epoch=epoch, step=step, virtual_rank=rank)
                source.batch(order.step(epoch, step)[rank], place)
        workers.add(frozenset(child.pid for child in multiprocessing.active_children()))
    # At the very end they have nothing left to do.
    assert len(workers - {frozenset()}) == 1


def test_workers_hand_over_whole_levels_that_the_device_normalises(folder: Any) -> None:
    spec, images = folder
    spec = changed(spec, recipe=changed(spec.recipe, erasing=0.0))
    transform = PilTransform(images, spec.dataset, spec.recipe, Streams(spec.seeds))
    source, order = _source(spec, images, 0)
    source.begin(0)
    indices = order.step(0, 0)[0]
    found, labels = source.batch(indices, Position(epoch=0, step=0, virtual_rank=0))
    raw = torch.stack([transform(0, index) for index in indices.tolist()])
    assert torch.equal(found, _normalised(raw, spec))
    assert torch.equal(labels, images.labels[indices])


def test_copies_are_those_of_single_calls_and_the_file_is_decoded_once(
    folder: Any,
) -> None:
    spec, images = folder
    decoded: list[int] = []

    def read(index: int) -> Any:
        decoded.append(index)
        return images.pil(index)

    counted = replace(images, reader=read)
    transform = PilTransform(counted, spec.dataset, spec.recipe, Streams(spec.seeds))
    single = [transform(2, 3, copy) for copy in range(1, 4)]
    decoded.clear()
    assert torch.equal(transform.several(2, 3, range(1, 4)), torch.stack(single))
    assert decoded == [3]


@pytest.mark.paper("DR-35")
def test_an_image_looks_different_in_each_epoch_and_has_the_shape_of_the_recipe(
    folder: Any,
) -> None:
    spec, images = folder
    transform = PilTransform(images, spec.dataset, spec.recipe, Streams(spec.seeds))
    first, second = transform(0, 3), transform(1, 3)
    assert first.shape == (3, 16, 16) and first.dtype == torch.uint8
    assert not torch.equal(first, second)
    assert torch.equal(transform(0, 3), first)


@pytest.mark.parametrize("kernel", ["bilinear", "bicubic"])
@pytest.mark.parametrize("side", [8, 16, 64])
def test_pytorch_resizes_the_same_crops_as_pillow_with_nearly_the_same_levels(
    side: int, kernel: str
) -> None:
    spec = run_spec(crop="resized", interpolation=kernel)
    noise = torch.Generator().manual_seed(0)
    pictures = torch.randint(0, 256, (20, 3, side, side + 9), dtype=torch.uint8, generator=noise)
    images = ImageSet(labels=torch.arange(20), images=pictures)
    dataset = changed(spec.dataset, channels=3)
    by_pillow, by_torch = (
        PilTransform(images, dataset, changed(spec.recipe, pipeline=pipeline), Streams(spec.seeds))
        for pipeline in ("pil", "hybrid")
    )
    shown = [
        torch.stack([one(epoch, index) for epoch in range(3) for index in range(20)]).int()
        for one in (by_pillow, by_torch)
    ]
    away = (shown[0] - shown[1]).abs()
    assert int(away.max()) <= 2 and float((away > 0).double().mean()) < 0.02


@pytest.mark.parametrize("crop", ["resized", "none", "pad", "simple"])
def test_of_a_hybrid_pipeline_the_device_mirrors_and_does_what_the_policy_says(
    folder: Any, crop: str
) -> None:
    spec, images = folder
    spec = changed(spec, recipe=changed(spec.recipe, pipeline="hybrid", crop=crop))
    streams = Streams(spec.seeds)
    source, order = _source(spec, images, 0)
    source.begin(0)
    place = Position(epoch=0, step=0, virtual_rank=0)
    indices = order.step(0, 0)[0]
    found, _ = source.batch(indices, place)

    # PyTorch resizes random resized crops; Pillow does all others in both pipelines.
    plain = changed(spec.recipe, pipeline="hybrid" if crop == "resized" else "pil", **PLAIN)
    crops = PilTransform(images, spec.dataset, plain, streams)
    raw = torch.stack([crops(0, index) for index in indices.tolist()])
    in_memory = changed(spec.recipe, pipeline="tensor")
    assert torch.equal(found, Finish(spec.dataset, in_memory, streams, CPU)(raw, place))
    assert not torch.equal(found, _normalised(raw, spec))


@pytest.mark.parametrize("shape", [(1, 1), (1, 300), (300, 1), (2, 2)])
def test_pytorch_gets_a_pixel_where_a_crop_would_have_none(shape: tuple[int, int]) -> None:
    spec = run_spec(pipeline="hybrid", crop="resized", crop_scale=(0.0001, 0.001))
    pixels = torch.full((1, 3, *shape), 9, dtype=torch.uint8)
    images = ImageSet(labels=torch.zeros(1), images=pixels)
    transform = PilTransform(
        images, changed(spec.dataset, channels=3), spec.recipe, Streams(spec.seeds)
    )
    assert all(bool((transform(epoch, 0) == 9).all()) for epoch in range(20))


def test_a_hybrid_pipeline_does_not_depend_on_the_number_of_loader_workers(folder: Any) -> None:
    spec, images = folder
    spec = changed(spec, recipe=changed(spec.recipe, pipeline="hybrid"))
    alone, loaded = _batches(spec, images, 0), _batches(spec, images, 2)
    assert all(torch.equal(one[0], other[0]) for one, other in zip(alone, loaded, strict=True))


def test_a_transform_of_ones_own_gets_the_whole_image_in_a_hybrid_pipeline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec = run_spec(pipeline="hybrid", crop="resized")
    pixels = torch.full((1, 3, 20, 30), 7, dtype=torch.uint8)
    images = ImageSet(labels=torch.zeros(1), images=pixels)
    transform = PilTransform(
        images, changed(spec.dataset, channels=3), spec.recipe, Streams(spec.seeds)
    )
    shown: list[tuple[int, int]] = []

    def brighter(image: Any) -> Any:
        shown.append(image.size)
        return image.point(lambda level: level + 1)

    monkeypatch.setattr(transform, "own", brighter)
    assert bool((transform(0, 0) == 8).all())
    assert shown == [(30, 20)]


@pytest.mark.parametrize("kernel", ["bilinear", "bicubic"])
def test_without_augmentation_both_pipelines_show_the_same_images(
    folder: Any, tmp_path: Path, kernel: str
) -> None:
    spec, images = folder
    shown = []
    for pipeline in ("tensor", "pil"):
        recipe = run_spec(pipeline=pipeline, crop="none", interpolation=kernel).recipe
        if pipeline == "pil":
            transform = PilTransform(images, spec.dataset, recipe, Streams(spec.seeds))
            raw = torch.stack([transform(0, index) for index in range(4)])
            shown.append(_normalised(raw, spec))
        else:
            source = TensorSource(images, spec.dataset, recipe, Streams(spec.seeds), CPU)
            shown.append(
                source.batch(torch.arange(4), Position(epoch=0, step=0, virtual_rank=0))[0]
            )
    torch.testing.assert_close(shown[0], shown[1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kernel", ["bilinear", "bicubic"])
def test_a_padded_crop_shifts_the_image_that_the_tensor_pipeline_shows(
    folder: Any, kernel: str
) -> None:
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
        shown = _normalised(transform(0, index), spec)[0]
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
    assert [tuple(images.shape) for images, _ in found[:4]] == [
        (count, 3, 16, 16) for count in (2, 2, 1, 0)
    ]


@pytest.mark.paper("DE-04")
def test_each_copy_of_an_image_is_augmented_anew(folder: Any) -> None:
    spec, images = folder
    transform = PilTransform(images, spec.dataset, spec.recipe, Streams(spec.seeds))
    first, second = transform(0, 3, 0), transform(0, 3, 1)
    assert torch.equal(first, transform(0, 3))
    assert not torch.equal(first, second)
    assert torch.equal(second, transform(0, 3, 1))


def test_loader_workers_make_each_copy_with_its_own_draws(folder: Any) -> None:
    spec, images = folder
    spec = changed(spec, recipe=changed(spec.recipe, erasing=0.0))
    source, order = _source(spec, images, 1, repeats=2)
    transform = source.transform
    source.begin(0)
    one, other = (
        source.batch(order.step(0, 0)[rank], Position(epoch=0, step=0, virtual_rank=rank))[0]
        for rank in (0, 1)
    )
    image = int(order.step(0, 0)[0][0])
    expected = [_normalised(transform(0, image, copy), spec)[0] for copy in (0, 1)]
    assert torch.equal(one[0], expected[0]) and torch.equal(other[0], expected[1])


def test_views_of_an_image_follow_each_other_and_the_first_is_what_one_view_would_be(
    folder: Any,
) -> None:
    spec, images = folder
    shown = []
    for views in (1, 3):
        source, order = _source(spec, images, 1, views=views)
        source.begin(0)
        where = Position(epoch=0, step=0, virtual_rank=0)
        shown.append(source.batch(order.step(0, 0)[0], where))
    (alone, labels), (views_of, same_labels) = shown
    assert len(views_of) == 3 * len(alone) and torch.equal(labels, same_labels)
    assert torch.equal(views_of[::3], alone)
    assert not torch.equal(views_of[1::3], alone) and not torch.equal(
        views_of[2::3], views_of[1::3]
    )


@pytest.mark.paper("D3-02")
@pytest.mark.parametrize("shape", [(40, 20), (20, 40)])
def test_the_simple_crop_moves_along_the_longer_side_and_mirrors_the_borders(
    shape: tuple[int, int],
) -> None:
    """Rows (or columns) tell where they come from.

    The shorter side is the whole image, shifted by four at most.
    """
    height, width = shape
    ramp = (
        torch.arange(height)[:, None].expand(height, width)
        if height > width
        else torch.arange(width).expand(shape)
    )
    grey = (ramp * 6).to(torch.uint8)
    images = ImageSet(labels=torch.zeros(1, dtype=torch.int64), images=grey[None, None])
    spec = run_spec(pipeline="pil", crop="simple", image_size=20)
    transform = PilTransform(images, spec.dataset, spec.recipe, Streams(spec.seeds))
    # 20 + 2 * 4 rows to choose from across, 40 + 2 * 4 along; what lies beyond an end comes back.
    padded = [*range(4, 0, -1), *range(40), *range(38, 34, -1)]
    windows = {tuple(padded[start : start + 20]) for start in range(29)}
    seen = set()
    for epoch in range(40):
        shown = (transform(epoch, 0)[0] / 6).round().int()
        lines = shown if height > width else shown.T
        assert all(bool((line == line[0]).all()) for line in lines)
        seen.add(tuple(int(line[0]) for line in lines))
    assert seen <= windows
    assert len(seen) > 10


@pytest.mark.paper("D3-01")
def test_three_augment_does_exactly_one_of_its_three_each_as_often(folder: Any) -> None:
    """Grey has no colour, a solarized image no bright level that was not dark before, a blurred one
    neither.
    """
    spec, _ = folder
    draw = torch.Generator().manual_seed(0)
    # Bright red noise: a solarized one loses its bright reds, a grey one its colour, a blurred one
    # its contrast.
    pixels = torch.stack(
        [torch.randint(160, 256, (16, 16), generator=draw), *torch.zeros(2, 16, 16)]
    ).to(torch.uint8)
    images = ImageSet(labels=torch.zeros(1, dtype=torch.int64), images=pixels[None])
    recipe = run_spec(pipeline="pil", crop="none", auto_augment="3a").recipe
    transform = PilTransform(images, spec.dataset, recipe, Streams(spec.seeds))
    counts = dict.fromkeys(("grey", "solarized", "blurred"), 0)
    for epoch in range(300):
        red, green, blue = transform(epoch, 0).float()
        if torch.allclose(red, green, atol=0.5) and torch.allclose(red, blue, atol=0.5):
            counts["grey"] += 1
        elif float(red.max()) < 128:
            counts["solarized"] += 1
        else:
            assert float(red.std()) < float(pixels[0].float().std())
            counts["blurred"] += 1
    # 100 of each on average, with a deviation of 8.
    assert all(70 < count < 130 for count in counts.values()), counts


def test_a_3_augment_may_draw_from_one_operation_alone(folder: Any) -> None:
    spec, images = folder
    recipe = run_spec(pipeline="pil", crop="none", auto_augment="3a-grayscale").recipe
    transform = PilTransform(images, spec.dataset, recipe, Streams(spec.seeds))
    for epoch in range(20):
        red, green, blue = transform(epoch, 0)
        assert torch.equal(red, green) and torch.equal(red, blue)


@pytest.mark.paper("D3-10")
def test_trivial_augment_draws_each_of_its_14_operations_as_often(
    folder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, images = folder
    recipe = run_spec(pipeline="pil", crop="none", auto_augment="trivial").recipe
    transform = PilTransform(images, spec.dataset, recipe, Streams(spec.seeds))
    counts: Counter[str] = Counter()
    really = autoaugment._apply_op

    def note(image: Any, name: str, *rest: Any, **options: Any) -> Any:
        counts[name] += 1
        return really(image, name, *rest, **options)

    monkeypatch.setattr(autoaugment, "_apply_op", note)
    shown = [transform(epoch, 0) for epoch in range(700)]
    # 50 of each on average, with a deviation of 7.
    assert len(counts) == 14 and all(22 < count < 78 for count in counts.values()), counts
    assert torch.equal(transform(3, 0), shown[3]), "they follow from epoch and image"
    assert len({image.numpy().tobytes() for image in shown}) > 100


@pytest.mark.parametrize("workers", [0, 2])
def test_a_fault_of_the_file_system_keeps_its_number(folder: Any, workers: int) -> None:
    spec, images = folder

    def fail(_: int) -> Any:
        raise OSError(errno.EIO, "Input/output error")

    source, order = _source(spec, replace(images, images=None, reader=fail), workers)
    source.begin(0)
    with pytest.raises(OSError, match="Input/output") as caught:
        source.batch(order.step(0, 0)[0], Position(epoch=0, step=0, virtual_rank=0))
    assert classify(caught.value) is FailureClass.STORAGE
    # The error has frames that refer to the loader: it would keep its workers.
    assert not multiprocessing.active_children()
