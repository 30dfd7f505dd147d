"""Where the spread over seeds comes from: variance components of streams that were varied apart. Pure.

All streams are random factors, and what they do together is the rest. Negative estimates are kept as they are in
`variance` and count as 0 in shares.
"""

import math
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..jobs.design import REPEAT, Design
from .describe import LEVEL, spread_factors

# Of the simulation behind the intervals of shares: their third digit no longer moves.
DRAWS = 20_000


@dataclass(frozen=True, slots=True)
class _Square:
    """A mean square and its degrees of freedom."""

    ms: float
    df: int


def components(
    design: Design, vary: Sequence[str], runs: Sequence[tuple[Mapping[str, int], float]], *, level: float = LEVEL
) -> dict[str, Any]:
    """Split the variance of a complete, balanced study.

    Crossed designs of two streams and orthogonal ones by the analysis of variance:
    σ²(stream) = (MS(stream) - MS(rest)) / runs per value (Searle, Casella and McCulloch 1992, ch. 4). `share` is the
    stream's own part of the whole (first-order effect); `total_share` adds all that streams do together, of which each
    gets the whole (an upper bound of the total effect).
    Without repeats the hardware's part is in there too. Intervals of shares are generalised confidence intervals
    (Weerahandi 1993): each mean square over its χ².

    One at a time: the deviation of each arm, and its ratio to that of all streams moving together, by F. These hold at
    one base point; with interactions they add up to more than the whole.

    Args:
        design: crossed, orthogonal or one-at-a-time.
        vary: the streams.
        runs: the value of every stream (and `repeat`), and the metric.
        level: of the intervals.

    Returns:
        `streams`, a list of what is known of each; for the first two designs `interactions`, `rest` and the whole's
        `variance`; for the last `all` and `repeat` arms.
    """
    if design is Design.ONE_AT_A_TIME:
        return _arms(vary, runs, level)
    return _balanced(vary, runs, level)


def _balanced(vary: Sequence[str], runs: Sequence[tuple[Mapping[str, int], float]], level: float) -> dict[str, Any]:
    values = [value for _, value in runs]
    count, grand = len(values), math.fsum(values) / len(values)
    squares: dict[str, _Square] = {}
    per_level: dict[str, float] = {}
    for stream in vary:
        means = _means([streams[stream] for streams, _ in runs], values)
        per_level[stream] = count / len(means)
        total = per_level[stream] * math.fsum((mean - grand) ** 2 for mean in means)
        squares[stream] = _Square(total / (len(means) - 1), len(means) - 1)
    places = [tuple(streams[stream] for stream in vary) for streams, _ in runs]
    cells = _means(places, values)
    repeat = count // len(cells)
    between = repeat * math.fsum((mean - grand) ** 2 for mean in cells)
    own = math.fsum(square.ms * square.df for square in squares.values())
    df = len(cells) - 1 - sum(square.df for square in squares.values())
    rest = _Square(max(0.0, between - own) / df, df)
    pure = None
    if repeat > 1:
        whole = math.fsum((value - grand) ** 2 for value in values)
        pure = _Square(max(0.0, whole - between) / (count - len(cells)), count - len(cells))
    return _shared(squares, per_level, rest, pure, repeat, level)


def _means(groups: Sequence[Any], values: Sequence[float]) -> list[float]:
    members: dict[Any, list[float]] = {}
    for group, value in zip(groups, values, strict=True):
        members.setdefault(group, []).append(value)
    return [math.fsum(own) / len(own) for _, own in sorted(members.items())]


def _shared(
    squares: dict[str, _Square],
    per_level: dict[str, float],
    rest: _Square,
    pure: _Square | None,
    repeat: int,
    level: float,
) -> dict[str, Any]:
    """Turn mean squares into components and shares.

    Args:
        squares: stream -> its mean square.
        per_level: stream -> runs per value of it.
        rest: between combinations, without the streams' own.
        pure: within combinations, where they are repeated.
        repeat: runs of each combination.
        level: of the intervals.
    """
    import numpy

    draw = numpy.random.default_rng(0)

    def expected(square: _Square) -> Any:
        # What the expected mean square may have been, given the one that was found.
        return square.ms * square.df / draw.chisquare(square.df, DRAWS)

    drawn_rest = expected(rest)
    pure_ms, drawn_pure = (pure.ms, expected(pure)) if pure is not None else (0.0, numpy.zeros(DRAWS))
    point = {name: (square.ms - rest.ms) / per_level[name] for name, square in squares.items()}
    drawn = {name: (expected(square) - drawn_rest) / per_level[name] for name, square in squares.items()}
    point |= {"interactions": (rest.ms - pure_ms) / repeat, "hardware": pure_ms}
    drawn |= {"interactions": (drawn_rest - drawn_pure) / repeat, "hardware": drawn_pure}
    drawn = {name: numpy.maximum(0.0, draws) for name, draws in drawn.items()}
    whole = math.fsum(max(0.0, variance) for variance in point.values())
    drawn_whole = sum(drawn.values())

    def shares(*names: str) -> tuple[float | None, list[float] | None]:
        if whole == 0.0:
            return None, None
        part = math.fsum(max(0.0, point[name]) for name in names) / whole
        draws = sum(drawn[name] for name in names) / drawn_whole
        return part, [float(bound) for bound in numpy.percentile(draws, [50 * (1 - level), 50 * (1 + level)])]

    def part(name: str, square: _Square, **more: Any) -> dict[str, Any]:
        share, interval = shares(name)
        found = {"df": square.df, "ms": square.ms, "variance": point[name], "share": share, "share_interval": interval}
        return found | more

    streams = []
    for name, square in squares.items():
        total, interval = shares(name, "interactions")
        more = {"total_share": total, "total_share_interval": interval, **_tested(square, rest)}
        streams.append({"stream": name, **part(name, square, **more)})
    return {
        "level": level,
        "variance": whole,
        "repeat": repeat,
        "streams": streams,
        "interactions": part("interactions", rest),
        "hardware": part("hardware", pure) if pure is not None else None,
    }


def _tested(square: _Square, rest: _Square) -> dict[str, float | None]:
    from scipy.stats import f as fisher

    if rest.ms == 0.0:
        return {"f": None, "p": None}
    ratio = square.ms / rest.ms
    return {"f": ratio, "p": max(sys.float_info.min, float(fisher.sf(ratio, square.df, rest.df)))}


def _arms(vary: Sequence[str], runs: Sequence[tuple[Mapping[str, int], float]], level: float) -> dict[str, Any]:
    """Take the arms apart again: what differs from the base point in one stream, in all of them, or in none."""
    base = runs[0][0]
    arms: dict[str, list[float]] = {stream: [runs[0][1]] for stream in vary}
    arms |= {"all": [], REPEAT: [runs[0][1]]}
    for streams, value in runs[1:]:
        moved = [stream for stream in vary if streams[stream] != base[stream]]
        arms[REPEAT if not moved else moved[0] if len(moved) == 1 else "all"].append(value)
    reference = statistics.variance(arms["all"]) if len(vary) > 1 else None
    found = [_arm(name, arms[name], reference, len(arms["all"]), level) for name in vary]
    others = {name: _arm(name, arms[name], None, 0, level) if len(arms[name]) > 1 else None for name in ("all", REPEAT)}
    return {"level": level, "streams": found, **others}


def _arm(name: str, values: Sequence[float], reference: float | None, size: int, level: float) -> dict[str, Any]:
    from scipy.stats import f as fisher

    variance, df = statistics.variance(values), len(values) - 1
    std = math.sqrt(variance)
    low, high = spread_factors(len(values), level)
    found: dict[str, Any] = {
        "stream": name,
        "n": len(values),
        "std": std,
        "std_interval": [std * low, std * high] if df > 1 else None,
        "ratio": None,
        "ratio_interval": None,
    }
    if reference:
        ratio = variance / reference
        quantiles = [float(fisher.ppf(0.5 + sign * level / 2, df, size - 1)) for sign in (1, -1)]
        found |= {"ratio": ratio, "ratio_interval": [ratio / quantile for quantile in quantiles]}
    return found
