"""From a report's cells to one comparison with the baseline each, and a word that the seeds can
carry.
"""

import sys
from collections.abc import Sequence
from functools import partial
from statistics import median

from ...jobs.documents import Document
from ...jobs.run.comparing import (
    Correction,
    Family,
    OnDiverged,
    OverDatasets,
    Select,
    Test,
)
from ...jobs.run.spec import Axes
from ...jobs.values import changed
from ...jobs.workspace.grid_settings import Declaration
from ..stats import rank_tests
from ..stats.difference import (
    Difference,
    e_value,
    equivalence,
    false_discovery,
    holm,
)
from ..stats.dunnett import Sample, step_down
from ..stats.moments import moments
from ..stats.verdict import Verdict
from .between import GainDifference, between
from .borrowed import Borrowed, borrowed
from .cell import Cell
from .interim import Seen, look
from .judgement import judged
from .pair import difference, ends, in_order
from .plan import ComparisonPlan
from .pooled import PooledComparison, pooled
from .reversals import Reversal, reversals
from .samples import bounds, family_sizes, first_seeds, pairs, ready, sides, why_not
from .tallies import Tally, tallies

SCHEMA_VERSION = 1


class SpreadTest(Document, frozen=True, kw_only=True):
    """Whether the standard deviations of two cells differ."""

    ratio: float | None
    """The cell's over the baseline's."""
    p: float | None
    """By Brown and Forsythe (1974), from three seeds on."""


class Comparison(Document, frozen=True, kw_only=True):
    """One cell against its baseline."""

    cell_id: str
    baseline: str
    """The id of the baseline's cell."""
    backbone: str
    dataset: str
    head: str
    recipe: str
    stage: str
    axes: Axes
    metric: str
    set: str
    better: str
    """max or min."""
    baseline_head: str
    """The head of the baseline's cell."""
    n: int
    """Seeds that were compared."""
    n_baseline: int
    """Seeds of the baseline that were compared."""
    planned: int
    """Runs of the cell."""
    planned_baseline: int
    """Runs of the baseline's cell."""
    difference: float | None
    """Mean minus the baseline's mean."""
    unpaired: list[int]
    """Seeds with a value on one side alone, which a paired test leaves out."""
    lost: list[int]
    """Seeds of either side whose run failed for good, or completed without a score."""
    unscored: list[int]
    """Seeds of either side that an evaluation can still score: what is declared waits for them."""
    cancelled: list[int]
    """Seeds of either side whose run was cancelled: what is declared waits for them."""
    tried: int
    """Cells of the workspace with this backbone, dataset, head and stage that have begun, whatever
    their recipe and settings; 0: none of its own runs has begun.
    """
    tried_baseline: int
    """The same for the baseline's head."""
    cut: list[int]
    """Seeds of either side whose run was cut into smaller micro-batches: drop path, dropout and
    batch norm's statistics are not those of a run that was not.
    """
    imported: list[int]
    """Seeds of either side whose runs were trained elsewhere."""
    is_mixed: bool
    """Whether the two sides, or some pair of seeds, differ in this: then programs are compared as
    well.
    """
    bounds: list[float] | None
    """Between what the difference lies, whatever diverged runs would have scored from chance on."""
    error: float | None
    """Standard error of the difference."""
    interval: list[float] | None
    """Of the difference, at 1 - alpha, not adjusted."""
    t: float | None
    df: float | None
    p: float | None
    """Two-sided."""
    p_adjusted: float | None
    """For the `m` comparisons that share α."""
    m: int
    """Comparisons that share α."""
    alpha: float
    """What may be spent at this analysis."""
    look: int | None
    """Seeds a side of the declared interim analysis that this is."""
    next_look: int | None
    """Seeds a side of the next one, while the comparison is open."""
    p_equivalence: float | None
    """Of two one-sided tests for a difference within the margin."""
    effect: float | None
    """Hedges' g."""
    effect_interval: list[float] | None
    """Of the difference in standard deviations, at 1 - alpha."""
    correlation: float | None
    """Pearson's, of paired values."""
    e_value: float | None
    """Evidence against no difference; its inverse is valid at any time."""
    ranks: rank_tests.RankTest
    """What order alone says."""
    rank_floor: float | None
    """The smallest p that ranks alone can give with so few seeds."""
    spread: SpreadTest
    """Whether the standard deviations differ."""
    verdict: Verdict
    """separable, tie, inconclusive or not testable."""
    detail: str
    """What stands behind the verdict."""
    borrowed: Borrowed | None = None
    """What papers print of such data, where a side has a single seed."""


class Comparisons(Document, frozen=True, kw_only=True):
    """What `vtjobs compare` finds."""

    schema_version: int
    test: Test
    """welch or paired."""
    alpha: float
    family: Family
    """Comparisons that share α."""
    select: Select
    on_diverged: OnDiverged
    """What became of diverged runs."""
    looks: tuple[int, ...]
    """Declared interim analyses: numbers of seeds."""
    anytime: bool
    """Whether p is valid after any number of seeds."""
    margin: float | None
    min_effect: float | None
    declared: list[Declaration]
    """The grid's declarations, the last of which holds; none where it was chosen afterwards, or
    where the selection is a part of what was declared.
    """
    exploratory: tuple[str, ...]
    """Why p values do not hold α, each reason in a sentence; none where they do, or where nothing
    was declared.
    """
    reversals: list[Reversal]
    """Conclusions that contradict each other."""
    comparisons: list[Comparison]
    """Each cell against its baseline; none where they are compared over all datasets."""
    tallies: list[Tally]
    """In how many of its comparisons each head is better; heads with one comparison left out, and
    all where datasets are taken together.
    """
    correction: Correction
    """Of p values for their number."""
    over_datasets: OverDatasets
    """Whether heads are compared on each dataset, or once over all of them."""
    pooled: list[PooledComparison]
    """Each head against its baseline over all datasets."""
    between: tuple[GainDifference, ...] = ()
    """How gains differ between the levels of a factor, where that was asked for."""


def compare(
    cells: Sequence[Cell], plan: ComparisonPlan | None = None, *, factor: str | None = None
) -> Comparisons:
    """Compare every cell with the baseline that differs from it in the head alone, or with every
    other such cell.

    The p values of one family, the table or a dataset's part of it, are adjusted for their number
    (Holm). A comparison that cannot be tested counts in it.

    Args:
        cells: a report's, from `analysis.table.report`.
        plan: how, to be settled before the values are seen. `alpha`: how often at least one of the
            family may be called separable where nothing is. `margin`, in the metric's unit: a
            difference within ± this counts as none; without it nothing is ever a tie. `min_effect`:
            the smallest difference worth finding; seeds are counted for it, never for the
            difference that was seen.
        factor: between whose levels gains are compared as well, such as backbone.

    Raises:
        BadInput: no two gains differ in the factor.
    """
    plan = _with_redrawn(plan or ComparisonPlan(), cells)
    both = pairs(cells, plan)
    # Over all datasets there is one comparison per head; each dataset's is a part of it.
    seen = [] if plan.is_pooled else _seen(both, plan)
    compared = [
        _comparison(cell, baseline, one, plan)
        for (cell, baseline), one in zip(both if seen else [], seen, strict=True)
    ]
    return Comparisons(
        schema_version=SCHEMA_VERSION,
        test=plan.test,
        alpha=plan.alpha,
        family=plan.family,
        select=plan.select,
        on_diverged=plan.on_diverged,
        looks=plan.looks,
        anytime=plan.anytime,
        margin=plan.margin,
        min_effect=plan.min_effect,
        correction=plan.correction,
        over_datasets=plan.over_datasets,
        declared=plan.declared,
        exploratory=plan.exploratory,
        reversals=reversals(cells, plan),
        comparisons=compared,
        tallies=tallies(compared),
        pooled=pooled(both, plan) if plan.is_pooled else [],
        between=() if factor is None else tuple(between(cells, plan, factor)),
    )


def _with_redrawn(plan: ComparisonPlan, cells: Sequence[Cell]) -> ComparisonPlan:
    """Return a declared plan that says which results were replaced by others."""
    seeds = sorted({seed for cell in cells for seed in cell.redrawn_seeds})
    if not plan.declared or not seeds:
        return plan
    named = f"seed{'s' if len(seeds) > 1 else ''} {' and '.join(map(str, seeds))}"
    return changed(
        plan, exploratory=(*plan.exploratory, f"{named} ran again after a result was there")
    )


def _seen(both: list[tuple[Cell, Cell]], plan: ComparisonPlan) -> list[Seen]:
    """Return what is found of each comparison: at the declared looks, or at one over all seeds."""
    groups: dict[str, list[int]] = {}
    for index, (cell, _) in enumerate(both):
        groups.setdefault(plan.family_of(cell.dataset), []).append(index)
    sizes = family_sizes(both, plan)
    seen: dict[int, Seen] = {}
    for family, members in groups.items():
        found = _family([both[index] for index in members], plan, sizes[family])
        seen |= zip(members, found, strict=True)
    return [seen[index] for index in range(len(both))]


def _family(both: list[tuple[Cell, Cell]], plan: ComparisonPlan, m: int) -> list[Seen]:
    """Return what is found of the comparisons that share α with m - len(both) others."""
    family = [partial(difference, cell, baseline, plan) for cell, baseline in both]
    if plan.looks:
        common = [ready(cell, baseline, plan) for cell, baseline in both]
        return look(family, common, alpha=plan.alpha, looks=plan.looks, m=m)
    found = [one(None) for one in family]
    return [
        Seen(found=one, adjusted=p, alpha=plan.alpha, look=None, next_look=None, m=m)
        for one, p in zip(found, _adjusted(found, both, plan, m), strict=True)
    ]


def _adjusted(
    found: Sequence[Difference], both: Sequence[tuple[Cell, Cell]], plan: ComparisonPlan, m: int
) -> list[float | None]:
    """Return p values adjusted for their number."""
    ps = [one.p for one in found]
    if plan.correction is Correction.DUNNETT:
        return step_down(ps, [_samples(cell, baseline, plan) for cell, baseline in both], m=m)
    adjust = false_discovery if plan.family is Family.SCREEN else holm
    return adjust(ps, m=m)


def _samples(cell: Cell, baseline: Cell, plan: ComparisonPlan) -> tuple[Sample, Sample]:
    own, other = (
        Sample(one.cell_id, moments(tuple(values))[1], len(values))
        for one, values in zip(
            (cell, baseline), map(in_order, sides(cell, baseline, plan)), strict=True
        )
    )
    return own, other


def _comparison(cell: Cell, baseline: Cell, seen: Seen, plan: ComparisonPlan) -> Comparison:
    found = seen.found
    tie = None if plan.margin is None else equivalence(found, plan.margin)
    lost = sorted({*cell.lost_seeds, *baseline.lost_seeds})
    unscored = sorted({*cell.unscored_seeds, *baseline.unscored_seeds})
    cancelled = sorted({*cell.cancelled_seeds, *baseline.cancelled_seeds})
    word, detail = judged(seen, tie, plan, lost=lost)
    planned, planned_baseline = cell.planned, baseline.planned
    cell, baseline = first_seeds(cell, baseline, plan, seen.look)
    is_untested = bool(why_not(cell, baseline, plan))
    closed = word is Verdict.SEPARABLE or is_untested
    by_seed = plan.test is Test.PAIRED and not is_untested
    ours, theirs = ({}, {}) if is_untested else sides(cell, baseline, plan)
    return Comparison(
        cell_id=cell.cell_id,
        baseline=baseline.cell_id,
        backbone=cell.backbone,
        dataset=cell.dataset,
        head=cell.head,
        recipe=cell.recipe,
        stage=cell.stage,
        axes=cell.axes,
        metric=cell.metric,
        set=cell.set,
        better=cell.better,
        baseline_head=baseline.head,
        n=found.n,
        n_baseline=found.n_baseline,
        planned=planned,
        planned_baseline=planned_baseline,
        difference=found.difference,
        unpaired=sorted(cell.values.keys() ^ baseline.values.keys()) if by_seed else [],
        lost=lost,
        unscored=unscored,
        cancelled=cancelled,
        tried=cell.tried,
        tried_baseline=baseline.tried,
        cut=sorted({*cell.cut_seeds, *baseline.cut_seeds}),
        imported=sorted({*cell.imported_values, *baseline.imported_values}),
        is_mixed=cell.is_mixed_with(baseline, by_seed=by_seed),
        bounds=bounds(cell, baseline, plan),
        error=found.error,
        interval=ends(found.interval),
        t=found.t,
        df=found.df,
        p=found.p,
        p_adjusted=seen.adjusted,
        m=seen.m,
        alpha=seen.alpha,
        look=seen.look,
        next_look=None if closed else seen.next_look,
        p_equivalence=tie,
        effect=found.effect,
        effect_interval=ends(found.effect_interval),
        correlation=found.correlation,
        e_value=e_value(in_order(ours), in_order(theirs)),
        ranks=_ranks(ours, theirs, cell.better, plan.test),
        rank_floor=found.floor,
        spread=_spread(in_order(ours), in_order(theirs)),
        verdict=word,
        detail=detail,
        borrowed=borrowed(cell, baseline, found, plan),
    )


def _ranks(
    ours: dict[int, float], theirs: dict[int, float], better: str, test: Test
) -> rank_tests.RankTest:
    """Return what order says of the very seeds that were compared."""
    if better == "min":
        ours, theirs = ({seed: -value for seed, value in one.items()} for one in (ours, theirs))
    if test is Test.PAIRED:
        return rank_tests.of_pairs(ours, theirs)
    return rank_tests.of_two(in_order(ours), in_order(theirs))


def _spread(ours: list[float], theirs: list[float]) -> SpreadTest:
    """Compare the standard deviations."""
    if min(len(ours), len(theirs)) < 3:
        return SpreadTest(ratio=None, p=None)
    own, other = moments(tuple(ours))[1], moments(tuple(theirs))[1]
    ratio = own / other if other else None
    # Of deviations that are all equal on a side, as those of two values that come twice, there is
    # no variance.
    away = [{round(abs(value - median(one)), 9) for value in one} for one in (ours, theirs)]
    if any(len(one) == 1 for one in away):
        return SpreadTest(ratio=ratio, p=None)
    from scipy.stats import levene

    p = float(levene(ours, theirs, center="median").pvalue)
    return SpreadTest(ratio=ratio, p=max(sys.float_info.min, p))
