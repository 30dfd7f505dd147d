"""From a split to batches: each image once an epoch, cut the same way at any world size."""

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vtjobs.jobs.grid import catalogue
from vtjobs.jobs.run.spec import seeds_of
from vtjobs.jobs.values import changed
from vtjobs.workers.data import batches
from vtjobs.workers.data.batches import EvalSource, Order, Position, TensorSource, normalised
from vtjobs.workers.data.datasets import load
from vtjobs.workers.data.image_set import ImageSet
from vtjobs.workers.errors import DataError
from vtjobs.workers.randomness import Streams

from ...support.training import CPU, run_spec

SPEC = run_spec(image_size=4)
PLAIN = changed(SPEC.dataset, mean=[0.0], std=[1 / 255], classes=3)


def _numbered(count: int, *, size: int = 4) -> ImageSet:
    """Return images whose pixels tell their number."""
    numbers = torch.arange(count)
    return ImageSet(
        labels=numbers,
        images=numbers.to(torch.uint8)[:, None, None, None].expand(-1, 1, size, size),
    )


@settings(max_examples=60, deadline=None)
@given(
    size=st.integers(1, 300), shares=st.integers(1, 8), each=st.integers(1, 20), drop_last=st.booleans(),
    epoch=st.integers(0, 50),
)  # fmt: skip
def test_an_epoch_gives_each_image_to_one_share_of_one_step(
    size: int, shares: int, each: int, drop_last: bool, epoch: int
) -> None:
    batch = shares * each
    if drop_last and size < batch:
        with pytest.raises(DataError, match="fewer than one batch"):
            Order(size, batch, shares, drop_last=True, streams=Streams(seeds_of(0)))
        return
    order = Order(size, batch, shares, drop_last=drop_last, streams=Streams(seeds_of(0)))
    steps = [order.step(epoch, step) for step in range(order.steps)]
    seen = torch.cat([share for step in steps for share in step])
    assert len(seen) == (size // batch * batch if drop_last else size)
    assert len(seen.unique()) == len(seen) and 0 <= int(seen.min()) and int(seen.max()) < size
    for step in steps:
        counts = [len(share) for share in step]
        assert len(step) == shares and max(counts) - min(counts) <= 1


def test_the_order_follows_from_the_epoch_and_not_from_where_one_began() -> None:
    whole = Order(50, 8, 2, drop_last=False, streams=Streams(seeds_of(1)))
    epochs = [
        [share.tolist() for step in range(7) for share in whole.step(epoch, step)]
        for epoch in range(3)
    ]
    late = Order(50, 8, 2, drop_last=False, streams=Streams(seeds_of(1)))
    assert [share.tolist() for step in range(7) for share in late.step(2, step)] == epochs[2]
    assert epochs[0] != epochs[1] != epochs[2]


@pytest.mark.parametrize(
    "recipe",
    [
        {"crop": "pad"},
        {"crop": "resized", "auto_augment": "rand-m9-mstd0.5-inc1"},
        {"auto_augment": "3a", "color_jitter": 0.3},
    ],
)
def test_a_share_looks_the_same_whatever_was_asked_for_before(
    tmp_path: Path, recipe: dict[str, Any]
) -> None:
    spec = run_spec(flip=0.5, erasing=0.5, **recipe)
    images = load(spec.dataset, "train", data_root=tmp_path, paths={})
    indices = torch.arange(10)
    sources = [
        TensorSource(images, spec.dataset, spec.recipe, Streams(spec.seeds), CPU) for _ in range(2)
    ]
    sources[0].batch(torch.arange(50), Position(epoch=0, step=0, virtual_rank=0))
    torch.manual_seed(9)
    found = [source.batch(indices, Position(epoch=1, step=2, virtual_rank=3)) for source in sources]
    assert torch.equal(found[0][0], found[1][0]) and torch.equal(found[0][1], found[1][1])
    other, _ = sources[0].batch(indices, Position(epoch=1, step=2, virtual_rank=4))
    assert not torch.equal(other, found[0][0])
    assert found[0][0].shape == (10, 1, 16, 16) and found[0][0].dtype == torch.float32


def test_views_of_an_image_follow_each_other_and_the_first_is_what_one_view_would_be(
    tmp_path: Path,
) -> None:
    spec = run_spec(flip=0.5, erasing=0.5, crop="pad")
    images = load(spec.dataset, "train", data_root=tmp_path, paths={})
    where = Position(epoch=1, step=0, virtual_rank=0)
    shown = [
        TensorSource(
            images, spec.dataset, spec.recipe, Streams(spec.seeds), CPU, views=views
        ).batch(torch.arange(10), where)
        for views in (1, 3)
    ]
    (alone, labels), (views_of, same_labels) = shown
    assert len(views_of) == 30 and torch.equal(labels, same_labels)
    assert torch.equal(views_of[::3], alone)
    assert not torch.equal(views_of[1::3], alone) and not torch.equal(
        views_of[2::3], views_of[1::3]
    )


def test_each_consumer_of_augmentation_has_draws_of_its_own(tmp_path: Path) -> None:
    spec = run_spec(crop="pad", flip=0.5)
    more = run_spec(crop="pad", flip=0.5, erasing=1.0)
    images = load(spec.dataset, "train", data_root=tmp_path, paths={})
    where = Position(epoch=0, step=0, virtual_rank=0)
    shown = [
        TensorSource(images, one.dataset, one.recipe, Streams(one.seeds), CPU).batch(
            torch.arange(20), where
        )[0]
        for one in (spec, more)
    ]
    # Erasing took a part of each image, and shifted and flipped none of them otherwise.
    same = (shown[0] == shown[1]).flatten(1).double().mean(1)
    assert bool(((same > 0.6) & (same < 1)).all())


@settings(max_examples=40, deadline=None)
@given(size=st.integers(1, 200), world_size=st.integers(1, 9), batch=st.integers(1, 16))
def test_scoring_takes_each_image_once_at_any_world_size(
    size: int, world_size: int, batch: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches, "EVAL_BATCH", batch)
        sources = [
            EvalSource(
                _numbered(size),
                PLAIN,
                SPEC.recipe,
                CPU,
                rank=rank,
                world_size=world_size,
            )
            for rank in range(world_size)
        ]
        ranks = [list(source.batches()) for source in sources]
    # No rank decodes, or holds, what another one scores.
    assert sum(len(source.labels) for source in sources) == size
    # As many turns on every rank, or a vote between two batches would wait for ever.
    assert len({len(turns) for turns in ranks}) == 1
    seen = torch.cat([turn[1] for turns in ranks for turn in turns if turn is not None])
    assert sorted(seen.tolist()) == list(range(size))
    for turns in ranks:
        for images, labels in (turn for turn in turns if turn is not None):
            assert torch.equal(images[:, 0, 0, 0].round().long(), labels)


def test_a_resized_crop_of_images_of_many_sizes_needs_the_pillow_pipeline() -> None:
    spec = run_spec(crop="resized")
    images = ImageSet(labels=torch.zeros(2, dtype=torch.int64), reader=lambda _: None)
    with pytest.raises(DataError, match="pipeline: pil"):
        TensorSource(images, spec.dataset, spec.recipe, Streams(spec.seeds), CPU)


def test_every_dataset_of_the_catalogue_has_a_mean_and_deviation_for_each_channel() -> None:
    for name in catalogue.datasets():
        facts = catalogue.dataset(name)
        mean, std = batches.normaliser(facts, CPU)
        assert mean.shape == std.shape == (1, facts.channels, 1, 1)


def test_the_digits_are_normalised_to_zero_mean_and_unit_deviation(tmp_path: Path) -> None:
    facts = catalogue.dataset("digits")
    images = load(facts, "train", data_root=tmp_path, paths={}).images
    assert images is not None
    mean, std = batches.normaliser(facts, CPU)
    normal = (images.float() - mean) / std
    assert abs(float(normal.mean())) < 0.01 and abs(float(normal.std()) - 1) < 0.01


@pytest.mark.parametrize("kind", ["by channel", "by pixel", "float"])
def test_images_are_normalised_in_memory_of_their_own_channel_by_channel(kind: str) -> None:
    levels = torch.randint(0, 256, (4, 6, 5, 3), dtype=torch.uint8).permute(0, 3, 1, 2)
    shown = {"by pixel": levels, "by channel": levels.contiguous(), "float": levels.float()}[kind]
    before = shown.clone()
    mean, std = torch.rand(1, 3, 1, 1), 1 + torch.rand(1, 3, 1, 1)
    found = normalised(shown, mean, std)
    assert torch.equal(found, (levels.float() - mean) / std)
    assert found.is_contiguous() and torch.equal(shown, before)


@pytest.mark.paper("DE-04", "OR-10")
@settings(max_examples=40, deadline=None)
@given(
    size=st.integers(8, 300),
    shares=st.integers(2, 8),
    each=st.integers(1, 20),
    repeats=st.integers(2, 4),
)
def test_repeated_images_come_in_as_many_copies_on_different_shares(
    size: int, shares: int, each: int, repeats: int
) -> None:
    repeats = min(repeats, shares)
    order = Order(
        size, shares * each, shares, drop_last=False, streams=Streams(seeds_of(0)), repeats=repeats
    )
    where: dict[int, list[tuple[int, int]]] = {}
    for step in range(order.steps):
        for rank, (share, copies) in enumerate(
            zip(order.step(0, step), order.copies(step), strict=True)
        ):
            for image, copy in zip(share.tolist(), copies.tolist(), strict=True):
                where.setdefault(image, []).append((rank, copy))
    # The epoch is as long as ever, and ends within the copies of its last image.
    assert sum(map(len, where.values())) == size
    assert len(where) == -(-size // repeats)
    assert sorted(map(len, where.values()))[1:] == [repeats] * (len(where) - 1)
    for places in where.values():
        ranks, copies = zip(*places, strict=True)
        assert len(set(ranks)) == len(ranks)
        assert sorted(copies) == list(range(len(copies)))
