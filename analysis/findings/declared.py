"""How cells are to be compared.

As their grid declared it before the runs, or as the command line says now.
"""

import math
import time
from collections.abc import Sequence
from typing import Any

from ...db import queries
from ...db.engine import reading
from ...db.ledger import Ledger
from ...jobs.errors import BadInput, suggest
from ...jobs.run.comparing import (
    Change,
    Correction,
    Family,
    OnDiverged,
    OverDatasets,
    Select,
    Test,
    contradiction,
)
from ...jobs.run.selector import Selection
from ...jobs.values import asdict, changed
from ...jobs.workspace.grid_settings import Declaration
from . import epochs
from .plan import ComparisonPlan
from .selected_part import selected_part, the_grid
from .usual_metric import usual_metric

_WORDS = {
    "test": Test,
    "select": Select,
    "family": Family,
    "on_diverged": OnDiverged,
    "correction": Correction,
    "over_datasets": OverDatasets,
}

# No test at a larger level says anything.
MOST_ALPHA = 0.5


def settle(ledger: Ledger, selection: Selection, given: dict[str, Any]) -> ComparisonPlan:
    """Return the plan for a selection of runs.

    Args:
        ledger: where the grids are.
        selection: the runs; a declaration counts where all of them belong to one grid.
        given: what the command line says, None where it leaves it open. Anything but the declared
            values makes the plan one of afterwards.

    Raises:
        BadInput: a value that cannot be.
    """
    declared = _declared(ledger, selection)
    base: dict[str, Any] = {}
    if declared and declared[-1].compare is not None:
        base = asdict(declared[-1].compare)
    # What is declared may still have to be evaluated.
    others = {name: value for name, value in given.items() if value != base.get(name)}
    _check_scored(ledger, selection, others)
    values = base | {name: value for name, value in given.items() if value is not None}
    if "metric" not in values:
        values["metric"] = usual_metric(ledger, selection)
    _check_values(values)
    if given.get("anytime") and given.get("margin") is None:
        # Of a declared plan only what goes together with it.
        values.pop("margin", None)
    same = bool(base) and values == base
    values |= {name: words(values[name]) for name, words in _WORDS.items() if name in values}
    values["looks"] = tuple(values.get("looks", ())) if same else ()
    plan = ComparisonPlan(**values, declared=declared if same else [])
    if message := contradiction(plan):
        raise BadInput(message)
    plan = changed(plan, metric=epochs.metric_of(plan.metric, plan.select))
    return _judged_by_what_was_seen(ledger, selection, plan) if same else plan


def _check_values(values: dict[str, Any]) -> None:
    """Refuse an unknown word, and an effect or a margin that is no positive number."""
    for name, words in _WORDS.items():
        if name in values and values[name] not in tuple(words):
            option = name.replace("_", "-")
            raise BadInput(
                f"--{option} {values[name]}: unknown. {suggest(values[name], tuple(words))}"
            )
    alpha = values.get("alpha")
    if alpha is not None and not 0 < alpha <= MOST_ALPHA:
        raise BadInput(f"--alpha {alpha}: a number above 0 and at most {MOST_ALPHA}")
    for name in ("margin", "min_effect"):
        value = values.get(name)
        if value is not None and not 0 < value < math.inf:
            raise BadInput(
                f"--{name.replace('_', '-')} {value:g}: a number above 0, in the metric's unit"
            )


def _judged_by_what_was_seen(
    ledger: Ledger, selection: Selection, plan: ComparisonPlan
) -> ComparisonPlan:
    """Return a declared plan with the reasons why its p values do not hold α, if there are any."""
    words = {
        Change.LATE: "it was declared",
        Change.AMENDED: "it was amended",
        Change.COUNTED: "seeds were added by topup",
    }
    why = [f"{words[one.change]} {_when(one)}" for one in plan.declared if one.change in words]
    part = selected_part(ledger, selection, plan)
    if part is None:
        return changed(plan, exploratory=tuple(why))
    return changed(
        plan,
        declared=[],
        exploratory=(f"not the declared comparison: {part.left_out} left out", *why),
        family_sizes=part.family_sizes,
        planned=part.planned,
    )


def _check_scored(ledger: Ledger, selection: Selection, given: dict[str, Any]) -> None:
    """Refuse a metric or a set that nothing was scored by, while others were."""
    asked = {name: given[name] for name in ("metric", "set") if given.get(name) is not None}
    if not asked:
        return
    with reading(ledger.engine) as connection:
        found = queries.scored(connection, selection)
    # The averaged weights' metric is chosen by `--select`, and has no name of its own there.
    metrics = {metric.removeprefix("ema_") for _, metric in found} | {one[1] for one in found}
    known = {"metric": metrics, "set": {one[0] for one in found}}
    for name, value in asked.items():
        if found and value not in known[name]:
            raise BadInput(f"--{name} {value}: unknown. {suggest(value, sorted(known[name]))}")


def _declared(ledger: Ledger, selection: Selection) -> list[Declaration]:
    with reading(ledger.engine) as connection:
        grid_id = the_grid(connection, selection)
        settings = queries.grid_settings(connection, {grid_id}) if grid_id else {}
    return next((one.declarations for one in settings.values()), [])


def declaration_notes(
    declarations: Sequence[Declaration], exploratory: Sequence[str] = ()
) -> list[str]:
    """Return when a comparison was declared, and what was changed since and why."""
    lines = exploratory_notes(exploratory)
    if not declarations:
        return lines or ["Post hoc: test and margin were not declared before the runs."]
    first, *later = declarations
    declared = f"Declared on {_day(first)}, {_when(first)}."
    return [declared, *lines, *map(_changed, later)]


def exploratory_notes(reasons: Sequence[str]) -> list[str]:
    """Return why p values do not hold α, as a sentence; none where there is no reason."""
    return [f"Exploratory, p values do not hold α: {'; '.join(reasons)}."] if reasons else []


def _changed(one: Declaration) -> str:
    why = f": {one.reason}" if one.reason else ""
    if one.change is Change.SEEDS:
        why = ", as interim analyses and anytime-valid tests allow"
    what = "Seeds added" if one.change in (Change.SEEDS, Change.COUNTED) else "Amended"
    return f"{what} on {_day(one)}, {_when(one)}{why}."


def _day(one: Declaration) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(one.at))


def _when(one: Declaration) -> str:
    if one.finished:
        blind = ", none to compare with another" if one.change is Change.DECLARED else ""
        return f"when {one.finished} of {one.runs} runs had results{blind}"
    if one.started:
        return f"when {one.started} of {one.runs} runs had started"
    return "before the first run"
