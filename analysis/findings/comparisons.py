"""From a report's cells to one comparison with the baseline each, and a word that the seeds can
carry.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from statistics import median, stdev
from typing import Any

from ..stats import rank_tests
from ..stats.difference import (
    Difference,
    Test,
    detectable,
    e_value,
    equivalence,
    false_discovery,
    holm,
    paired,
    seeds_for,
    welch,
)
from ..stats.verdict import Verdict
from .declared import Family, Plan
from .interim import Seen, look
from .reversals import reversals
from .samples import bounds, pairs, ready, sides, why_not

SCHEMA_VERSION = 1


def compare(cells: Sequence[dict[str, Any]], plan: Plan | None = None) -> dict[str, Any]:
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
    """
    plan = plan or Plan()
    both = pairs(cells, plan)
    seen = _seen(both, plan)
    return {
        "schema_version": SCHEMA_VERSION,
        "test": str(plan.test),
        "alpha": plan.alpha,
        "family": str(plan.family),
        "select": str(plan.select),
        "on_diverged": str(plan.on_diverged),
        "looks": list(plan.looks),
        "anytime": plan.anytime,
        "margin": plan.margin,
        "min_effect": plan.min_effect,
        "declared": plan.declared,
        "reversals": reversals(cells, plan),
        "comparisons": [
            _document(cell, baseline, one, plan)
            for (cell, baseline), one in zip(both, seen, strict=True)
        ],
    }


def _seen(both: list[tuple[dict[str, Any], dict[str, Any]]], plan: Plan) -> list[Seen]:
    """Return what is found of each comparison: at the declared looks, or at one over all seeds."""
    groups: dict[str, list[int]] = {}
    for index, (cell, _) in enumerate(both):
        groups.setdefault(cell["dataset"] if plan.family is Family.DATASET else "", []).append(
            index
        )
    seen: dict[int, Seen] = {}
    for members in groups.values():
        seen |= zip(members, _family([both[index] for index in members], plan), strict=True)
    return [seen[index] for index in range(len(both))]


def _family(both: list[tuple[dict[str, Any], dict[str, Any]]], plan: Plan) -> list[Seen]:
    """Return what is found of the comparisons that share α."""
    family = [partial(_difference, cell, baseline, plan) for cell, baseline in both]
    if plan.looks:
        common = [ready(cell, baseline, plan) for cell, baseline in both]
        return look(family, common, alpha=plan.alpha, looks=plan.looks)
    found = [one(None) for one in family]
    adjust = false_discovery if plan.family is Family.SCREEN else holm
    return [
        Seen(found=one, adjusted=p, alpha=plan.alpha, look=None, next_look=None, m=len(both))
        for one, p in zip(found, adjust([one.p for one in found]), strict=True)
    ]


def _difference(
    cell: dict[str, Any], baseline: dict[str, Any], plan: Plan, size: int | None
) -> Difference:
    """Compare two cells by their first `size` seeds, or by all."""
    ours, theirs = sides(cell, baseline, plan, size)
    if plan.test is Test.PAIRED:
        found = paired(ours, theirs, alpha=plan.alpha)
    else:
        found = welch(_ordered(ours), _ordered(theirs), alpha=plan.alpha)
    if found.difference is not None and (why := why_not(cell, baseline, plan)):
        return Difference(
            n=found.n, n_baseline=found.n_baseline, difference=found.difference, why_not=why
        )
    if plan.anytime and (evidence := e_value(found, pairs=plan.test is Test.PAIRED)) is not None:
        # The inverse of an e-value is a p value at any stopping time.
        return replace(found, p=min(1.0, 1 / evidence))
    return found


def _ordered(values: dict[int, float]) -> list[float]:
    return [values[seed] for seed in sorted(values)]


def _document(
    cell: dict[str, Any], baseline: dict[str, Any], seen: Seen, plan: Plan
) -> dict[str, Any]:
    found, adjusted = seen.found, seen.adjusted
    tie = None if plan.margin is None else equivalence(found, plan.margin)
    word, detail = _verdict(found, adjusted, tie, seen.alpha, plan.min_effect, plan.test)
    if plan.anytime and word is Verdict.INCONCLUSIVE:
        # Powers of a test at one declared number of seeds say nothing of this one.
        detail = "add seeds and compare again"
    if plan.family is Family.SCREEN and word is Verdict.SEPARABLE:
        # Of many that pass a screen a share α is expected to be luck.
        word, detail = Verdict.INCONCLUSIVE, "passed the screen: confirm with new seeds"
    if seen.look is not None:
        is_open = seen.next_look and word is not Verdict.SEPARABLE
        ahead = f", the next is at {seen.next_look}" if is_open else ""
        detail = "; ".join(filter(None, [detail, f"interim analysis at {seen.look} seeds{ahead}"]))
    elif seen.next_look is not None:
        word, detail = (
            Verdict.NOT_TESTABLE,
            f"the first interim analysis is at {seen.next_look} seeds",
        )
    return {
        "cell_id": cell["cell_id"],
        "baseline": baseline["cell_id"],
        **{
            name: cell[name]
            for name in ("backbone", "dataset", "head", "recipe", "axes", "metric", "set", "better")
        },
        "baseline_head": baseline["head"],
        "n": found.n,
        "n_baseline": found.n_baseline,
        "planned": cell["planned"],
        "planned_baseline": baseline["planned"],
        "difference": found.difference,
        "bounds": bounds(cell, baseline, plan),
        "error": found.error,
        "interval": [found.interval.low, found.interval.high] if found.interval else None,
        "t": found.t,
        "df": found.df,
        "p": found.p,
        "p_adjusted": adjusted,
        "m": seen.m,
        "alpha": seen.alpha,
        "look": seen.look,
        "next_look": (
            None if word is Verdict.SEPARABLE or why_not(cell, baseline, plan) else seen.next_look
        ),
        "p_equivalence": tie,
        "effect": found.effect,
        "correlation": found.correlation,
        "e_value": e_value(found, pairs=plan.test is Test.PAIRED),
        "ranks": _ranks(cell, baseline, plan, seen.look),
        "rank_floor": found.floor,
        "spread": _spread(cell, baseline, plan, seen.look),
        "verdict": str(word),
        "detail": detail,
    }


def _ranks(
    cell: dict[str, Any], baseline: dict[str, Any], plan: Plan, size: int | None
) -> dict[str, Any]:
    """Return what order says of the very seeds that were compared.

    Of what is not tested it says nothing.
    """
    ours, theirs = ({}, {}) if why_not(cell, baseline, plan) else sides(cell, baseline, plan, size)
    if cell["better"] == "min":
        ours, theirs = ({seed: -value for seed, value in one.items()} for one in (ours, theirs))
    if plan.test is Test.PAIRED:
        return rank_tests.of_pairs(ours, theirs)
    return rank_tests.of_two(_ordered(ours), _ordered(theirs))


def _spread(
    cell: dict[str, Any], baseline: dict[str, Any], plan: Plan, size: int | None
) -> dict[str, float | None]:
    """Compare the spreads.

    `ratio` of the standard deviations, `p` by Brown and Forsythe (1974) from three seeds on.
    """
    ours, theirs = (_ordered(one) for one in sides(cell, baseline, plan, size))
    if min(len(ours), len(theirs)) < 3 or why_not(cell, baseline, plan):
        return {"ratio": None, "p": None}
    own, other = stdev(ours), stdev(theirs)
    ratio = own / other if other else None
    # Of deviations that are all equal on a side, as those of two values that come twice, there is
    # no variance.
    away = [{round(abs(value - median(one)), 9) for value in one} for one in (ours, theirs)]
    if any(len(one) == 1 for one in away):
        return {"ratio": ratio, "p": None}
    from scipy.stats import levene

    return {
        "ratio": ratio,
        "p": max(sys.float_info.min, float(levene(ours, theirs, center="median").pvalue)),
    }


def _verdict(
    found: Difference,
    adjusted: float | None,
    tie: float | None,
    alpha: float,
    min_effect: float | None,
    test: Test,
) -> tuple[Verdict, str]:
    """Return the verdict and what stands behind it.

    A tie and a separable difference can hold at once: the difference is there, and too small to
    matter.
    """
    if adjusted is None:
        return Verdict.NOT_TESTABLE, found.why_not
    equal = tie is not None and tie <= alpha
    if adjusted <= alpha:
        small = "significant, but equivalent within the margin"
        return Verdict.SEPARABLE, small if equal else ""
    if equal:
        return Verdict.TIE, "equivalent within the margin"
    return Verdict.INCONCLUSIVE, _needed(found, alpha, min_effect, test)


def _needed(found: Difference, alpha: float, min_effect: float | None, test: Test) -> str:
    """Say what so many seeds can see, or how many more the declared effect needs."""
    assert found.std is not None
    n, pairs = min(found.n, found.n_baseline), test is Test.PAIRED
    if min_effect is None:
        smallest = detectable(n, alpha=alpha, pairs=pairs) * found.std
        return f"{n} seeds can detect a difference of {smallest:.2f} or more (80 % power)"
    needed = seeds_for(min_effect / found.std, alpha=alpha, pairs=pairs)
    if needed is None:
        return f"no feasible number of seeds detects a difference of {min_effect:g}"
    if needed <= n:
        return f"{n} seeds have 80 % power for a difference of {min_effect:g}, but found none"
    target = f"a difference of {min_effect:g} (80 % power)"
    return f"needs about {needed - n} more seeds to detect {target}"
