"""How many seeds a goal needs: a half-width for each mean, an effect or a tie for each comparison.

Pure.

Only finished runs count; nothing looks at the curves of unfinished ones.
"""

import math
from collections.abc import Callable, Sequence

from ...jobs.documents import Document
from ...jobs.run.comparing import OverDatasets, Test
from ...jobs.run.more_seeds import widened
from ...jobs.run.spec import Axes
from ...jobs.values import Value, changed
from ..stats.difference import Difference, paired, welch
from ..stats.sample_size import (
    MOST_SEEDS,
    POWER,
    power,
    seeds_for,
    seeds_for_equivalence,
    upper_std,
)
from ..stats.summary import LEVEL, student
from ..stats.verdict import Verdict
from .cell import Cell
from .comparisons import compare
from .interim import shares
from .plan import ComparisonPlan
from .samples import by_group, family_sizes, pairs, planned_for

SCHEMA_VERSION = 1


class Need(Document, frozen=True, kw_only=True):
    """The seeds that one cell needs."""

    cell_id: str
    backbone: str
    dataset: str
    head: str
    recipe: str
    stage: str
    axes: Axes
    n: int
    """Seeds with a value."""
    planned: int
    """Runs of the cell."""
    std: float | None
    seeds: list[int]
    """Those that are there or planned."""
    needed: int | None
    """Seeds in all."""
    more: int | None
    """Seeds that nobody has submitted."""
    new_seeds: list[int]
    """The seeds to submit."""
    why_not: str
    """Why none are needed, or why it is not known how many."""
    unknown: bool
    """Whether it is not known how many are needed."""
    run_hours: float | None
    """Of the missing seeds, by the cell's past runs."""
    gpu_hours: float | None


class Needs(Document, frozen=True, kw_only=True):
    """What `vtjobs power` finds."""

    schema_version: int
    cells: list[Need]
    """Each cell's need."""
    runs: int
    """Runs to submit."""
    run_hours: float
    gpu_hours: float
    metric: str
    set: str
    half_width: float | None
    """The goal: half-width of each mean's 95 % CI."""
    effect: float | None
    """The goal: a difference to detect with 80 % power."""
    margin: float | None
    """The goal: a tie within ± it to show with 80 % power, where there is no difference."""
    alpha: float | None
    """At which seeds are counted, for an effect: what the strictest step of Holm's correction, and
    the last interim analysis, leave to a comparison. The smallest, of several families.
    """
    looks: tuple[int, ...]
    """Declared interim analyses, where the goal is the next of them."""
    command: str | None = None
    """Submits the runs, where the selection is one grid."""


class Goal(Value, frozen=True, kw_only=True):
    """What seeds are needed for."""

    metric: str
    set: str
    half_width: float | None = None
    effect: float | None = None
    margin: float | None = None
    looks: tuple[int, ...] = ()
    alpha: float | None = None


def for_precision(cells: Sequence[Cell], half_width: float) -> list[Need]:
    """Return what each cell needs so that the 95 % interval of its mean is no wider than ±
    `half_width`.

    Stein's rule (1945): of n₀ seeds with deviation s, N = max(n₀, ⌈(t · s / h)²⌉), t with n₀ - 1
    degrees of freedom. It holds exactly where the interval of all N seeds is then made with s and
    its degrees of freedom.

    Args:
        cells: of a report.
        half_width: in the metric's unit, above 0.
    """
    found = []
    for cell in cells:
        n, std = cell.n, cell.std
        if std is None:
            what = "scored" if cell.unscored_seeds else "finished"
            found.append(_need(cell, None, f"needs two {what} seeds first"))
            continue
        wanted = math.ceil((student(LEVEL, n - 1) * std / half_width) ** 2)
        found.append(
            _need(
                cell,
                max(n, wanted) if wanted <= MOST_SEEDS else None,
                f"more than {MOST_SEEDS:,} seeds",
            )
        )
    return found


def for_effect(cells: Sequence[Cell], plan: ComparisonPlan) -> list[Need]:
    """Return what each cell needs so that its comparisons find the plan's effect four times in
    five.

    The deviation is the upper limit of that of the runs so far (`sample_size.upper_std`); the
    difference that was seen plays no part. α is that of `strictest`. A baseline needs as many as
    the most demanding of its comparisons.

    Args:
        cells: of a report.
        plan: with `min_effect`.
    """
    assert plan.min_effect is not None
    effect = plan.min_effect

    def count(std: float, m: int) -> int | None:
        is_paired = plan.test is Test.PAIRED
        if not plan.looks:
            return seeds_for(
                effect / std, alpha=plan.alpha / m, pairs=is_paired, anytime=plan.anytime
            )
        # Nothing is tested beyond the last look, nor between two of them.
        spent = zip(plan.looks, shares(plan.alpha, plan.looks), strict=True)
        enough = (
            size
            for size, share in spent
            if power(effect / std, size, alpha=share / m, pairs=is_paired) >= POWER
        )
        return next(enough, None)

    last = f"the last look, at {plan.looks[-1]} seeds, does not find it" if plan.looks else ""
    return _for_comparisons(cells, plan, count, too_many=last)


def for_margin(cells: Sequence[Cell], plan: ComparisonPlan) -> list[Need]:
    """Return what each cell needs so that its comparisons show a tie within the plan's margin four
    times in five, where there is no difference.

    The deviation is as in `for_effect`. Ties are tested at α, without a correction.

    Args:
        cells: of a report.
        plan: with `margin`.
    """
    assert plan.margin is not None
    margin = plan.margin

    def count(std: float, _: int) -> int | None:
        return seeds_for_equivalence(margin / std, alpha=plan.alpha, pairs=plan.test is Test.PAIRED)

    return _for_comparisons(cells, plan, count)


def strictest(cells: Sequence[Cell], plan: ComparisonPlan) -> dict[str, float]:
    """Return family -> the α at which a comparison of it is sure to be significant.

    The first step of Holm's correction, at the last of the declared looks.
    """
    alpha = shares(plan.alpha, plan.looks)[-1] if plan.looks else plan.alpha
    sizes = family_sizes(pairs(cells, plan), plan)
    return {family: alpha / size for family, size in sizes.items()}


def _for_comparisons(
    cells: Sequence[Cell],
    plan: ComparisonPlan,
    count: Callable[[float, int], int | None],
    too_many: str = "",
) -> list[Need]:
    """Return what each cell needs for its comparisons.

    Args:
        cells: of a report.
        plan: how they are compared.
        count: seeds, given a comparison's deviation and how many share its α.
        too_many: what is said where no number of seeds is enough.
    """
    needed: dict[str, int] = {}
    why: dict[str, str] = {}
    both = pairs(cells, plan)
    sizes = family_sizes(both, plan)
    groups = (
        [list(one.values()) for one in by_group(both)]
        if plan.is_pooled
        else [[one] for one in both]
    )
    for group in groups:
        std, why_not = _std_of(group, plan)
        family = "" if plan.is_pooled else plan.family_of(group[0][0].dataset)
        seeds = count(std, sizes[family]) if std else None
        for one in (cell for pair in group for cell in pair):
            if seeds is None:
                why[one.cell_id] = why_not or too_many or f"more than {MOST_SEEDS:,} seeds"
            else:
                needed[one.cell_id] = max(seeds, needed.get(one.cell_id, 0))
    return [
        _need(
            cell,
            needed.get(cell.cell_id),
            why.get(cell.cell_id, ""),
            "not part of any comparison",
        )
        for cell in cells
    ]


def _std_of(group: Sequence[tuple[Cell, Cell]], plan: ComparisonPlan) -> tuple[float | None, str]:
    """Return the deviation that seeds are counted with, or why it is not known.

    Of several datasets that of the mean over them, each with the same weight.
    """
    if plan.over_datasets is OverDatasets.RANDOM:
        return None, "for datasets like these more datasets are needed, and seeds do not help"
    found = [_deviation(cell, baseline, plan) for cell, baseline in group]
    for one in found:
        if not one.std or not one.df:
            return None, one.why_not
    squares = [(one.std or 0.0) ** 2 for one in found]
    total = math.fsum(squares)
    df = total**2 / math.fsum(
        square**2 / (one.df or 1.0) for square, one in zip(squares, found, strict=True)
    )
    return upper_std(math.sqrt(total) / len(group), df), ""


def _deviation(cell: Cell, baseline: Cell, plan: ComparisonPlan) -> Difference:
    both = (cell.values, baseline.values)
    if plan.test is Test.PAIRED:
        return paired(*both)
    return welch(list(both[0].values()), list(both[1].values()))


def for_looks(cells: Sequence[Cell], plan: ComparisonPlan) -> list[Need]:
    """Return what each cell needs so that its comparisons that are still open come to their next
    declared look.

    A baseline needs as many as its open comparisons. Nothing is bought for what is decided.

    Args:
        cells: of a report.
        plan: with `looks`.
    """
    needed: dict[str, int] = {}
    why: dict[str, str] = {}
    by_id = {cell.cell_id: cell for cell in cells}
    for one in compare(cells, plan).comparisons:
        if one.next_look is None and one.verdict == Verdict.NOT_TESTABLE:
            # More seeds would not help.
            why |= dict.fromkeys((one.cell_id, one.baseline), one.detail)
        elif one.next_look is not None:
            both = by_id[one.cell_id], by_id[one.baseline]
            # A pair needs its seed on both sides.
            short = max(0, one.next_look - planned_for(*both, plan))
            for cell in both:
                usable = cell.planned - len(cell.lost_seeds)
                wanted = usable + short if plan.test is Test.PAIRED else one.next_look
                needed[cell.cell_id] = max(wanted, needed.get(cell.cell_id, 0))
    return [
        _need(
            cell,
            needed.get(cell.cell_id),
            why.get(cell.cell_id, ""),
            "decided, or past the last interim analysis",
        )
        for cell in cells
    ]


def _need(cell: Cell, needed: int | None, why_not: str, settled: str = "") -> Need:
    """Return a cell's need.

    Args:
        cell: of a report.
        needed: seeds in all; None where none are, or where it is not known how many.
        why_not: why it is not known, or nothing.
        settled: why none are needed.
    """
    seeds = sorted({*cell.values, *cell.missing_seeds})
    # Seeds that are planned already need no run: they come by themselves, or by an evaluation.
    # Those whose runs failed need one.
    more = None
    if needed is not None:
        more = max(0, needed - cell.planned + len(cell.lost_seeds))
    return Need(
        cell_id=cell.cell_id,
        backbone=cell.backbone,
        dataset=cell.dataset,
        head=cell.head,
        recipe=cell.recipe,
        stage=cell.stage,
        axes=cell.axes,
        n=cell.n,
        planned=cell.planned,
        std=cell.std,
        seeds=seeds,
        needed=needed,
        more=more,
        new_seeds=sorted(set(widened(seeds, len(seeds) + (more or 0))) - set(seeds)),
        why_not="" if needed is not None else why_not or settled,
        unknown=needed is None and bool(why_not),
        run_hours=None,
        gpu_hours=None,
    )


def with_hours(
    needs: Sequence[Need],
    goal: Goal,
    seconds: dict[str, tuple[float, int]],
    gpus: dict[str, float],
) -> Needs:
    """Return the whole document, with the hours that the missing seeds will take by the cells' own
    history.

    Args:
        needs: of the goal.
        goal: what the seeds are for.
        seconds: cell -> seconds of a run, number of runs.
        gpus: cell -> GPUs of a run; less than one where runs share it.
    """
    cells = [
        _costed(need, seconds[need.cell_id][0], gpus.get(need.cell_id, 0))
        if need.cell_id in seconds
        else need
        for need in needs
    ]
    return Needs(
        schema_version=SCHEMA_VERSION,
        cells=cells,
        runs=sum(need.more or 0 for need in cells),
        run_hours=sum(need.run_hours or 0.0 for need in cells),
        gpu_hours=sum(need.gpu_hours or 0.0 for need in cells),
        metric=goal.metric,
        set=goal.set,
        half_width=goal.half_width,
        effect=goal.effect,
        margin=goal.margin,
        alpha=goal.alpha,
        looks=goal.looks,
    )


def _costed(need: Need, seconds: float, gpus: float) -> Need:
    if need.more is None:
        return need
    hours = seconds * need.more / 3600
    return changed(need, run_hours=hours, gpu_hours=hours * gpus)
