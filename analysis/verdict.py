"""From a report's cells to one comparison with the baseline each, and a word that the seeds can carry."""

from collections.abc import Sequence
from typing import Any

from .declared import Plan
from .difference import Difference, Test, detectable, equivalence, holm, paired, seeds_for, welch

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
    test, alpha, margin, min_effect = plan.test, plan.alpha, plan.margin, plan.min_effect
    by_id = {cell["cell_id"]: cell for cell in cells}
    pairs = [(cell, by_id[cell["baseline"]]) for cell in cells if cell["baseline"] in by_id]
    found = [_difference(cell, baseline, test, alpha) for cell, baseline in pairs]
    adjusted = holm([one.p for one in found])
    return {
        "schema_version": SCHEMA_VERSION,
        "test": str(test),
        "alpha": alpha,
        "family": len(found),
        "margin": margin,
        "min_effect": min_effect,
        "declared": plan.declared,
        "comparisons": [
            _document(cell, baseline, one, p, alpha, margin, min_effect, test)
            for (cell, baseline), one, p in zip(pairs, found, adjusted, strict=True)
        ],
    }


def _difference(cell: dict[str, Any], baseline: dict[str, Any], test: Test, alpha: float) -> Difference:
    ours, theirs = _values(cell), _values(baseline)
    if test is Test.PAIRED:
        found = paired(ours, theirs, alpha=alpha)
    else:
        found = welch(_ordered(ours), _ordered(theirs), alpha=alpha)
    diverged = cell["states"].get("diverged", 0) + baseline["states"].get("diverged", 0)
    if diverged and found.difference is not None:
        # Without it the difference would be that of the runs that went well.
        why = f"{diverged} diverged run(s): an outcome without a value"
        return Difference(n=found.n, n_baseline=found.n_baseline, difference=found.difference, why_not=why)
    return found


def _values(cell: dict[str, Any]) -> dict[int, float]:
    return {int(seed): value for seed, value in cell["values"].items()}


def _ordered(values: dict[int, float]) -> list[float]:
    return [values[seed] for seed in sorted(values)]


def _document(
    cell: dict[str, Any],
    baseline: dict[str, Any],
    found: Difference,
    adjusted: float | None,
    alpha: float,
    margin: float | None,
    min_effect: float | None,
    test: Test,
) -> dict[str, Any]:
    tie = None if margin is None else equivalence(found, margin)
    word, detail = _verdict(found, adjusted, tie, alpha, min_effect, test)
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
        "p_equivalence": tie,
        "effect": found.effect,
        "correlation": found.correlation,
        "rank_floor": found.floor,
        "verdict": word,
        "detail": detail,
    }


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
