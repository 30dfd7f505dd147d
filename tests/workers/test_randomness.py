"""Randomness as a function of seed, stream, consumer and position."""

import numpy
import torch
from hypothesis import given
from hypothesis import strategies as st

from vtjobs.jobs.run.spec import STREAMS, seeds_of
from vtjobs.workers.randomness import Streams

POSITIONS = st.lists(st.integers(0, 10**6), max_size=4)
CONSUMERS = st.sampled_from(["backbone", "head", "shift", "flip", "mixup", "train"])


@given(st.integers(0, 2**31), st.sampled_from(STREAMS), CONSUMERS, POSITIONS)
def test_a_draw_follows_from_its_place_and_not_from_what_was_drawn_before(
    seed: int, stream: str, consumer: str, position: list[int]
) -> None:
    streams = Streams(seeds_of(seed))
    first = torch.rand(3, generator=streams.generator(stream, consumer, *position))
    streams.seed_torch("drop", "other", 1)
    torch.rand(17)
    assert torch.equal(
        torch.rand(3, generator=Streams(seeds_of(seed)).generator(stream, consumer, *position)),
        first,
    )
    streams.seed_torch(stream, consumer, *position)
    assert torch.equal(torch.rand(3), first)


@given(st.data())
def test_two_places_never_share_a_key(data: st.DataObject) -> None:
    place = st.tuples(st.integers(0, 50), st.sampled_from(STREAMS), CONSUMERS, POSITIONS.map(tuple))
    one, other = data.draw(place), data.draw(place)
    keys = [
        Streams(seeds_of(seed)).key(stream, user, *where)
        for seed, stream, user, where in (one, other)
    ]
    assert (keys[0] == keys[1]) == (one == other)
    assert all(0 <= key < 1 << 63 for key in keys)


def test_a_stream_has_its_own_seed() -> None:
    base, moved = Streams(seeds_of(1)), Streams(seeds_of(1) | {"order": 2})
    for stream in STREAMS:
        assert (base.key(stream, "x", 0) == moved.key(stream, "x", 0)) == (stream != "order")


def test_keys_never_change_between_versions() -> None:
    # A change of this number changes every result: `NUMERICS` must then be raised.
    assert Streams(seeds_of(0)).key("augment", "shift", 1, 2, 3) == 792141081447554998


def test_numpys_generator_is_seeded_for_mixup_alone() -> None:
    streams = Streams(seeds_of(3))
    before = torch.get_rng_state()
    streams.seed_numpy("mix", "mixup", 0, 1, 2)
    first = numpy.random.rand(4)
    numpy.random.rand(100)
    streams.seed_numpy("mix", "mixup", 0, 1, 2)
    assert numpy.array_equal(numpy.random.rand(4), first)
    assert torch.equal(torch.get_rng_state(), before)
