"""Learning curves over seeds.

Bands by epoch, and from when on the final order of the seeds can be seen. Pure.
"""

import math
import statistics
from collections.abc import Mapping

from ...jobs.documents import Document
from ...jobs.values import changed
from .summary import LEVEL, student

# Below it a rank correlation over seeds is noise.
PERSISTENCE_FROM = 5

Curves = Mapping[int, Mapping[int, float]]
# seed -> epoch -> value


class Point(Document, frozen=True, kw_only=True):
    """What the seeds say at one epoch."""

    epoch: int
    """Its number."""
    n: int
    """Seeds with a value at this epoch."""
    mean: float
    """Over these seeds."""
    std: float | None
    """Sample standard deviation over them; null for one seed."""
    min: float
    """The lowest value."""
    max: float
    """The highest value."""
    interval: list[float] | None
    """Pointwise, by Student's t, from three seeds on."""


class Persistence(Document, frozen=True, kw_only=True):
    """How far one epoch shows the final order of the seeds."""

    epoch: int
    n: int
    rho: float | None
    """Spearman's correlation with the last epoch. None where all seeds are equal or not all of them
    were scored.
    """


def band(curves: Curves, *, level: float = LEVEL) -> list[Point]:
    """Return by epoch what the seeds say.

    Nothing is carried forward: an epoch in which a seed was not scored has one seed less.
    """
    found = []
    for epoch in sorted({epoch for curve in curves.values() for epoch in curve}):
        values = [
            curve[epoch]
            for _, curve in sorted(curves.items())
            if epoch in curve and math.isfinite(curve[epoch])
        ]
        n = len(values)
        if not n:
            continue
        mean, std = statistics.fmean(values), statistics.stdev(values) if n > 1 else None
        half = student(level, n - 1) * std / math.sqrt(n) if std is not None and n >= 3 else None
        found.append(
            Point(
                epoch=epoch,
                n=n,
                mean=mean,
                std=std,
                min=min(values),
                max=max(values),
                interval=[mean - half, mean + half] if half is not None else None,
            )
        )
    return found


class Passing(Document, frozen=True, kw_only=True):
    """When a cell is as good as another one is at its end."""

    level: float
    """What the other cell reaches at its last epoch: mean over the seeds that both have."""
    at: int
    """That last epoch."""
    epoch: int | None
    """The first epoch at which the mean over these seeds is as good; null if it never is."""
    seeds: dict[str, int | None]
    """Seed -> the first epoch at which it is as good as the other cell's seed at its end."""


def passing(mine: Curves, theirs: Curves, *, at: int, sign: int = 1) -> Passing | None:
    """Return when a cell is as good as another one at its end, or None where none has ended.

    Args:
        mine: of the cell.
        theirs: of the other one.
        at: the other's last epoch.
        sign: 1 where more is better, -1 where less is.
    """
    ends = {seed: theirs[seed][at] for seed in sorted(mine) if at in theirs.get(seed, {})}
    if not ends:
        return None
    level = statistics.fmean(ends.values())
    points = band({seed: mine[seed] for seed in ends})
    means = {one.epoch: one.mean for one in points if one.n == len(ends)}
    return Passing(
        level=level,
        at=at,
        epoch=_first(means, level, sign),
        seeds={str(seed): _first(mine[seed], end, sign) for seed, end in ends.items()},
    )


def _first(values: Mapping[int, float], level: float, sign: int) -> int | None:
    good = (epoch for epoch, value in sorted(values.items()) if sign * (value - level) >= 0)
    return next(good, None)


def persistence(curves: Curves) -> list[Persistence]:
    """Return by epoch Spearman's correlation over seeds with the last epoch.

    Nothing below five seeds.

    It says from when on the best seeds could have been told (Touvron's thesis, figure 6.10).
    """
    from scipy.stats import spearmanr

    ends = {seed: max(curve) for seed, curve in curves.items() if curve}
    last = max(ends.values(), default=0)
    seeds = sorted(seed for seed, end in ends.items() if end == last)
    if len(seeds) < PERSISTENCE_FROM:
        return []
    final = [curves[seed][last] for seed in seeds]
    found = []
    for epoch in sorted({epoch for seed in seeds for epoch in curves[seed]}):
        values = [curves[seed].get(epoch, math.nan) for seed in seeds]
        known = (
            all(map(math.isfinite, values))
            and min(values) < max(values)
            and min(final) < max(final)
        )
        found.append(
            Persistence(
                epoch=epoch,
                n=len(seeds),
                rho=float(spearmanr(values, final)[0]) if known else None,
            )
        )
    return found


class Agreement(Document, frozen=True, kw_only=True):
    """How two test sets agree over the seeds that both have."""

    n: int
    r: float | None
    """Pearson's correlation."""
    interval: list[float] | None
    """Of r (Fisher), from four seeds on."""
    rho: float | None
    """Spearman's."""
    best: int | None
    """The best seed on the first set."""
    rank: int | None
    """Its rank on the second, 1 for the best."""


def agreement(
    one: Mapping[int, float], other: Mapping[int, float], *, better: str = "max"
) -> Agreement:
    """Compare two test sets.

    Args:
        one: seed -> value on the first set.
        other: the same on the second.
        better: max or min, for the best seed.
    """
    from scipy.stats import pearsonr, spearmanr

    seeds = sorted(one.keys() & other.keys())
    first, second = [one[seed] for seed in seeds], [other[seed] for seed in seeds]
    found = Agreement(n=len(seeds), r=None, interval=None, rho=None, best=None, rank=None)
    if not seeds:
        return found
    sign = -1 if better == "max" else 1
    best = min(seeds, key=lambda seed: (sign * one[seed], seed))
    rank = 1 + sum(sign * value < sign * other[best] for value in second)
    found = changed(found, best=best, rank=rank)
    if len(seeds) < 3 or min(first) == max(first) or min(second) == max(second):
        return found
    correlated = pearsonr(first, second)
    r, rho = float(correlated.statistic), float(spearmanr(first, second)[0])
    if len(seeds) < 4 or abs(r) >= 1:
        return changed(found, r=r, rho=rho)
    bounds = correlated.confidence_interval(LEVEL)
    return changed(found, r=r, rho=rho, interval=[float(bounds.low), float(bounds.high)])
