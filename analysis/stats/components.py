"""Where the spread over seeds comes from: variance components of streams that were varied apart.

Pure.

All streams are random factors, and what they do together is the rest. Negative estimates are kept
as they are in `variance` and count as 0 in shares.
"""

import itertools
import math
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...jobs.grid.design import REPEAT, Design
from .summary import LEVEL, spread_factors

# Of the simulation behind the intervals of shares: their third digit no longer moves.
DRAWS = 20_000


@dataclass(frozen=True, slots=True)
class _Square:
    """A mean square and its degrees of freedom."""

    ms: float
    df: int


def components(
    design: Design,
    vary: Sequence[str],
    runs: Sequence[tuple[Mapping[str, int], float]],
    *,
    level: float = LEVEL,
) -> dict[str, Any]:
    """Split the variance of a complete, balanced study.

    Crossed and orthogonal designs by the analysis of variance: each mean square is set equal to
    what it is expected to be, a sum of components (Searle, Casella and McCulloch 1992, ch. 4); of
    two streams σ²(stream) = (MS(stream) - MS(rest)) / runs per value. `share` is the stream's own
    part of the whole (first-order effect); `total_share` adds what it does together with others
    (total effect; of orthogonal designs an upper bound, all that any streams do together). Without
    repeats the hardware's part is in there too. Intervals of shares are generalised confidence
    intervals (Weerahandi 1993): each mean square over its χ².

    One at a time: the deviation of each arm, and its ratio to that of all streams moving together,
    by F. These hold at one base point; with interactions they add up to more than the whole.

    Args:
        design: crossed, orthogonal or one-at-a-time.
        vary: the streams.
        runs: the value of every stream (and `repeat`), and the metric.
        level: of the intervals.

    Returns:
        `streams`, a list of what is known of each; for the first two designs `interactions`, their
        `terms`, `hardware` and the whole's `variance`; for the last `all` and `repeat` arms.
    """
    if design is Design.ONE_AT_A_TIME:
        return _arms(vary, runs, level)
    return _balanced(design, vary, runs, level)


Term = tuple[str, ...]
HARDWARE: Term = ()


def _balanced(
    design: Design,
    vary: Sequence[str],
    runs: Sequence[tuple[Mapping[str, int], float]],
    level: float,
) -> dict[str, Any]:
    grand = math.fsum(value for _, value in runs) / len(runs)
    # Runs that are all equal have no spread, not that of their mean's last digit.
    equal = len({value for _, value in runs}) == 1
    values = [0.0 if equal else value - grand for _, value in runs]
    whole = tuple(vary)
    # Of an orthogonal design no interaction can be had apart: what all streams do together is what
    # their own leave.
    sizes = range(1, len(vary)) if design is Design.CROSSED else [1]
    terms = [term for size in sizes for term in itertools.combinations(vary, size)] + [whole]
    own: dict[Term, float] = {}
    squares: dict[Term, _Square] = {}
    per_level: dict[Term, float] = {}
    between = 0.0
    for term in terms:
        means = _means([tuple(streams[stream] for stream in term) for streams, _ in runs], values)
        per_level[term] = len(values) / len(means)
        between = per_level[term] * math.fsum(mean**2 for mean in means)
        below = [one for one in own if set(one) < set(term)]
        own[term] = max(0.0, between - math.fsum(own[one] for one in below))
        df = len(means) - 1 - sum(squares[one].df for one in below)
        squares[term] = _Square(own[term] / df, df)
    repeat = round(per_level[whole])
    pure = None
    if repeat > 1:
        df = len(values) - len(values) // repeat
        pure = _Square(max(0.0, math.fsum(value**2 for value in values) - between) / df, df)
    return _shared(squares, per_level, pure, repeat, level)


def _means(groups: Sequence[Any], values: Sequence[float]) -> list[float]:
    members: dict[Any, list[float]] = {}
    for group, value in zip(groups, values, strict=True):
        members.setdefault(group, []).append(value)
    return [math.fsum(own) / len(own) for _, own in sorted(members.items())]


def _signs(term: Term, terms: Sequence[Term]) -> dict[Term, int]:
    """Return term -> how often its mean square counts in a term's component.

    Möbius' inversion of their expectations.

    What a mean square is expected to be sums the components of all terms that hold its own.
    """
    found = {term: 1}
    for other in sorted(terms, key=len):
        if set(other) > set(term):
            found[other] = -sum(sign for one, sign in found.items() if set(one) < set(other))
    return found


def _estimated(
    squares: dict[Term, _Square], per_level: dict[Term, float], pure: _Square | None, repeat: int
) -> tuple[dict[Term, float], dict[Term, Any]]:
    """Return the component of each term, and draws of what it may have been.

    The hardware's is that of no stream.

    Args:
        squares: streams -> mean square of what they do together beyond what fewer of them do; of
            all of them last.
        per_level: streams -> runs per combination of their values.
        pure: within combinations, where they are repeated.
        repeat: runs of each combination.
    """
    import numpy

    draw = numpy.random.default_rng(0)

    def expected(square: _Square) -> Any:
        # What the expected mean square may have been, given the one that was found.
        return square.ms * square.df / draw.chisquare(square.df, DRAWS)

    *_, whole = squares
    drawn = {whole: expected(squares[whole])}
    pure_ms, drawn_pure = (
        (pure.ms, expected(pure)) if pure is not None else (0.0, numpy.zeros(DRAWS))
    )
    drawn |= {term: expected(square) for term, square in squares.items() if term != whole}
    point: dict[Term, float] = {}
    raw: dict[Term, Any] = {}
    for term in squares:
        signs = _signs(term, list(squares))
        point[term] = sum(sign * squares[one].ms for one, sign in signs.items()) / per_level[term]
        raw[term] = sum(sign * drawn[one] for one, sign in signs.items()) / per_level[term]
    point[whole] -= pure_ms / repeat
    raw[whole] = raw[whole] - drawn_pure / repeat
    return point | {HARDWARE: pure_ms}, raw | {HARDWARE: drawn_pure}


def _shared(
    squares: dict[Term, _Square],
    per_level: dict[Term, float],
    pure: _Square | None,
    repeat: int,
    level: float,
) -> dict[str, Any]:
    """Turn mean squares into components and shares with intervals; see `_estimated`."""
    import numpy

    *_, whole = squares
    point, raw = _estimated(squares, per_level, pure, repeat)
    drawn = {term: numpy.maximum(0.0, draws) for term, draws in raw.items()}
    total = math.fsum(max(0.0, variance) for variance in point.values())
    drawn_total = sum(drawn.values())

    def shares(terms: Sequence[Term]) -> tuple[float | None, list[float] | None]:
        if total == 0.0:
            return None, None
        part = math.fsum(max(0.0, point[term]) for term in terms) / total
        draws = sum(drawn[term] for term in terms) / drawn_total
        return part, [
            float(bound) for bound in numpy.percentile(draws, [50 * (1 - level), 50 * (1 + level)])
        ]

    def part(terms: Sequence[Term], square: _Square | None) -> dict[str, Any]:
        share, interval = shares(terms)
        variance = math.fsum(
            point[term] if len(terms) == 1 else max(0.0, point[term]) for term in terms
        )
        of = {"df": None, "ms": None} if square is None else {"df": square.df, "ms": square.ms}
        return {**of, "variance": variance, "share": share, "share_interval": interval}

    streams = []
    for term in (term for term in squares if len(term) == 1):
        involved = [other for other in squares if set(term) <= set(other)]
        with_others, interval = shares(involved)
        # With one interaction F is exact; with more there is none, and the draws say how often
        # nothing is left.
        exact = len(involved) == 2
        chance = {"f": None, "p": max(1 / DRAWS, float((raw[term] <= 0).mean())) if total else None}
        more = _tested(squares[term], squares[whole]) if exact else chance
        found = {"stream": term[0], **part([term], squares[term])}
        streams.append(
            found | {"total_share": with_others, "total_share_interval": interval, **more}
        )
    together = [term for term in squares if len(term) > 1]
    return {
        "level": level,
        "variance": total,
        "repeat": repeat,
        "streams": streams,
        "interactions": part(together, squares[whole] if len(together) == 1 else None),
        "terms": [{"streams": list(term), **part([term], squares[term])} for term in together],
        "hardware": part([HARDWARE], pure) if pure is not None else None,
    }


def _tested(square: _Square, rest: _Square) -> dict[str, float | None]:
    from scipy.stats import f as fisher

    if rest.ms == 0.0:
        return {"f": None, "p": None}
    ratio = square.ms / rest.ms
    return {"f": ratio, "p": max(sys.float_info.min, float(fisher.sf(ratio, square.df, rest.df)))}


def _arms(
    vary: Sequence[str], runs: Sequence[tuple[Mapping[str, int], float]], level: float
) -> dict[str, Any]:
    """Take the arms apart again.

    What differs from the base point in one stream, in all of them, or in none.
    """
    base = runs[0][0]
    arms: dict[str, list[float]] = {stream: [runs[0][1]] for stream in vary}
    arms |= {"all": [], REPEAT: [runs[0][1]]}
    for streams, value in runs[1:]:
        moved = [stream for stream in vary if streams[stream] != base[stream]]
        arms[REPEAT if not moved else moved[0] if len(moved) == 1 else "all"].append(value)
    reference = statistics.variance(arms["all"]) if len(vary) > 1 else None
    found = [_arm(name, arms[name], reference, len(arms["all"]), level) for name in vary]
    others = {
        name: _arm(name, arms[name], None, 0, level) if len(arms[name]) > 1 else None
        for name in ("all", REPEAT)
    }
    return {"level": level, "streams": found, **others}


def _arm(
    name: str, values: Sequence[float], reference: float | None, size: int, level: float
) -> dict[str, Any]:
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
