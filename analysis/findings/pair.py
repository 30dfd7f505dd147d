"""Two cells by the test of a plan, before anything is adjusted or judged. Pure."""

from collections.abc import Sequence

from ...jobs.run.comparing import Test
from ...jobs.values import changed
from ..stats.difference import Difference, Interval, e_value, paired, welch
from .cell import Cell
from .plan import ComparisonPlan
from .samples import first_seeds, is_watched, sides, why_not


def difference(
    cell: Cell, baseline: Cell, plan: ComparisonPlan, size: int | None = None
) -> Difference:
    """Compare two cells by their first `size` seeds, or by all."""
    cell, baseline = first_seeds(cell, baseline, plan, size)
    ours, theirs = sides(cell, baseline, plan)
    if plan.test is Test.PAIRED:
        found = paired(ours, theirs, alpha=plan.alpha)
    else:
        found = welch(in_order(ours), in_order(theirs), alpha=plan.alpha)
    if found.difference is not None and (why := why_not(cell, baseline, plan)):
        return Difference(
            n=found.n, n_baseline=found.n_baseline, difference=found.difference, why_not=why
        )
    if plan.anytime:
        return _at_any_time(found, e_value(in_order(ours), in_order(theirs)))
    return found


def _at_any_time(found: Difference, evidence: float | None) -> Difference:
    """Return a difference with the p value that holds at any stopping time: the inverse of an
    e-value.
    """
    if evidence is None:
        why = found.why_not or "an e-value needs three seeds on each side that differ"
        return Difference(
            n=found.n, n_baseline=found.n_baseline, difference=found.difference, why_not=why
        )
    return changed(found, p=min(1.0, 1 / evidence))


def in_order(values: dict[int, float]) -> list[float]:
    """Return the values in the order of their seeds."""
    return [values[seed] for seed in sorted(values)]


def ends(interval: Interval | None) -> list[float] | None:
    """Return an interval as documents have it."""
    return [interval.low, interval.high] if interval else None


def gain_intervals(cells: Sequence[Cell], plan: ComparisonPlan) -> dict[str, list[float]]:
    """Return cell -> the interval of its gain over its baseline, where it may be shown."""
    if is_watched(cells, plan):
        return {}
    by_id = {cell.cell_id: cell for cell in cells}
    found = {
        cell.cell_id: ends(difference(cell, by_id[cell.baseline], plan).interval)
        for cell in cells
        if cell.gain is not None and cell.baseline in by_id
    }
    return {cell_id: interval for cell_id, interval in found.items() if interval}
