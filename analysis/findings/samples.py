"""The values of two cells that a comparison is made of, and what makes them no comparison. Pure."""

import itertools
import json
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from math import inf
from statistics import fmean
from typing import Any

from ...jobs.run.comparing import OnDiverged, Select, Test
from ...jobs.run.spec import EACH
from ...jobs.values import changed
from .cell import LABELS, Cell
from .plan import ComparisonPlan

CEILING = 100.0

Sides = tuple[dict[int, float], dict[int, float]]


def pairs(cells: Sequence[Cell], plan: ComparisonPlan) -> list[tuple[Cell, Cell]]:
    """Return what is compared.

    Each cell with its baseline, or every pair of cells that differ in the head alone.
    """
    if plan.baseline != EACH:
        by_id = {cell.cell_id: cell for cell in cells}
        return [(cell, by_id[cell.baseline]) for cell in cells if cell.baseline in by_id]
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(cell.match_id, []).append(cell)
    return [
        (one, other) for own in groups.values() for other, one in itertools.combinations(own, 2)
    ]


def sides(cell: Cell, baseline: Cell, plan: ComparisonPlan) -> Sides:
    """Return seed -> value of both, of all that may be compared."""
    levels = [
        one.chance if plan.on_diverged is OnDiverged.CHANCE else None for one in (cell, baseline)
    ]
    return _cut(_filled(cell, levels[0]), _filled(baseline, levels[1]), plan)


def first_seeds(
    cell: Cell, baseline: Cell, plan: ComparisonPlan, size: int | None
) -> tuple[Cell, Cell]:
    """Return both cells as they are at a look: with the outcomes of their first `size` seeds alone.

    What becomes of later seeds changes nothing of it. None: with all; at any time with those that
    wait for no other one.
    """
    if size is None and not plan.anytime:
        return cell, baseline
    first = [one.outcomes for one in (cell, baseline)]
    if plan.anytime:
        size = ready(cell, baseline, plan)
    if plan.test is Test.PAIRED:
        first = [first[0] & first[1]] * 2
    order = _order(cell, baseline, plan)
    ours, theirs = (
        sorted(seeds, key=place)[:size] for seeds, place in zip(first, order, strict=True)
    )
    return _with_seeds(cell, ours), _with_seeds(baseline, theirs)


def _order(cell: Cell, baseline: Cell, plan: ComparisonPlan) -> list[Callable[[int], Any]]:
    """Return the order of either side's seeds; of pairs one order for both."""
    if plan.test is Test.PAIRED:
        return [lambda seed: max(cell.place(seed), baseline.place(seed))] * 2
    return [cell.place, baseline.place]


def _with_seeds(cell: Cell, seeds: Collection[int]) -> Cell:
    return changed(
        cell,
        values={seed: value for seed, value in cell.values.items() if seed in seeds},
        diverged_seeds=[seed for seed in cell.diverged_seeds if seed in seeds],
    )


def ready(cell: Cell, baseline: Cell, plan: ComparisonPlan) -> int:
    """Return how many seeds a look may use.

    Planned ones from the first on, as far as both sides have their outcome. A seed whose run
    failed for good is replaced by the next one. What lies behind a seed that is still to come waits
    for it, so that a look is the same whenever it is made.
    """
    known = [one.outcomes for one in (cell, baseline)]
    planned = [there | set(one.waiting) for there, one in zip(known, (cell, baseline), strict=True)]
    if plan.test is Test.PAIRED:
        planned = [planned[0] & planned[1]] * 2
    counts: list[int] = []
    for seeds, there, place in zip(planned, known, _order(cell, baseline, plan), strict=True):
        first_to_come = min((place(seed) for seed in seeds - there), default=(True, inf))
        counts.append(sum(place(seed) < first_to_come for seed in seeds))
    return min(counts)


def planned_for(cell: Cell, baseline: Cell, plan: ComparisonPlan) -> int:
    """Return how many seeds a comparison can have, once all that are planned are in."""
    planned = [one.outcomes | set(one.waiting) for one in (cell, baseline)]
    if plan.test is Test.PAIRED:
        return len(planned[0] & planned[1])
    return min(map(len, planned))


def family_sizes(both: Sequence[tuple[Cell, Cell]], plan: ComparisonPlan) -> Counter[str]:
    """Return family -> how many comparisons share its α, with those that were declared and are not
    selected.
    """
    if plan.is_pooled:
        found = Counter({"": len(by_group(both))})
    else:
        found = Counter(plan.family_of(cell.dataset) for cell, _ in both)
    return found | Counter(plan.family_sizes)


def by_group(both: Sequence[tuple[Cell, Cell]]) -> list[dict[str, tuple[Cell, Cell]]]:
    """Return the comparisons that differ in their dataset alone, by dataset."""
    found: dict[str, dict[str, tuple[Cell, Cell]]] = {}
    for cell, baseline in both:
        labels = [getattr(cell, name) for name in LABELS if name != "dataset"]
        group = json.dumps([*labels, cell.axes, baseline.head], sort_keys=True, default=str)
        found.setdefault(group, {})[cell.dataset] = (cell, baseline)
    return list(found.values())


def is_watched(cells: Sequence[Cell], plan: ComparisonPlan) -> bool:
    """Whether a mark or a p value beside the declared ones would be a look of its own.

    The plan is of looks, or of any number of seeds; or only a part of what it declares is selected,
    or has finished.
    """
    if plan.is_by_looks or plan.planned:
        return True
    return bool(plan.declared) and any(cell.waiting for cell in cells)


def _filled(cell: Cell, level: float | None) -> dict[int, float]:
    """Return seed -> value, the diverged ones at a level."""
    return cell.values | (dict.fromkeys(cell.diverged_seeds, level) if level is not None else {})


def _cut(ours: dict[int, float], theirs: dict[int, float], plan: ComparisonPlan) -> Sides:
    seeds = [set(one) for one in (ours, theirs)]
    if plan.test is Test.PAIRED:
        # The seeds that both have.
        seeds = [ours.keys() & theirs.keys()] * 2
    first, second = (
        {seed: one[seed] for seed in sorted(own)}
        for one, own in zip((ours, theirs), seeds, strict=True)
    )
    return first, second


def why_not(cell: Cell, baseline: Cell, plan: ComparisonPlan) -> str:
    """Return why two cells with values are not tested, or nothing."""
    if plan.declared and not plan.is_by_looks and (cell.waiting or baseline.waiting):
        # To test it each time that a seed comes in would be wrong far more often than α.
        there = sum(len(one.outcomes) for one in (cell, baseline))
        planned = there + sum(len(one.waiting) for one in (cell, baseline))
        is_unscored = cell.unscored_seeds or baseline.unscored_seeds
        what = "are scored" if is_unscored else "have finished"
        return f"{there} of {planned} declared runs {what}"
    if (
        cell.select == Select.BEST_VAL
        and not cell.candidates == baseline.candidates == cell.candidates[:1]
    ):
        numbers = " and ".join(
            ",".join(map(str, one.candidates)) or "no" for one in (cell, baseline)
        )
        return f"best of {numbers} epochs: more candidates give a better score by chance alone"
    diverged = [one for one in (cell, baseline) if one.diverged_seeds]
    count = sum(len(one.diverged_seeds) for one in diverged)
    if plan.on_diverged is OnDiverged.CHANCE:
        level = all(one.chance is not None for one in diverged)
        return "" if level else f"{count} diverged run(s), and {cell.metric} has no chance level"
    if not diverged:
        return ""
    # Without them the difference would be that of the runs that went well.
    why = f"{count} diverged run(s) without a score"
    limits = bounds(cell, baseline, plan)
    if limits is None:
        return why
    within = f"[{limits[0]:+.2f}, {limits[1]:+.2f}]"
    return f"{why}; with any score from chance to 100 the difference would be in {within}"


def bounds(cell: Cell, baseline: Cell, plan: ComparisonPlan) -> list[float] | None:
    """Return between what the difference lies, whatever diverged runs would have scored from chance
    on.
    """
    if not (cell.diverged_seeds or baseline.diverged_seeds) or None in (
        cell.chance,
        baseline.chance,
    ):
        return None
    found = []
    for levels in ((cell.chance, CEILING), (CEILING, baseline.chance)):
        ours, theirs = _cut(_filled(cell, levels[0]), _filled(baseline, levels[1]), plan)
        if not ours or not theirs:
            return None
        found.append(fmean(ours.values()) - fmean(theirs.values()))
    return found
