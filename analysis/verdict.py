"""From a report's cells to one comparison with the baseline each, and a word that the seeds can carry."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from . import ranks
from .declared import Plan
from .describe import values_of
from .difference import Difference, Test, detectable, e_value, equivalence, holm, paired, seeds_for, welch
from .looks import Seen, look

SCHEMA_VERSION = 1


def compare(cells: Sequence[dict[str, Any]], plan: Plan | None = None) -> dict[str, Any]:
    """Compare every cell with the baseline that differs from it in the head alone.

    The p values of one table are one family (Holm). A comparison that cannot be tested counts in it.

    Args:
        cells: a report's, from `analysis.table.report`.
        plan: how, to be settled before the values are seen. `alpha`: how often at least one of the family may be called
            separable where nothing is. `margin`, in the metric's unit: a difference within ± this counts as none;
            without it nothing is ever a tie. `min_effect`: the smallest difference worth finding; seeds are counted
            for it, never for the difference that was seen.
    """
    plan = plan or Plan()
    by_id = {cell["cell_id"]: cell for cell in cells}
    pairs = [(cell, by_id[cell["baseline"]]) for cell in cells if cell["baseline"] in by_id]
    seen = _seen(pairs, plan)
    return {
        "schema_version": SCHEMA_VERSION,
        "test": str(plan.test),
        "alpha": plan.alpha,
        "family": len(pairs),
        "looks": list(plan.looks),
        "anytime": plan.anytime,
        "margin": plan.margin,
        "min_effect": plan.min_effect,
        "declared": plan.declared,
        "comparisons": [
            _document(cell, baseline, one, plan) for (cell, baseline), one in zip(pairs, seen, strict=True)
        ],
    }


def _seen(pairs: list[tuple[dict[str, Any], dict[str, Any]]], plan: Plan) -> list[Seen]:
    """Return what is found of each comparison: at the declared looks, or at one over all seeds."""
    family = [partial(_difference, cell, baseline, plan) for cell, baseline in pairs]
    if plan.looks:
        common = [_common(cell, baseline, plan) for cell, baseline in pairs]
        return look(family, common, alpha=plan.alpha, looks=plan.looks)
    found = [one(None) for one in family]
    adjusted = holm([one.p for one in found])
    return [
        Seen(found=one, adjusted=p, alpha=plan.alpha, look=None, next_look=None)
        for one, p in zip(found, adjusted, strict=True)
    ]


Sides = tuple[dict[int, float], dict[int, float]]


def _sides(cell: dict[str, Any], baseline: dict[str, Any], plan: Plan, size: int | None = None) -> Sides:
    """Return seed -> value of both: the first `size` seeds, or all that may be compared."""
    ours, theirs = values_of(cell), values_of(baseline)
    if plan.test is Test.PAIRED:
        # The first seeds that both have.
        shared = ours.keys() & theirs.keys()
        ours, theirs = ({seed: one[seed] for seed in shared} for one in (ours, theirs))
    if plan.anytime:
        # With sides of one size it hardly matters that an e-value takes their variances for equal.
        size = min(len(ours), len(theirs))
    first, second = ({seed: one[seed] for seed in sorted(one)[:size]} for one in (ours, theirs))
    return first, second


def _common(cell: dict[str, Any], baseline: dict[str, Any], plan: Plan) -> int:
    return min(map(len, _sides(cell, baseline, plan)))


def _diverged(cell: dict[str, Any], baseline: dict[str, Any]) -> int:
    return int(cell["states"].get("diverged", 0) + baseline["states"].get("diverged", 0))


def _difference(cell: dict[str, Any], baseline: dict[str, Any], plan: Plan, size: int | None) -> Difference:
    """Compare two cells by their first `size` seeds, or by all."""
    ours, theirs = _sides(cell, baseline, plan, size)
    if plan.test is Test.PAIRED:
        found = paired(ours, theirs, alpha=plan.alpha)
    else:
        found = welch(_ordered(ours), _ordered(theirs), alpha=plan.alpha)
    diverged = _diverged(cell, baseline)
    if diverged and found.difference is not None:
        # Without it the difference would be that of the runs that went well.
        why = f"{diverged} diverged run(s): an outcome without a value"
        return Difference(n=found.n, n_baseline=found.n_baseline, difference=found.difference, why_not=why)
    if plan.anytime and (evidence := e_value(found, pairs=plan.test is Test.PAIRED)) is not None:
        # The inverse of an e-value is a p value at any stopping time.
        return replace(found, p=min(1.0, 1 / evidence))
    return found


def _ordered(values: dict[int, float]) -> list[float]:
    return [values[seed] for seed in sorted(values)]


def _document(cell: dict[str, Any], baseline: dict[str, Any], seen: Seen, plan: Plan) -> dict[str, Any]:
    found, adjusted = seen.found, seen.adjusted
    tie = None if plan.margin is None else equivalence(found, plan.margin)
    word, detail = _verdict(found, adjusted, tie, seen.alpha, plan.min_effect, plan.test)
    if plan.anytime and word == "inconclusive":
        # Powers of a test at one declared number of seeds say nothing of this one.
        detail = "look again with more seeds"
    if seen.look is not None:
        ahead = f"; the next look is at {seen.next_look}" if seen.next_look and word != "separable" else ""
        detail = "; ".join(filter(None, [detail, f"at the look of {seen.look} seeds{ahead}"]))
    elif seen.next_look is not None:
        word, detail = "not testable", f"the first look is at {seen.next_look} seeds"
    return {
        "cell_id": cell["cell_id"],
        "baseline": baseline["cell_id"],
        **{name: cell[name] for name in ("backbone", "dataset", "head", "recipe", "axes", "metric", "set", "better")},
        "baseline_head": baseline["head"],
        "n": found.n,
        "n_baseline": found.n_baseline,
        "planned": cell["planned"],
        "planned_baseline": baseline["planned"],
        "difference": found.difference,
        "error": found.error,
        "interval": [found.interval.low, found.interval.high] if found.interval else None,
        "t": found.t,
        "df": found.df,
        "p": found.p,
        "p_adjusted": adjusted,
        "alpha": seen.alpha,
        "look": seen.look,
        "next_look": seen.next_look if word != "separable" else None,
        "p_equivalence": tie,
        "effect": found.effect,
        "correlation": found.correlation,
        "e_value": e_value(found, pairs=plan.test is Test.PAIRED),
        "ranks": _ranks(cell, baseline, plan, seen.look),
        "rank_floor": found.floor,
        "verdict": word,
        "detail": detail,
    }


def _ranks(cell: dict[str, Any], baseline: dict[str, Any], plan: Plan, size: int | None) -> dict[str, Any]:
    """Return what order says of the very seeds that were compared; of a cell with a diverged run it says nothing."""
    ours, theirs = ({}, {}) if _diverged(cell, baseline) else _sides(cell, baseline, plan, size)
    if cell["better"] == "min":
        ours, theirs = ({seed: -value for seed, value in one.items()} for one in (ours, theirs))
    if plan.test is Test.PAIRED:
        return ranks.of_pairs(ours, theirs)
    return ranks.of_two(_ordered(ours), _ordered(theirs))


def _verdict(
    found: Difference, adjusted: float | None, tie: float | None, alpha: float, min_effect: float | None, test: Test
) -> tuple[str, str]:
    """Return the word and what stands behind it.

    A tie and a separable difference can hold at once: the difference is there, and too small to matter.
    """
    if adjusted is None:
        return "not testable", found.why_not
    equal = tie is not None and tie <= alpha
    if adjusted <= alpha:
        return "separable", "smaller than the margin" if equal else ""
    if equal:
        return "tie", "equivalent within the margin"
    return "inconclusive", _needed(found, alpha, min_effect, test)


def _needed(found: Difference, alpha: float, min_effect: float | None, test: Test) -> str:
    """Say what so many seeds can see, or how many more the declared effect needs."""
    assert found.std is not None
    n, pairs = min(found.n, found.n_baseline), test is Test.PAIRED
    if min_effect is None:
        return f"{n} seeds find {detectable(n, alpha=alpha, pairs=pairs) * found.std:.2f} four times in five"
    needed = seeds_for(min_effect / found.std, alpha=alpha, pairs=pairs)
    if needed is None:
        return f"a difference of {min_effect:g} is out of reach"
    if needed <= n:
        return f"{n} seeds are enough for a difference of {min_effect:g}, and there is none to be seen"
    return f"needs about {needed - n} more seeds for a difference of {min_effect:g}"
