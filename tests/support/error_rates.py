"""How often each procedure is wrong, or right, by simulation; and the page that says so.

    python -m tests.support.error_rates            write the table of docs/error-rates.md anew
    python -m tests.support.error_rates NAME …     print these rows; `--draws N` takes more draws

Everything is drawn from a fixed seed, and judged by the product's own functions.
"""

import argparse
import math
import sys
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy
from scipy.stats import norm

from vtjobs.analysis.findings.best_marks import marks
from vtjobs.analysis.findings.comparisons import Comparisons, compare
from vtjobs.analysis.findings.interim import look
from vtjobs.analysis.findings.per_image import split
from vtjobs.analysis.findings.plan import ComparisonPlan
from vtjobs.analysis.stats import pooled
from vtjobs.analysis.stats.difference import (
    Difference,
    against_one,
    difference_of,
    e_value,
    equivalence,
    holm,
    paired,
    welch,
)
from vtjobs.analysis.stats.dunnett import Sample, step_down
from vtjobs.analysis.stats.over_datasets import ranks
from vtjobs.analysis.stats.sample_size import seeds_for, seeds_for_equivalence, upper_std
from vtjobs.analysis.stats.summary import describe, student
from vtjobs.jobs.run.comparing import CompareSettings
from vtjobs.jobs.values import changed
from vtjobs.jobs.workspace.grid_settings import Declaration

from .cells import cell

PAGE = Path(__file__).resolve().parents[2] / "docs" / "error-rates.md"
BEGIN, END = "<!-- rates -->", "<!-- end of rates -->"
ALPHA = 0.05
DRAWS = 4000
# Seeds are counted from one pilot; nobody adds more than this here.
MOST = 400

Draw = numpy.random.Generator
Simulation = Callable[[Draw], bool]


@dataclass(frozen=True, slots=True)
class Rate:
    """One row: a share of simulated studies, and the bound that it has to keep."""

    name: str
    procedure: str
    condition: str
    bound: float
    simulation: Simulation
    kind: str = "error"
    """error: at most the bound; coverage and power: at least; shown: nothing is promised."""
    cost: int = 1
    """Draws are divided by it."""

    @property
    def nominal(self) -> str:
        if self.kind == "shown":
            return "none"
        return f"≤ {self.bound:g}" if self.kind == "error" else f"≥ {self.bound:g}"

    def count(self, draws: int) -> int:
        """Return how many studies are simulated."""
        return max(1, draws // self.cost)

    def simulated(self, draws: int) -> tuple[float, float]:
        """Return the share and its standard error."""
        count = self.count(draws)
        draw = numpy.random.default_rng(zlib.crc32(self.name.encode()))
        share = sum(self.simulation(draw) for _ in range(count)) / count
        return share, math.sqrt(max(share * (1 - share), 1 / count) / count)

    def holds(self, share: float, draws: int) -> bool:
        """Whether the bound is kept, within three of the standard errors that it would have."""
        if self.kind == "shown":
            return True
        room = 3 * math.sqrt(self.bound * (1 - self.bound) / self.count(draws))
        return share <= self.bound + room if self.kind == "error" else share >= self.bound - room


def _significant(found: Difference, alpha: float = ALPHA) -> bool:
    return found.p is not None and found.p <= alpha


def _normal(draw: Draw, n: int, *, mean: float = 0.0, std: float = 1.0) -> list[float]:
    return [float(value) for value in draw.normal(mean, std, n)]


# Two cells ----------------------------------------------------------------------------------------


def two_cells(draw: Draw, *, n: int, m: int, std: float = 1.0) -> bool:
    return _significant(welch(_normal(draw, n, std=std), _normal(draw, m)))


def gains(draw: Draw, *, n: int, std: float = 1.0) -> bool:
    """Whether two gains differ; the cells of one of them spread `std` times as much."""
    one, other = (
        welch(_normal(draw, n, std=wide), _normal(draw, n, std=wide)) for wide in (std, 1.0)
    )
    return _significant(difference_of(one, other))


def pairs(draw: Draw, *, n: int) -> bool:
    shared = draw.normal(0.0, 2.0, n)
    ours, theirs = (dict(enumerate((shared + draw.normal(size=n)).tolist())) for _ in range(2))
    return _significant(paired(ours, theirs))


def anytime(draw: Draw, *, std: float) -> bool:
    ours, theirs = _normal(draw, 20, std=std), _normal(draw, 20)
    return any((e_value(ours[:n], theirs[:n]) or 0.0) >= 1 / ALPHA for n in range(3, 21))


def tie_at_the_margin(draw: Draw, *, n: int) -> bool:
    p = equivalence(welch(_normal(draw, n, mean=1.0), _normal(draw, n)), 1.0)
    return p is not None and p <= ALPHA


def one_printed_number(draw: Draw, *, n: int) -> bool:
    ours = numpy.array(_normal(draw, n))
    return _significant(against_one(ours.mean(), ours.std(ddof=1), n, float(draw.normal())))


# Families -----------------------------------------------------------------------------------------


def family(draw: Draw, *, heads: int, n: int, correction: str, std: float = 1.0) -> bool:
    base = _normal(draw, n, std=std)
    others = [_normal(draw, n) for _ in range(heads)]
    ps = [welch(one, base).p for one in others]
    if correction == "holm":
        adjusted = holm(ps)
    else:
        known = Sample("base", float(numpy.std(base, ddof=1)), n)
        samples = [
            (Sample(f"head{k}", float(numpy.std(one, ddof=1)), n), known)
            for k, one in enumerate(others)
        ]
        adjusted = step_down(ps, samples)
    return any(p is not None and p <= ALPHA for p in adjusted)


def daggers(draw: Draw, *, cells: int, n: int) -> bool:
    found = marks([cell(f"c{k}", _normal(draw, n)) for k in range(cells)], ComparisonPlan())
    return any(one.best or one.like_best is False for one in found)


def looks(draw: Draw, *, heads: int, at: tuple[int, ...] = (3, 5, 10)) -> bool:
    base, *others = (_normal(draw, at[-1]) for _ in range(heads + 1))
    tests = [partial(_at, one, base) for one in others]
    return any(
        one.adjusted is not None and one.adjusted <= one.alpha
        for known in at
        for one in look(tests, [known] * heads, alpha=ALPHA, looks=at)
    )


def _at(ours: list[float], theirs: list[float], size: int | None) -> Difference:
    return welch(ours[:size], theirs[:size])


# What a user may do -------------------------------------------------------------------------------


def peeking(draw: Draw) -> bool:
    """Compare after every seed from the third to the twentieth, declared for twenty."""
    ours, theirs = _normal(draw, 20), _normal(draw, 20)
    plan = ComparisonPlan(
        declared=[Declaration(at=0.0, started=0, runs=40, compare=CompareSettings(), reason=None)]
    )
    for n in range(3, 21):
        base, head = (
            changed(cell(name, values[:n], baseline=of), missing_seeds=list(range(n, 20)))
            for name, values, of in (("base", theirs, None), ("head", ours, "base"))
        )
        if _claims(compare([base, head], plan)):
            return True
    return False


def _claims(found: Comparisons) -> bool:
    """Whether a difference is called separable, and not exploratory."""
    return any(
        one.verdict == "separable" and "exploratory" not in one.detail for one in found.comparisons
    )


def naive_peeking(draw: Draw) -> bool:
    ours, theirs = _normal(draw, 20), _normal(draw, 20)
    return any(_significant(welch(ours[:n], theirs[:n])) for n in range(3, 21))


def best_of_five_selections(draw: Draw) -> bool:
    """Leave out the seed that disturbs most."""
    ours, theirs = (dict(enumerate(_normal(draw, 5))) for _ in range(2))
    return any(
        _significant(
            welch(
                [value for seed, value in ours.items() if seed != lost],
                [value for seed, value in theirs.items() if seed != lost],
            )
        )
        for lost in range(5)
    )


# Numbers of seeds ---------------------------------------------------------------------------------


def found_after_topup(draw: Draw, *, pilot: int, m: int, effect: float, last: float = 1.0) -> bool:
    """Count seeds from a pilot's deviation, add them, and test all at Holm's strictest step.

    Args:
        draw: of the values.
        pilot: seeds a side that the deviation is from.
        m: comparisons that share α.
        effect: the true difference, in deviations; it is counted for 1.
        last: share of α that the last look has.
    """
    ours, theirs = _normal(draw, pilot, mean=effect), _normal(draw, pilot)
    alpha = ALPHA * last / m
    n = _counted(welch(ours, theirs), alpha, pilot)
    ours += _normal(draw, n - pilot, mean=effect)
    theirs += _normal(draw, n - pilot)
    return _significant(welch(ours, theirs), alpha)


def topup_by_effect(draw: Draw, *, pilot: int) -> bool:
    """Test a pilot, add the seeds that its deviation asks for, and test again."""
    ours, theirs = _normal(draw, pilot), _normal(draw, pilot)
    found = welch(ours, theirs)
    more = _counted(found, ALPHA, pilot) - pilot
    return _significant(found) or _significant(
        welch(ours + _normal(draw, more), theirs + _normal(draw, more))
    )


def _counted(found: Difference, alpha: float, pilot: int, effect: float = 1.0) -> int:
    assert found.std is not None and found.df is not None
    # To three digits, so that counts are looked up rather than made anew.
    std = round(upper_std(found.std, found.df), 3)
    return min(MOST, max(pilot, seeds_for(effect / std, alpha=alpha) or MOST))


def tie_after_topup(draw: Draw, *, pilot: int) -> bool:
    ours, theirs = _normal(draw, pilot), _normal(draw, pilot)
    found = welch(ours, theirs)
    assert found.std is not None and found.df is not None
    std = round(upper_std(found.std, found.df), 2)
    n = min(MOST, max(pilot, seeds_for_equivalence(1.0 / std) or MOST))
    p = equivalence(welch(ours + _normal(draw, n - pilot), theirs + _normal(draw, n - pilot)), 1.0)
    return p is not None and p <= ALPHA


def mean_after_topup(draw: Draw, *, pilot: int) -> bool:
    values = _normal(draw, pilot)
    wanted = math.ceil((student(0.95, pilot - 1) * float(numpy.std(values, ddof=1)) / 0.75) ** 2)
    values += _normal(draw, min(MOST, max(0, wanted - pilot)))
    return _holds(describe(dict(enumerate(values))).interval, 0.0)


# Intervals ----------------------------------------------------------------------------------------


def _holds(interval: Any, truth: float) -> bool:
    if interval is None:
        return False
    low, high = interval if isinstance(interval, list) else (interval.low, interval.high)
    return bool(low <= truth <= high)


def mean_of_seeds(draw: Draw, *, n: int, field: str) -> bool:
    found = describe(dict(enumerate(_normal(draw, n))))
    return _holds(getattr(found, field), 1.0 if field == "std_interval" else 0.0)


def effect_size(draw: Draw, *, n: int) -> bool:
    return _holds(welch(_normal(draw, n, mean=1.5), _normal(draw, n)).effect_interval, 1.5)


def carries(draw: Draw, *, seeds: int, images: int, truth: list[float]) -> bool:
    """Skill of a seed, difficulty of an image, and what both do together, as a probit model."""
    whole = math.sqrt(1 + 1.5**2)
    if not truth:
        skills = draw.normal(0.0, 0.1, 50_000)
        truth.append(100 * float(norm.cdf(1.2 + skills / whole).std()))
    correct = (
        1.2 * whole
        + draw.normal(0.0, 0.1, (seeds, 1))
        + draw.normal(0.0, 1.5, (1, images))
        + draw.normal(size=(seeds, images))
        > 0
    )
    return _holds(split(dict(enumerate(correct))).std_carries_interval, truth[0])


# Over datasets ------------------------------------------------------------------------------------


def over_datasets(draw: Draw, *, datasets: int, kind: str, effect: float, between: float) -> bool:
    """Return whether the interval holds the effect: three seeds, deviations from 0.2 to 2."""
    true = draw.normal(effect, between, datasets)
    parts = []
    for gain, std in zip(true, numpy.linspace(0.2, 2.0, datasets), strict=True):
        found = welch(_normal(draw, 3, mean=gain, std=std), _normal(draw, 3, std=std))
        assert found.difference is not None and found.error and found.df
        parts.append(pooled.Part(found.difference, found.error, found.df))
    if kind == "fixed":
        return _holds(pooled.over_these(parts).interval, float(true.mean()))
    if kind == "random":
        return _holds(pooled.over_datasets_like_these(parts).interval, effect)
    further = float(draw.normal(effect, between))
    return _holds(pooled.prediction(parts, pooled.between_datasets(parts)), further)


def ranked(draw: Draw, *, methods: int, datasets: int, alpha: float) -> bool:
    means = {
        f"d{k}": {f"m{j}": value for j, value in enumerate(_normal(draw, methods))}
        for k in range(datasets)
    }
    p = ranks(means).p
    return p is not None and p <= alpha


# The table ----------------------------------------------------------------------------------------


def rates() -> Iterator[Rate]:
    """Yield all rows, in the order of the page."""
    yield from _tests()
    yield from _families()
    yield from _users()
    yield from _counts()
    yield from _intervals()


def _tests() -> Iterator[Rate]:
    for n, m, std, bound in (
        (3, 3, 1.0, 0.05),
        (5, 5, 1.0, 0.05),
        (10, 10, 3.0, 0.055),
        (3, 3, 5.0, 0.065),
        (3, 5, 3.0, 0.075),
        (2, 5, 3.0, 0.12),
    ):
        yield Rate(
            f"welch-{n}-{m}-{std:g}",
            "Welch's t",
            f"{n} and {m} seeds, deviations {std:g} : 1",
            bound,
            partial(two_cells, n=n, m=m, std=std),
        )
    yield Rate("paired-5", "paired t", "5 pairs", 0.05, partial(pairs, n=5))
    for n, std in ((3, 1.0), (5, 3.0)):
        yield Rate(
            f"gains-{n}-{std:g}",
            "difference of two gains",
            f"{n} seeds in each of four cells, deviations {std:g} : 1",
            0.05,
            partial(gains, n=n, std=std),
        )
    for std in (1.0, 10.0):
        yield Rate(
            f"anytime-{std:g}",
            "e-values, a look after every seed",
            f"up to 20 seeds, deviations {std:g} : 1",
            0.05,
            partial(anytime, std=std),
            cost=4,
        )
    for n in (3, 10):
        yield Rate(
            f"tie-{n}",
            "tie",
            f"{n} seeds, the true difference is the margin",
            0.05,
            partial(tie_at_the_margin, n=n),
        )
    yield Rate(
        "printed-3",
        "one printed number (Crawford and Howell)",
        "3 seeds",
        0.05,
        partial(one_printed_number, n=3),
    )
    for methods, datasets, alpha in ((2, 7, 0.05), (4, 7, 0.05), (4, 7, 0.01)):
        test = "exact sign test" if methods == 2 else "Friedman by permutation"
        yield Rate(
            f"ranks-{methods}-{alpha:g}",
            f"ranks over datasets, {test}",
            f"{methods} heads, {datasets} datasets",
            alpha,
            partial(ranked, methods=methods, datasets=datasets, alpha=alpha),
            cost=1 if methods == 2 else 10,
        )


def _families() -> Iterator[Rate]:
    for correction in ("holm", "dunnett"):
        for std in (1.0, 4.0):
            yield Rate(
                f"{correction}-{std:g}",
                f"{correction.capitalize()}, any of six heads",
                f"5 seeds, baseline's deviation {std:g} : 1",
                0.05,
                partial(family, heads=6, n=5, correction=correction, std=std),
                cost=10 if correction == "dunnett" else 3,
            )
    yield Rate(
        "daggers-6",
        "† and bold, any cell told from the best",
        "6 cells, 5 seeds",
        0.05,
        partial(daggers, cells=6, n=5),
        cost=4,
    )
    for heads in (1, 6):
        yield Rate(
            f"looks-{heads}",
            "looks at 3, 5, 10 seeds, any head at any look",
            f"{heads} head{'s' if heads > 1 else ''}",
            0.05,
            partial(looks, heads=heads),
            cost=5,
        )


def _users() -> Iterator[Rate]:
    yield Rate(
        "peeking-naive",
        "p < 0.05 after any of 3 to 20 seeds, by hand",
        "what vtjobs calls exploratory",
        ALPHA,
        naive_peeking,
        kind="shown",
        cost=8,
    )
    yield Rate(
        "peeking-declared",
        "declared for 20 seeds, compared after each",
        "called separable",
        0.05,
        peeking,
        cost=8,
    )
    yield Rate(
        "selection-naive",
        "the best of five selections `seed!=k`",
        "what vtjobs calls exploratory",
        ALPHA,
        best_of_five_selections,
        kind="shown",
        cost=5,
    )


def _counts() -> Iterator[Rate]:
    for pilot in (3, 5):
        yield Rate(
            f"topup-error-{pilot}",
            "Welch's t before and after topup --effect",
            f"seeds counted from {pilot}: what vtjobs calls exploratory",
            ALPHA,
            partial(topup_by_effect, pilot=pilot),
            kind="shown",
            cost=2,
        )
    for last, words in ((1.0, ""), (0.5, ", declared as the last of three looks")):
        for m in (1, 3, 6, 10):
            yield Rate(
                f"power-{m}{'-looks' if words else ''}",
                "80 % power",
                f"{m} comparison{'s' if m > 1 else ''}, seeds counted from 3{words}",
                0.78,
                partial(found_after_topup, pilot=3, m=m, effect=1.0, last=last),
                kind="power",
                cost=4,
            )
    yield Rate(
        "power-tie",
        "80 % power for a tie",
        "seeds counted from 5, no difference",
        0.78,
        partial(tie_after_topup, pilot=5),
        kind="power",
        cost=4,
    )


def _intervals() -> Iterator[Rate]:
    coverage = partial(Rate, kind="coverage")
    yield coverage(
        "mean-3",
        "95 % interval of the mean",
        "3 seeds",
        0.95,
        partial(mean_of_seeds, n=3, field="interval"),
    )
    for pilot, bound in ((3, 0.89), (5, 0.91)):
        yield coverage(
            f"mean-topup-{pilot}",
            "95 % interval of the mean, after topup --half-width",
            f"seeds counted from {pilot}",
            bound,
            partial(mean_after_topup, pilot=pilot),
            cost=2,
        )
    yield coverage(
        "std-3",
        "95 % interval of the deviation",
        "3 seeds",
        0.95,
        partial(mean_of_seeds, n=3, field="std_interval"),
    )
    yield coverage(
        "bca-30",
        "95 % BCa bootstrap",
        "30 seeds",
        0.93,
        partial(mean_of_seeds, n=30, field="bca"),
        cost=8,
    )
    yield coverage(
        "effect-4",
        "95 % interval of the effect size",
        "4 seeds, effect 1.5",
        0.95,
        partial(effect_size, n=4),
    )
    for seeds in (3, 5, 10):
        for images in (100, 1000, 10_000):
            yield coverage(
                f"carries-{seeds}-{images}",
                "95 % interval of the spread that carries to new images",
                f"{seeds} seeds, {images:,} images",
                0.94,
                partial(carries, seeds=seeds, images=images, truth=[]),
                cost=20 if images == 10_000 else 4,
            )
    for kind, called, between, bound in (
        ("fixed", "over these datasets", 1.0, 0.95),
        ("random", "over datasets like these", 1.0, 0.94),
        ("new", "for one more dataset", 1.0, 0.92),
    ):
        yield coverage(
            f"datasets-{kind}",
            f"95 % interval {called}",
            "7 datasets, 3 seeds, deviations 0.2 to 2",
            bound,
            partial(over_datasets, datasets=7, kind=kind, effect=0.5, between=between),
            cost=4,
        )


def table(rows: list[tuple[Rate, float, float]]) -> str:
    """Return the rows as Markdown."""
    lines = ["| procedure | condition | bound | simulated | command |", "|---|---|---|---|---|"]
    for rate, share, error in rows:
        lines.append(
            f"| {rate.procedure} | {rate.condition} | {rate.nominal} |"
            f" {share:.3f} ± {error:.3f} | `{rate.name}` |"
        )
    return "\n".join(lines)


def main() -> int:
    """Simulate, and print the table or write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--draws", type=int, default=DRAWS)
    given = parser.parse_args()
    chosen = [rate for rate in rates() if not given.names or rate.name in given.names]
    rows = []
    for rate in chosen:
        share, error = rate.simulated(given.draws)
        rows.append((rate, share, error))
        kept = "" if rate.holds(share, given.draws) else "  OUT OF BOUND"
        print(f"{rate.name:24} {rate.nominal:8} {share:.4f} ± {error:.4f}{kept}", file=sys.stderr)
    if given.names:
        print(table(rows))
    else:
        text = PAGE.read_text()
        before, _, rest = text.partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n{table(rows)}\n{END}{rest.partition(END)[2]}")
    return 0 if all(rate.holds(share, given.draws) for rate, share, _ in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
