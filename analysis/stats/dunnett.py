"""Many heads against one baseline: p values adjusted with what the comparisons share.

Holm's correction holds whatever the dependence. Comparisons with one baseline have its seeds in
common, so that they are right or wrong together, and less correction is enough (Dunnett 1955). This
is the closed test with Welch's t for any number of baselines: step-down minP (Westfall and Young
1993, algorithm 2.8), the null distribution drawn with the deviations that were seen. Pure.
"""

from collections.abc import Sequence
from typing import Any

from ...jobs.values import Value
from .difference import holm

# Draws of the null distribution, always the same ones; fewer where there are many comparisons.
DRAWS = 20_000
_MOST = 4_000_000


class Sample(Value, frozen=True):
    """What is known of the seeds of one cell."""

    name: str
    """Its cell; a baseline has the same name in each of its comparisons."""
    std: float
    n: int


def step_down(
    ps: Sequence[float | None],
    samples: Sequence[tuple[Sample, Sample]],
    *,
    m: int | None = None,
) -> list[float | None]:
    """Return Welch's p values adjusted for their number, never above Holm's.

    Args:
        ps: of the comparisons; what was not tested counts as p = 1 and stays None.
        samples: of each, the cell and its baseline.
        m: how many comparisons there are with those that are not shown, if more; these are counted
            as Bonferroni does.
    """
    import numpy

    by_holm = holm(ps, m=m)
    tested = [(p, index) for index, p in enumerate(ps) if p is not None]
    if len(tested) < 2:
        return by_holm
    others = (len(ps) if m is None else m) - len(tested)
    order = [index for _, index in sorted(tested)]
    drawn = _drawn([samples[index] for index in order])
    # Of each draw the smallest p value of a comparison and of those that come after it.
    least = numpy.minimum.accumulate(drawn[::-1], axis=0)[::-1]
    adjusted, highest = list(by_holm), 0.0
    for rank, index in enumerate(order):
        p, bound = ps[index], by_holm[index]
        assert p is not None and bound is not None
        share = (1 + int((least[rank] <= p).sum())) / (1 + drawn.shape[1])
        highest = max(highest, min(bound, share + others * p))
        adjusted[index] = highest
    return adjusted


def _drawn(samples: Sequence[tuple[Sample, Sample]]) -> Any:
    """Return [comparisons, draws]: Welch's p values where no cell differs from its baseline."""
    import numpy
    from scipy.stats import t as student

    draws = max(1000, min(DRAWS, _MOST // len(samples)))
    generator = numpy.random.default_rng(0)
    means: dict[str, Any] = {}
    squares: dict[str, Any] = {}
    for one in sorted({side.name: side for pair in samples for side in pair}.values(), key=_name):
        means[one.name] = generator.normal(0.0, one.std / one.n**0.5, draws)
        chi = generator.chisquare(one.n - 1, draws) / (one.n - 1)
        # Squared errors of the mean, as the seeds of a draw would give them.
        squares[one.name] = chi * one.std**2 / one.n
    found = numpy.empty((len(samples), draws))
    for row, (own, other) in zip(found, samples, strict=True):
        a, b = squares[own.name], squares[other.name]
        df = (a + b) ** 2 / (a**2 / (own.n - 1) + b**2 / (other.n - 1))
        t = (means[own.name] - means[other.name]) / numpy.sqrt(a + b)
        row[:] = 2 * student.sf(abs(t), df)
    return found


def _name(one: Sample) -> str:
    return one.name
