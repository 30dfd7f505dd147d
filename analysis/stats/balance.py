"""What is left of a study with holes that can still be split: a smaller study without any. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ...jobs.run.design import Design

Streams = Mapping[str, int]


def whole_part(
    design: Design, vary: Sequence[str], planned: Sequence[Streams], done: Sequence[bool]
) -> tuple[list[Streams], dict[str, list[int]]] | None:
    """Return the planned runs that make a study without holes, and stream -> the values that were
    left out for it.

    Crossed: values are left out, those first with which most runs are missing, as long as each
    stream keeps two. One at a time: the runs that are there, as long as each arm keeps two with the
    base point. An orthogonal design has no such part.

    Args:
        design: of the study.
        vary: its streams.
        planned: its runs, the base point first where one stream at a time moves.
        done: of each, whether it is there.

    Returns:
        None where nothing of the kind is left.
    """
    if design is Design.ONE_AT_A_TIME:
        return _arms(vary, planned, done)
    return _crossed(vary, planned, done) if design is Design.CROSSED else None


def _crossed(
    vary: Sequence[str], planned: Sequence[Streams], done: Sequence[bool]
) -> tuple[list[Streams], dict[str, list[int]]] | None:
    left = list(zip(planned, done, strict=True))
    dropped: dict[str, list[int]] = {}
    while not all(there for _, there in left):
        levels = {stream: {streams[stream] for streams, _ in left} for stream in vary}
        holes = Counter(
            (stream, streams[stream])
            for streams, there in left
            if not there
            for stream in vary
            if len(levels[stream]) > 2
        )
        if not holes:
            return None
        # Of values with as many holes the one that costs the fewest runs: that of the stream with
        # most values.
        stream, value = min(
            holes, key=lambda one: (-holes[one], -len(levels[one[0]]), vary.index(one[0]), one[1])
        )
        left = [(streams, there) for streams, there in left if streams[stream] != value]
        dropped.setdefault(stream, []).append(value)
    return [streams for streams, _ in left], {
        stream: sorted(values) for stream, values in dropped.items()
    }


def _arms(
    vary: Sequence[str], planned: Sequence[Streams], done: Sequence[bool]
) -> tuple[list[Streams], dict[str, list[int]]] | None:
    if not done[0]:
        return None
    base = planned[0]
    counts: dict[Any, int] = dict.fromkeys([*vary, *(["all"] if len(vary) > 1 else [])], 0)
    dropped: dict[str, list[int]] = {}
    for streams, there in zip(planned, done, strict=True):
        moved = [stream for stream in vary if streams[stream] != base[stream]]
        arm = moved[0] if len(moved) == 1 else "all"
        if there and moved:
            counts[arm] += 1
        elif moved and arm != "all":
            dropped.setdefault(arm, []).append(streams[arm])
    # The base point is part of every arm but the last.
    if any(count < (2 if arm == "all" else 1) for arm, count in counts.items()):
        return None
    return [streams for streams, there in zip(planned, done, strict=True) if there], dropped
