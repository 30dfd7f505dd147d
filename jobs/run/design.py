"""Designs that vary the streams of randomness apart: which run gets which value of which stream."""

import itertools
from collections.abc import Mapping, Sequence
from enum import StrEnum

from ..documents import Document
from .spec import STREAMS

# Beside the streams: which of several runs with the same values it is; they differ by the
# hardware's luck alone.
REPEAT = "repeat"


class Design(StrEnum):
    """How the values of the streams are combined."""

    TOGETHER = "together"
    """One seed moves them all: the usual replicates."""
    CROSSED = "crossed"
    """Every combination of the values of the streams."""
    ORTHOGONAL = "orthogonal"
    """L² combinations of up to L + 1 streams with L values each, every pair of values of two
    streams once; L is prime.
    """
    ONE_AT_A_TIME = "one-at-a-time"
    """Each stream by itself from one base point, and all of them together from it."""


class StudyDesign(Document, frozen=True, kw_only=True):
    """The design of a study of streams, as a grid stores it."""

    design: Design
    vary: dict[str, list[int]]
    """Stream -> its values."""
    hold: dict[str, int]
    """Stream -> its value where it is not 0."""
    ride: list[str]
    """Streams that take a new value with every combination."""
    repeat: int
    """Runs of each combination."""


def rows(
    design: Design,
    vary: Mapping[str, Sequence[int]],
    *,
    hold: Mapping[str, int] | None = None,
    ride: Sequence[str] = (),
    repeat: int = 1,
) -> list[dict[str, int]]:
    """Return the runs of a design: stream -> value for each, and `repeat` where that is above 0.

    Args:
        design: any but `together`.
        vary: stream -> its values.
        hold: the value of streams that stay; 0 where it says nothing.
        ride: streams that take a new value with every combination.
        repeat: how often each combination is run; of `one-at-a-time`, its base point.
    """
    held = dict.fromkeys(STREAMS, 0) | dict(hold or {})
    if design is Design.ONE_AT_A_TIME:
        combinations = _one_at_a_time(vary)
        times = [repeat, *([1] * (len(combinations) - 1))]
    else:
        combinations = _crossed(vary) if design is Design.CROSSED else _orthogonal(vary)
        times = [repeat] * len(combinations)
    found: list[dict[str, int]] = []
    for number, (combination, often) in enumerate(zip(combinations, times, strict=True)):
        # Repeats share it: they are to differ by the hardware alone.
        riding = dict.fromkeys(ride, number)
        for again in range(often):
            found.append(held | combination | riding | ({REPEAT: again} if again else {}))
    return found


def _crossed(vary: Mapping[str, Sequence[int]]) -> list[dict[str, int]]:
    return [dict(zip(vary, values, strict=True)) for values in itertools.product(*vary.values())]


def _orthogonal(vary: Mapping[str, Sequence[int]]) -> list[dict[str, int]]:
    """Columns j, i, i + j, i + 2j, … mod L of the L² pairs (i, j), an orthogonal array of strength
    2 (Bush 1952).
    """
    levels = len(next(iter(vary.values())))
    found = []
    for first, second in itertools.product(range(levels), repeat=2):
        columns = [second, *((first + factor * second) % levels for factor in range(levels))]
        found.append(
            {
                stream: values[level]
                for (stream, values), level in zip(vary.items(), columns, strict=False)
            }
        )
    return found


def _one_at_a_time(vary: Mapping[str, Sequence[int]]) -> list[dict[str, int]]:
    """The base point (each stream's first value), each stream from there, then all together with
    fresh values.
    """
    base = {stream: values[0] for stream, values in vary.items()}
    found = [base]
    for stream, values in vary.items():
        found += [base | {stream: value} for value in values[1:]]
    if len(vary) > 1:
        fresh = [
            [(value + max(values) - min(values) + 1) % 2**32 for value in values]
            for values in vary.values()
        ]
        found += [dict(zip(vary, values, strict=True)) for values in zip(*fresh, strict=False)]
    return found


def is_prime(number: int) -> bool:
    """Whether a small number is prime."""
    return number > 1 and all(number % factor for factor in range(2, int(number**0.5) + 1))


def seed_text(seed: int, streams: Mapping[str, int] | None) -> str:
    """Return a run's seed; of streams that vary apart those that differ from most of them.

    `init 3, order 1`.
    """
    if streams is None:
        return str(seed)
    values = [streams[stream] for stream in STREAMS]
    base = max(sorted(set(values)), key=values.count)
    parts = [f"{stream} {streams[stream]}" for stream in STREAMS if streams[stream] != base]
    if parts and base:
        parts.append(f"others {base}")
    return ", ".join(
        (parts or [f"all {base}"]) + ([f"{REPEAT} {streams[REPEAT]}"] if REPEAT in streams else [])
    )
