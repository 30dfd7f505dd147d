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
from typing import Any

from ...jobs.documents import Document
from ...jobs.run.design import REPEAT, Design
from ...jobs.values import Value, asdict
from .summary import LEVEL, spread_factors

# Of the simulation behind the intervals of shares: their third digit no longer moves.
DRAWS = 20_000


class _Square(Value, frozen=True):
    """A mean square and its degrees of freedom."""

    ms: float
    df: int


class Part(Document, frozen=True, kw_only=True):
    """A part of the variance."""

    df: int | None
    """Degrees of freedom of its mean square; None where several terms are taken together."""
    ms: float | None
    """Mean square."""
    variance: float
    """Component of the variance; an estimate, which may be negative."""
    share: float | None
    """Of the whole variance; None where there is none."""
    share_interval: tuple[float, float] | None
    """Of `share`, at `level`."""


class StreamPart(Part, frozen=True, kw_only=True):
    """What one stream of randomness contributes."""

    stream: str
    """Of randomness."""
    total_share: float | None
    """The stream's own share, and what it does together with others."""
    total_share_interval: tuple[float, float] | None
    """Of `total_share`, at `level`."""
    f: float | None
    """F statistic against the interaction; None where the test is not exact."""
    p: float | None
    """Of the hypothesis that the stream contributes nothing."""


class TermPart(Part, frozen=True, kw_only=True):
    """What several streams contribute together."""

    streams: list[str]
    """Of randomness."""


class Components(Document, frozen=True, kw_only=True):
    """The variance of a crossed or orthogonal study, split."""

    level: float
    """Of the intervals."""
    variance: float
    """The sum of the parts, negative ones counted as 0."""
    repeat: int
    """Runs of each combination."""
    streams: list[StreamPart]
    """What each stream contributes."""
    interactions: Part
    """All terms together."""
    terms: list[TermPart]
    """Of an orthogonal study one: what all streams do together."""
    hardware: Part | None
    """What runs of one combination differ by; None without repeats."""


class Arm(Document, frozen=True, kw_only=True):
    """The runs of a one-at-a-time study in which one stream varies."""

    stream: str
    """Or `all`, or `repeat`."""
    n: int
    """Runs of the arm, the base point included where it belongs to it."""
    std: float
    """Sample standard deviation over the runs (ddof 1)."""
    std_interval: tuple[float, float] | None
    """Of `std`, at `level`; None of two runs."""
    ratio: float | None
    """Of the arm's variance to that of all streams together."""
    ratio_interval: tuple[float, float] | None
    """Of `ratio`, at `level`."""


class Arms(Document, frozen=True, kw_only=True):
    """The deviations of a one-at-a-time study."""

    level: float
    """Of the intervals."""
    streams: list[Arm]
    """An arm for each stream."""
    all: Arm | None
    """All streams varied together."""
    repeat: Arm | None
    """None varied."""


Term = tuple[str, ...]
HARDWARE: Term = ()


def components(
    design: Design,
    vary: Sequence[str],
    runs: Sequence[tuple[Mapping[str, int], float]],
    *,
    level: float = LEVEL,
) -> Components:
    """Split the variance of a complete, balanced study by the analysis of variance.

    Each mean square is set equal to what it is expected to be, a sum of components (Searle, Casella
    and McCulloch 1992, ch. 4). Of two streams, σ²(stream) = (MS(stream) - MS(rest)) / runs per
    value.
    `share` is the stream's own part of the whole (first-order effect); `total_share` adds what it
    does together with others (total effect; of orthogonal designs an upper bound, all that any
    streams do together). Without repeats the hardware's part is in there too. Intervals of shares
    are generalised confidence intervals (Weerahandi 1993): each mean square over its χ².

    Args:
        design: crossed or orthogonal.
        vary: the streams.
        runs: the value of every stream (and `repeat`), and the metric.
        level: of the intervals.
    """
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


class _Estimates(Value, frozen=True):
    """Components of variance with what they could be as well; see `_estimated`."""

    point: dict[Term, float]
    """Term -> its component, which may be negative."""
    raw: dict[Term, Any]
    """Term -> draws of its component, [DRAWS]."""
    level: float

    @property
    def total(self) -> float:
        return math.fsum(max(0.0, variance) for variance in self.point.values())

    def share(self, terms: Sequence[Term]) -> tuple[float | None, tuple[float, float] | None]:
        """Return the share that terms have of the variance, and its interval."""
        import numpy

        if self.total == 0.0:
            return None, None
        drawn = {term: numpy.maximum(0.0, draws) for term, draws in self.raw.items()}
        draws = sum(drawn[term] for term in terms) / sum(drawn.values())
        low, high = numpy.percentile(draws, [50 * (1 - self.level), 50 * (1 + self.level)])
        part = math.fsum(max(0.0, self.point[term]) for term in terms) / self.total
        return part, (float(low), float(high))

    def part(self, terms: Sequence[Term], square: _Square | None) -> Part:
        """Return what terms contribute together.

        Args:
            terms: of one kind.
            square: theirs, where they have one.
        """
        share, interval = self.share(terms)
        values = [self.point[term] for term in terms]
        return Part(
            df=square.df if square is not None else None,
            ms=square.ms if square is not None else None,
            variance=values[0] if len(values) == 1 else math.fsum(max(0.0, one) for one in values),
            share=share,
            share_interval=interval,
        )

    def stream(self, term: Term, squares: Mapping[Term, _Square]) -> StreamPart:
        """Return what a stream contributes, alone and with its interactions."""
        involved = [other for other in squares if set(term) <= set(other)]
        with_others, interval = self.share(involved)
        # With one interaction F is exact; with more there is none, and the draws say how often
        # nothing is left.
        if len(involved) == 2:
            f, p = _tested(squares[term], squares[list(squares)[-1]])
        else:
            lost = float((self.raw[term] <= 0).mean())
            f, p = None, max(1 / DRAWS, lost) if self.total else None
        return StreamPart(
            **asdict(self.part([term], squares[term])),
            stream=term[0],
            total_share=with_others,
            total_share_interval=interval,
            f=f,
            p=p,
        )


def _shared(
    squares: dict[Term, _Square],
    per_level: dict[Term, float],
    pure: _Square | None,
    repeat: int,
    level: float,
) -> Components:
    """Turn mean squares into components and shares with intervals; see `_estimated`."""
    *_, whole = squares
    found = _Estimates(*_estimated(squares, per_level, pure, repeat), level)
    together = [term for term in squares if len(term) > 1]
    return Components(
        level=level,
        variance=found.total,
        repeat=repeat,
        streams=[found.stream(term, squares) for term in squares if len(term) == 1],
        interactions=found.part(together, squares[whole] if len(together) == 1 else None),
        terms=[
            TermPart(**asdict(found.part([term], squares[term])), streams=list(term))
            for term in together
        ],
        hardware=found.part([HARDWARE], pure) if pure is not None else None,
    )


def _tested(square: _Square, rest: _Square) -> tuple[float | None, float | None]:
    """Return F and its p value."""
    from scipy.stats import f as fisher

    if rest.ms == 0.0:
        return None, None
    ratio = square.ms / rest.ms
    return ratio, max(sys.float_info.min, float(fisher.sf(ratio, square.df, rest.df)))


def arms(
    vary: Sequence[str],
    runs: Sequence[tuple[Mapping[str, int], float]],
    *,
    level: float = LEVEL,
) -> Arms:
    """Compare the arms of a one-at-a-time study.

    The deviation of each arm, and by F its ratio to that of all streams varied together. These hold
    at one base point; with interactions they add up to more than the whole. A run's arm is what it
    differs in from the base point: one stream, all of them, or none.

    Args:
        vary: the streams.
        runs: the value of every stream (and `repeat`), and the metric; the base point first.
        level: of the intervals.
    """
    base = runs[0][0]
    values: dict[str, list[float]] = {stream: [runs[0][1]] for stream in vary}
    values |= {"all": [], REPEAT: [runs[0][1]]}
    for streams, value in runs[1:]:
        moved = [stream for stream in vary if streams[stream] != base[stream]]
        values[REPEAT if not moved else moved[0] if len(moved) == 1 else "all"].append(value)
    reference = statistics.variance(values["all"]) if len(vary) > 1 else None

    def other(name: str) -> Arm | None:
        return _arm(name, values[name], None, 0, level) if len(values[name]) > 1 else None

    return Arms(
        level=level,
        streams=[_arm(name, values[name], reference, len(values["all"]), level) for name in vary],
        all=other("all"),
        repeat=other(REPEAT),
    )


def _arm(
    name: str, values: Sequence[float], reference: float | None, size: int, level: float
) -> Arm:
    from scipy.stats import f as fisher

    variance, df = statistics.variance(values), len(values) - 1
    std = math.sqrt(variance)
    low, high = spread_factors(len(values), level)
    ratio, ratio_interval = None, None
    if reference:
        ratio = variance / reference
        quantiles = [float(fisher.ppf(0.5 + sign * level / 2, df, size - 1)) for sign in (1, -1)]
        ratio_interval = (ratio / quantiles[0], ratio / quantiles[1])
    return Arm(
        stream=name,
        n=len(values),
        std=std,
        std_interval=(std * low, std * high) if df > 1 else None,
        ratio=ratio,
        ratio_interval=ratio_interval,
    )
