"""Whether two cells differ by more than the luck of their seeds: differences and their tests.

Pure functions of plain numbers. A comparison that cannot be made says why; it never comes as NaN.
"""

import math
import statistics
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from ...jobs.values import Value
from .distributions import t_lower, t_quantile, t_upper
from .moments import moments

ALPHA = 0.05
# Of the effect that e-values are most sensitive to, in standard deviations squared.
EFFECT_VARIANCE = 4.0


class Interval(Value, frozen=True, kw_only=True):
    """Two bounds, `low` never above `high`."""

    low: float
    high: float


class Standardised(Value, frozen=True, kw_only=True):
    """A difference in standard deviations, and what its interval follows from."""

    effect: float
    """Uncorrected."""
    size: float
    """What makes t of it: t = effect √size."""
    df: int
    """Degrees of freedom of the standard deviation."""
    alpha: float
    """1 - the level of the interval."""

    @property
    def corrected(self) -> float:
        """Hedges' g."""
        return _small_sample(self.df) * self.effect

    def interval(self) -> Interval | None:
        """Return the noncentralities of t that leave α/2 on either side (Steiger and Fouladi
        1997).
        """
        from scipy.special import nctdtrinc

        t, alpha = self.effect * math.sqrt(self.size), self.alpha
        low, high = (float(nctdtrinc(self.df, level, t)) for level in (1 - alpha / 2, alpha / 2))
        if not math.isfinite(low) or not math.isfinite(high) or low > high:
            return None
        return Interval(low=low / math.sqrt(self.size), high=high / math.sqrt(self.size))


class Difference(Value, frozen=True, kw_only=True):
    """One cell minus its baseline, in the metric's own unit."""

    n: int
    n_baseline: int
    difference: float | None = None
    error: float | None = None
    """Its standard error."""
    interval: Interval | None = None
    """Of the difference, at 1 - alpha."""
    t: float | None = None
    df: float | None = None
    p: float | None = None
    """Two-sided."""
    standardised: Standardised | None = None
    """The difference in standard deviations."""
    correlation: float | None = None
    """Pearson's, of paired values."""
    std: float | None = None
    """Welch: pooled over both cells; paired: of the differences."""
    floor: float | None = None
    """The smallest p that ranks alone can give with so few seeds."""
    why_not: str = ""
    """Why there is no test."""

    @property
    def effect(self) -> float | None:
        """Hedges' g: the difference in standard deviations, corrected for few seeds."""
        return None if self.standardised is None else self.standardised.corrected

    @property
    def effect_interval(self) -> Interval | None:
        """Of the difference in standard deviations, at 1 - alpha: exact for normal values of one
        variance. Computed at each look: most tables need none.
        """
        return None if self.standardised is None else self.standardised.interval()


def welch(
    values: Sequence[float], baseline: Sequence[float], *, alpha: float = ALPHA
) -> Difference:
    """Compare two independent samples whose variances may differ (Welch 1947).

    Args:
        values: one finite value per seed.
        baseline: the same of the other cell.
        alpha: 1 - the level of the interval.
    """
    n, m = len(values), len(baseline)
    if not n or not m:
        return Difference(n=n, n_baseline=m, why_not="no scored run on one side")
    (mean, std), (mean_baseline, std_baseline) = moments(tuple(values)), moments(tuple(baseline))
    if min(n, m) < 2:
        return Difference(
            n=n,
            n_baseline=m,
            difference=mean - mean_baseline,
            why_not="needs two seeds on each side",
        )
    return welch_of_summaries(mean, std, n, mean_baseline, std_baseline, m, alpha=alpha)


def welch_of_summaries(
    mean: float,
    std: float,
    n: int,
    mean_baseline: float,
    std_baseline: float,
    m: int,
    *,
    alpha: float = ALPHA,
) -> Difference:
    """Compare two samples of which only mean, sample standard deviation (ddof 1) and size ≥ 2 are
    known.
    """
    difference = mean - mean_baseline
    own, other = std**2 / n, std_baseline**2 / m
    if own + other == 0.0:
        why = "zero variance on both sides: does the seed change anything?"
        return Difference(n=n, n_baseline=m, difference=difference, why_not=why)
    error = math.sqrt(own + other)
    df = (own + other) ** 2 / (own**2 / (n - 1) + other**2 / (m - 1))
    pooled = math.sqrt((own * n * (n - 1) + other * m * (m - 1)) / (n + m - 2))
    return tested(
        difference,
        error,
        df,
        alpha,
        n=n,
        n_baseline=m,
        std=pooled,
        standardised=Standardised(
            effect=difference / pooled, size=n * m / (n + m), df=n + m - 2, alpha=alpha
        ),
        floor=2 / math.comb(n + m, n),
    )


def difference_of(one: Difference, other: Difference, *, alpha: float = ALPHA) -> Difference:
    """Compare two differences that have no value in common, such as gains on two backbones.

    Their variances add up, with degrees of freedom by Satterthwaite (1946). Of two that Welch's
    test made this is the contrast of four means.

    Args:
        one: with its error and degrees of freedom.
        other: what is taken from it.
        alpha: 1 - the level of the interval.
    """
    n, m, why = one.n, other.n, one.why_not or other.why_not
    if one.difference is None or other.difference is None:
        return Difference(n=n, n_baseline=m, why_not=why)
    by = one.difference - other.difference
    if one.error is None or other.error is None or one.df is None or other.df is None:
        return Difference(n=n, n_baseline=m, difference=by, why_not=why)
    own, theirs = one.error**2, other.error**2
    df = (own + theirs) ** 2 / (own**2 / one.df + theirs**2 / other.df)
    return tested(by, math.sqrt(own + theirs), df, alpha, n=n, n_baseline=m)


def against_one(
    mean: float, std: float, n: int, value: float, *, alpha: float = ALPHA
) -> Difference:
    """Compare n ≥ 3 seeds with one number from elsewhere, as if its spread were theirs (Crawford
    and Howell 1998).
    """
    difference = mean - value
    if n < 3 or std == 0.0:
        why = "a test against a single number needs three seeds that differ"
        return Difference(n=n, n_baseline=1, difference=difference, why_not=why)
    return tested(difference, std * math.sqrt(1 + 1 / n), n - 1, alpha, n=n, n_baseline=1, std=std)


def paired(
    values: Mapping[int, float], baseline: Mapping[int, float], *, alpha: float = ALPHA
) -> Difference:
    """Compare seed by seed, over the seeds that both have.

    It has more power than `welch` only where the two share what the seed decides; which one is used
    has to be settled before the values are seen.

    Args:
        values: seed -> value.
        baseline: the same of the other cell.
        alpha: 1 - the level of the interval.
    """
    seeds = sorted(values.keys() & baseline.keys())
    n = len(seeds)
    if n == 0:
        return Difference(n=0, n_baseline=0, why_not="no seed has a score on both sides")
    ours, theirs = [values[seed] for seed in seeds], [baseline[seed] for seed in seeds]
    each = exactly([own - other for own, other in zip(ours, theirs, strict=True)], [*ours, *theirs])
    difference = statistics.fmean(each)
    if n < 3:
        return Difference(
            n=n, n_baseline=n, difference=difference, why_not="a paired test needs three pairs"
        )
    std = statistics.stdev(each)
    if std == 0.0:
        why = "all pairs differ by the same amount"
        return Difference(n=n, n_baseline=n, difference=difference, why_not=why)
    constant = min(ours) == max(ours) or min(theirs) == max(theirs)
    return tested(
        difference,
        std / math.sqrt(n),
        n - 1,
        alpha,
        n=n,
        n_baseline=n,
        std=std,
        standardised=Standardised(effect=difference / std, size=n, df=n - 1, alpha=alpha),
        correlation=None if constant else statistics.correlation(ours, theirs),
        floor=2 / 2**n,
    )


def exactly(differences: Sequence[float], values: Sequence[float]) -> list[float]:
    """Return differences without what the subtraction of `values` alone has left in their last
    digits.

    Accuracies are counts over a number of images; pairs that differ by as many images must be seen
    to do so.
    """
    scale = max(map(abs, values), default=0.0)
    digits = 12 - math.floor(math.log10(scale)) if scale > 0 else 12
    return [round(one, digits) for one in differences]


def tested(difference: float, error: float, df: float, alpha: float, **facts: Any) -> Difference:
    """Return a difference with its t test and interval.

    Args:
        difference: in the metric's unit.
        error: its standard error, above 0.
        df: degrees of freedom.
        alpha: 1 - the level of the interval.
        facts: further fields.
    """
    t = difference / error
    half = t_quantile(1 - alpha / 2, df) * error
    return Difference(
        difference=difference,
        error=error,
        interval=Interval(low=difference - half, high=difference + half),
        t=t,
        df=df,
        # No p is 0: the smallest that a float can hold stands for all below it.
        p=min(1.0, max(sys.float_info.min, 2 * t_upper(abs(t), df))),
        **facts,
    )


def _small_sample(df: int) -> float:
    """Return Hedges' exact correction of a standardised difference."""
    return (
        math.exp(math.lgamma(df / 2) - math.lgamma((df - 1) / 2)) / math.sqrt(df / 2)
        if df > 1
        else 1.0
    )


def e_value(values: Sequence[float], baseline: Sequence[float]) -> float | None:
    """Return the evidence against no difference that holds however often one looks.

    None where there is no test.

    Calling a difference real once it reaches 1 / alpha, after any number of seeds, is wrong at most
    in a share alpha of cases: a Bayes factor of t over all scales of a normal effect (Pérez-Ortiz,
    Lardy, de Heide and Grünwald 2024), of the differences of the first, second, … seeds of the two
    sides. These have one variance whatever those of the sides are; a t of two samples with unequal
    variances would be wrong more often. It costs about one more seed.

    Args:
        values: one finite value per seed, in the order of the seeds.
        baseline: the same of the other cell; what the longer side has more is left out.
    """
    pairs = list(zip(values, baseline, strict=False))
    found = paired(
        dict(enumerate(own for own, _ in pairs)), dict(enumerate(other for _, other in pairs))
    )
    if found.t is None or found.df is None:
        return None
    square, df = found.t**2, found.df
    wider = 1 + found.n * EFFECT_VARIANCE
    log = -0.5 * math.log(wider) + (df + 1) / 2 * (
        math.log1p(square / df) - math.log1p(square / (df * wider))
    )
    return math.exp(min(log, 700.0))


def equivalence(found: Difference, margin: float) -> float | None:
    """Return the p of two one-sided tests against ±margin; None where there is no test.

    Args:
        found: from `welch` or `paired`.
        margin: in the metric's unit, above 0; what counts as no difference, declared beforehand.
    """
    if found.difference is None or found.error is None or found.df is None:
        return None
    above = t_upper((found.difference + margin) / found.error, found.df)
    below = t_lower((found.difference - margin) / found.error, found.df)
    return max(above, below)


def holm(ps: Sequence[float | None], *, m: int | None = None) -> list[float | None]:
    """Return p values adjusted for their number (Holm 1979).

    What was not tested counts as p = 1 and stays None.

    Args:
        ps: of the tests.
        m: how many tests there are with those that are not shown, if more.
    """
    count = len(ps) if m is None else m
    order = sorted(range(len(ps)), key=lambda index: _one(ps[index]))
    adjusted: list[float | None] = [None] * len(ps)
    highest = 0.0
    for rank, index in enumerate(order):
        highest = max(highest, min(1.0, (count - rank) * _one(ps[index])))
        adjusted[index] = None if ps[index] is None else highest
    return adjusted


def false_discovery(ps: Sequence[float | None], *, m: int | None = None) -> list[float | None]:
    """Return p values adjusted so that of those below α a share α is expected to be luck
    (Benjamini-Hochberg 1995).

    Args:
        ps: of the tests.
        m: how many tests there are with those that are not shown, if more.
    """
    from scipy.stats import false_discovery_control

    others = [1.0] * ((len(ps) if m is None else m) - len(ps))
    adjusted = false_discovery_control([*map(_one, ps), *others]) if ps else []
    return [None if p is None else float(value) for p, value in zip(ps, adjusted, strict=False)]


def _one(p: float | None) -> float:
    return 1.0 if p is None else p
