"""How heads will be compared, and over which runs, as the grid declared it.

Kept with the moment, and later changes with their reasons.
"""

import json
import time
from collections.abc import Sequence
from typing import Any

from ...db import lookups, queries
from ...db.engine import reading
from ...jobs.documents import to_plain
from ...jobs.errors import BadInput
from ...jobs.run.comparing import Change, CompareSettings
from ...jobs.units import plural
from ...jobs.values import changed
from ...jobs.workspace.grid_settings import Declaration, DeclaredCells
from ...jobs.workspace.stored_grid import FrozenGrid
from ..loop.context import Context

# Stands for a person's reason in the errors that ask for one.
_REASON = "REASON"


def declarations(
    context: Context, frozen: FrozenGrid, reason: str | None, counted: str | None = None
) -> list[Declaration]:
    """Return what a grid has declared so far, this submission's included; the last one holds.

    Each says when it was made, how many of the grid's runs had started and finished by then, and
    why it replaced another one. What an earlier submission under this name declared goes on. Seeds,
    heads and datasets belong to a declaration.

    Args:
        context: workspace and ledger.
        frozen: what is submitted.
        reason: why the declaration changes.
        counted: what `topup` adds seeds for.

    Raises:
        BadInput: runs have started under another `compare`, or results are there that could decide
            which runs are compared, and the runs are others; and no reason is given. Or the reason
            is none.
    """
    _check_reason(reason)
    compare = frozen.settings.compare
    earlier = _earlier(context, frozen)
    if compare is None and not earlier:
        return []
    this = _now(context, frozen, earlier)
    last = earlier[-1] if earlier else None
    if last is None or not (this.started or this.change is Change.AMENDED):
        # Nothing was declared, or nothing can have been seen yet.
        if last is not None and (last.compare, last.design) == (compare, this.design):
            return earlier
        late = Change.LATE if this.change is Change.AMENDED else this.change
        return [changed(this, change=late)]
    if last.compare == compare and _is_known(earlier, this):
        return earlier
    return [*earlier, _after(last, this, reason, counted)]


def _check_reason(reason: str | None) -> None:
    if reason is not None and reason.strip() in ("", _REASON):
        raise BadInput(f"--amend {reason!r} is no reason: say in a sentence why it changes")


def _after(
    last: Declaration, this: Declaration, reason: str | None, counted: str | None
) -> Declaration:
    """Return a declaration that replaces another one after runs have started."""
    compare, is_same = this.compare, last.compare == this.compare
    if is_same and _only_adds_seeds(last.design, this.design):
        if compare is not None and (compare.looks or compare.anytime):
            return changed(this, change=Change.SEEDS)
        if counted:
            could = this.change is Change.AMENDED
            change = Change.COUNTED if could else this.change
            return changed(this, change=change, reason=counted)
    if not reason and not (is_same and this.change is Change.DECLARED):
        raise BadInput(_refusal(last, this, is_same=is_same))
    return changed(this, reason=reason)


def refusal(context: Context, frozen: FrozenGrid) -> str:
    """Return why a submission without a reason would be refused, or ""."""
    try:
        declarations(context, frozen, None)
    except BadInput as error:
        return str(error)
    return ""


def warning(context: Context, frozen: FrozenGrid) -> str:
    """Return what a submission would mean for its comparison: it is refused, exploratory, or ""."""
    if refused := refusal(context, frozen):
        return f"submit will refuse it. {refused}"
    return late(context, frozen)


def late(context: Context, frozen: FrozenGrid) -> str:
    """Return that a grid's first declaration comes after results that could decide it, or ""."""
    if frozen.settings.compare is None or _earlier(context, frozen):
        return ""
    this = _now(context, frozen, [])
    if this.change is not Change.AMENDED:
        return ""
    there = f"{this.finished} of {this.runs} runs have results"
    return f"compare: declared when {there}, so the comparison will be called exploratory"


def _is_known(earlier: Sequence[Declaration], this: Declaration) -> bool:
    """Whether a submission's runs were declared before: it is repeated, and changes nothing.

    Older versions did not keep the runs.
    """
    return not earlier[-1].design or any(one.design == this.design for one in earlier)


def _now(context: Context, frozen: FrozenGrid, earlier: Sequence[Declaration]) -> Declaration:
    """Return the declaration that is submitted now: amended, where results could decide it.

    They could where two heads of it can be compared already; or where a run is left out that has a
    result, so that a head may be compared with the worst seeds of another one. What a first
    declaration does not hold says nothing of it as long as none of its own runs has a result.
    """
    design = _design(frozen)
    run_ids = {run[0] for run in frozen.runs}
    known = [part for one in earlier for part in one.design] + design
    with reading(context.ledger.engine) as connection:
        started = lookups.count_started(connection, run_ids)
        cells = {cell for part in known for cell in part.cells}
        scored = lookups.scored_runs(connection, cells)
    own = scored.keys() & run_ids
    is_first = not earlier
    there = {scored[run_id] for run_id in (own if is_first else scored)}
    is_compared = len({match for match, _ in there}) < len(there)
    left_out = scored.keys() - run_ids if own or not is_first else set()
    return Declaration(
        at=frozen.settings.submitted_at,
        started=started,
        runs=len(run_ids),
        compare=frozen.settings.compare,
        reason=None,
        finished=len(own),
        change=Change.AMENDED if is_compared or left_out else Change.DECLARED,
        design=design,
    )


def _refusal(last: Declaration, this: Declaration, *, is_same: bool) -> str:
    day = time.strftime("%Y-%m-%d", time.localtime(last.at))
    if not is_same:
        message = f"{_others(last.compare, this.compare)}: not as declared on {day}"
        message += f", and {this.started} of {this.runs} runs have started"
        fix = (
            f'Go back to what was declared, or give the reason for the change: --amend "{_REASON}"'
        )
        return f"{message}. {fix}"
    message = f"{_difference(last.design, this.design)}: not as declared on {day}"
    there = f"{this.finished} of {this.runs} runs have results"
    message += f", and {there if this.finished else 'what was declared has results'}"
    fix = (
        "Restore the grid, give it another name, or give the reason (the comparison is exploratory"
        f' then): --amend "{_REASON}"'
    )
    return f"{message}. {fix}"


def _others(before: CompareSettings | None, after: CompareSettings | None) -> str:
    """Say which keys of `compare` have another value."""
    if before is None or after is None:
        return "compare (none, now given)" if before is None else "compare (given, now none)"
    was = to_plain(before)
    keys = [(key, was[key], value) for key, value in to_plain(after).items() if was[key] != value]
    return ", ".join(f"compare.{key} ({_text(old)}, now {_text(new)})" for key, old, new in keys)


def _text(value: Any) -> str:
    """Return a value as a grid file has it."""
    is_plain = isinstance(value, str) and "," not in value
    return str(value) if is_plain else json.dumps(value, ensure_ascii=False)


def _difference(before: Sequence[DeclaredCells], after: Sequence[DeclaredCells]) -> str:
    """Say in which way the runs are others."""
    old, new = _by_cell(before), _by_cell(after)
    seeds = [
        (len(new[cell] - old[cell]), len(old[cell] - new[cell])) for cell in old.keys() & new.keys()
    ]
    words = []
    for number, noun, how in (
        (len(new.keys() - old.keys()), "cell", "more"),
        (len(old.keys() - new.keys()), "cell", "fewer"),
        (max((more for more, _ in seeds), default=0), "seed", "more"),
        (max((fewer for _, fewer in seeds), default=0), "seed", "fewer"),
    ):
        if number:
            words.append(plural(number, f"{how} {noun}"))
    what = ", ".join(words) or "the runs"
    other = old.keys() - new.keys() and new.keys() - old.keys()
    return f"{what} (a cell with another setting is another cell)" if other else what


def _only_adds_seeds(before: Sequence[DeclaredCells], after: Sequence[DeclaredCells]) -> bool:
    """Whether each cell keeps its seeds, and new ones come after all of them."""
    old, new = _by_cell(before), _by_cell(after)
    return old.keys() == new.keys() and all(
        seeds <= new[cell] and min(new[cell] - seeds, default=max(seeds)) >= max(seeds)
        for cell, seeds in old.items()
    )


def _by_cell(design: Sequence[DeclaredCells]) -> dict[str, set[int]]:
    return {cell: set(part.seeds) for part in design for cell in part.cells}


def _design(frozen: FrozenGrid) -> list[DeclaredCells]:
    """Return the cells that are compared, those with the same seeds together.

    Stages that others only start from are none of them.
    """
    begun = {cell.parent for cell in frozen.cells}
    seeds: dict[str, list[int]] = {}
    for _, cell, seed, _ in frozen.runs:
        if cell not in begun:
            seeds.setdefault(frozen.cells[cell].cell_id, []).append(seed)
    alike: dict[tuple[int, ...], list[str]] = {}
    for cell_id, own in seeds.items():
        alike.setdefault(tuple(sorted(own)), []).append(cell_id)
    return [
        DeclaredCells(seeds=list(own), cells=sorted(cells)) for own, cells in sorted(alike.items())
    ]


def _earlier(context: Context, frozen: FrozenGrid) -> list[Declaration]:
    with reading(context.ledger.engine) as connection:
        stored = queries.grid_settings(connection)
    name = frozen.settings.name
    same = [one for one in stored.values() if one.name == name and one.declarations]
    return max(same, key=lambda one: one.submitted_at).declarations if same else []
