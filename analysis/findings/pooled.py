"""One comparison of two heads over all datasets, with what each dataset says. Pure."""

from collections.abc import Sequence

from ...jobs.documents import Document
from ...jobs.run.comparing import OverDatasets, Test
from ...jobs.run.spec import Axes
from ...jobs.values import Value
from ..stats import pooled as stats
from ..stats.difference import Difference, equivalence, holm
from ..stats.verdict import Verdict
from .cell import Cell
from .interim import Seen
from .judgement import judged
from .pair import difference, ends, in_order
from .plan import ComparisonPlan
from .samples import by_group, family_sizes, sides


class DatasetDifference(Document, frozen=True, kw_only=True):
    """What one dataset says."""

    dataset: str
    cell_id: str
    baseline: str
    """The id of the baseline's cell."""
    n: int
    """Seeds that were compared."""
    n_baseline: int
    """Seeds of the baseline."""
    difference: float | None
    """Mean minus the baseline's mean."""
    error: float | None
    """Its standard error."""
    interval: list[float] | None
    """Of the difference, at 1 - alpha."""
    unscored: list[int]
    """Seeds of either side that an evaluation can still score."""
    tried: int
    """Cells of the workspace with this backbone, dataset, head and stage that have begun."""
    tried_baseline: int
    """The same for the baseline's head."""
    why_not: str
    """Why it says nothing."""


class PooledComparison(Document, frozen=True, kw_only=True):
    """One head against its baseline over all datasets that have both."""

    backbone: str
    head: str
    recipe: str
    stage: str
    axes: Axes
    baseline_head: str
    """The head of the baselines."""
    metric: str
    set: str
    better: str
    """max or min."""
    datasets: list[DatasetDifference]
    """What each of them says."""
    cut: list[int]
    """Seeds of either side, on any dataset, whose run was cut into smaller micro-batches."""
    imported: list[int]
    """The same, of runs that were trained elsewhere."""
    is_mixed: bool
    """Whether the two sides differ in this on a dataset: then programs are compared as well."""
    difference: float | None
    """Mean over the datasets, each with the same weight."""
    error: float | None
    """Its standard error."""
    df: float | None
    interval: list[float] | None
    """Of the difference, at 1 - alpha, not adjusted: as `over_datasets` has it."""
    fixed: list[float] | None
    """The interval on these datasets: chance is that of the seeds."""
    random: list[float] | None
    """The interval on datasets like these, from three on: chance is also which were taken."""
    tau: float | None
    """Standard deviation over datasets of the true differences, by REML."""
    prediction: list[float] | None
    """Where the true difference on one further dataset falls."""
    iqm: float | None
    """Difference of the interquartile means over all runs, as gains over the baseline's means."""
    iqm_interval: list[float] | None
    """Of `iqm`, by a stratified bootstrap over seeds, from ten seeds per cell on."""
    p: float | None
    """Two-sided."""
    p_adjusted: float | None
    """For the `m` comparisons that share α."""
    m: int
    """Comparisons that share α."""
    p_equivalence: float | None
    """Of two one-sided tests for a difference within the margin."""
    verdict: Verdict
    """separable, tie, inconclusive or not testable."""
    detail: str
    """What stands behind the verdict."""


Pairs = dict[str, tuple[Cell, Cell]]


def pooled(both: Sequence[tuple[Cell, Cell]], plan: ComparisonPlan) -> list[PooledComparison]:
    """Return one comparison for each head, over the datasets that have it and its baseline.

    p values are adjusted for the number of heads (Holm).

    Args:
        both: each cell with its baseline.
        plan: with `over_datasets`.
    """
    groups = by_group(both)
    m = family_sizes(both, plan)[""]
    found = [_over(group, plan) for group in groups]
    adjusted = holm([one.p for one in found], m=m)
    return [
        _comparison(group, one, p, m, plan)
        for group, one, p in zip(groups, found, adjusted, strict=True)
    ]


def _over(group: Pairs, plan: ComparisonPlan) -> Difference:
    """Return the difference over datasets, or why there is none."""
    n = len(group)
    if n < 2:
        return Difference(n=n, n_baseline=n, why_not="only one dataset has both heads")
    for dataset, (cell, baseline) in group.items():
        one = difference(cell, baseline, plan)
        if one.error is None:
            # Without it the mean would be that of the datasets that went well.
            return Difference(n=n, n_baseline=n, why_not=f"{dataset}: {one.why_not}")
    parts = _parts(group, plan)
    if plan.over_datasets is OverDatasets.FIXED:
        return stats.over_these(parts, alpha=plan.alpha)
    return stats.over_datasets_like_these(parts, alpha=plan.alpha)


def _parts(group: Pairs, plan: ComparisonPlan) -> list[stats.Part]:
    found = [difference(cell, baseline, plan) for cell, baseline in group.values()]
    return [
        stats.Part(one.difference, one.error, one.df)
        for one in found
        if one.difference is not None and one.error is not None and one.df is not None
    ]


def _comparison(
    group: Pairs, found: Difference, adjusted: float | None, m: int, plan: ComparisonPlan
) -> PooledComparison:
    cell, baseline = next(iter(group.values()))
    tie = None if plan.margin is None else equivalence(found, plan.margin)
    seen = Seen(found=found, adjusted=adjusted, alpha=plan.alpha, look=None, next_look=None, m=m)
    word, detail = judged(seen, tie, plan)
    more = _beside(group, plan) if found.difference is not None else _Beside()
    return PooledComparison(
        backbone=cell.backbone,
        head=cell.head,
        recipe=cell.recipe,
        stage=cell.stage,
        axes=cell.axes,
        baseline_head=baseline.head,
        metric=cell.metric,
        set=cell.set,
        better=cell.better,
        datasets=[_on(dataset, *pair, plan) for dataset, pair in sorted(group.items())],
        cut=sorted({seed for pair in group.values() for one in pair for seed in one.cut_seeds}),
        imported=sorted(
            {seed for pair in group.values() for one in pair for seed in one.imported_values}
        ),
        is_mixed=any(
            own.is_mixed_with(other, by_seed=plan.test is Test.PAIRED)
            for own, other in group.values()
        ),
        difference=found.difference,
        error=found.error,
        df=found.df,
        interval=ends(found.interval),
        fixed=more.fixed,
        random=more.random,
        tau=more.tau,
        prediction=more.prediction,
        iqm=more.iqm,
        iqm_interval=more.iqm_interval,
        p=found.p,
        p_adjusted=adjusted,
        m=m,
        p_equivalence=tie,
        verdict=word,
        detail=detail,
    )


def _on(dataset: str, cell: Cell, baseline: Cell, plan: ComparisonPlan) -> DatasetDifference:
    found = difference(cell, baseline, plan)
    return DatasetDifference(
        dataset=dataset,
        cell_id=cell.cell_id,
        baseline=baseline.cell_id,
        n=found.n,
        n_baseline=found.n_baseline,
        difference=found.difference,
        error=found.error,
        interval=ends(found.interval),
        unscored=sorted({*cell.unscored_seeds, *baseline.unscored_seeds}),
        tried=cell.tried,
        tried_baseline=baseline.tried,
        why_not=found.why_not,
    )


class _Beside(Value, frozen=True, kw_only=True):
    """What is said beside the comparison itself."""

    fixed: list[float] | None = None
    random: list[float] | None = None
    tau: float | None = None
    prediction: list[float] | None = None
    iqm: float | None = None
    iqm_interval: list[float] | None = None


def _beside(group: Pairs, plan: ComparisonPlan) -> _Beside:
    parts = _parts(group, plan)
    tau = stats.between_datasets(parts)
    values: dict[str, tuple[list[float], list[float]]] = {}
    for dataset, (cell, baseline) in group.items():
        ours, theirs = sides(cell, baseline, plan)
        values[dataset] = in_order(ours), in_order(theirs)
    iqm, interval = stats.interquartile(values, alpha=plan.alpha)
    return _Beside(
        fixed=ends(stats.over_these(parts, alpha=plan.alpha).interval),
        random=ends(stats.over_datasets_like_these(parts, alpha=plan.alpha).interval),
        tau=tau,
        prediction=ends(stats.prediction(parts, tau, alpha=plan.alpha)),
        iqm=iqm,
        iqm_interval=ends(interval),
    )
