"""How heads will be compared, as the grid declared it.

Kept with the moment, and later changes with their reasons.
"""

import time

from ...db import lookups, queries
from ...db.engine import reading
from ...jobs.errors import BadInput
from ...jobs.workspace.grid_settings import Declaration
from ...jobs.workspace.stored_grid import FrozenGrid
from ..loop.context import Context


def declarations(context: Context, frozen: FrozenGrid, reason: str | None) -> list[Declaration]:
    """Return what a grid has declared so far, this submission's included; the last one holds.

    Each says when it was made, how many of the grid's runs had started by then, and why it replaced
    another one. What an earlier submission under this name declared goes on.

    Raises:
        BadInput: runs have started under another declaration, and no reason is given.
    """
    compare = frozen.settings.compare
    earlier = _earlier(context, frozen)
    if (earlier[-1].compare if earlier else None) == compare:
        return earlier
    started = _started(context, [run[0] for run in frozen.runs])
    # Nothing was declared, or nothing can have been seen yet.
    is_first = not started or not earlier
    this = Declaration(
        at=frozen.settings.submitted_at,
        started=started,
        runs=len(frozen.runs),
        compare=compare,
        reason=None if is_first else reason,
    )
    if is_first:
        return [this]
    if not reason:
        day = time.strftime("%Y-%m-%d", time.localtime(earlier[-1].at))
        message = f"compare: differs from the declaration of {day}"
        message += f", and {started} of {len(frozen.runs)} runs have started"
        fix = 'Restore it, or give the reason for the change: --amend "REASON"'
        raise BadInput(f"{message}. {fix}")
    return [*earlier, this]


def _earlier(context: Context, frozen: FrozenGrid) -> list[Declaration]:
    with reading(context.ledger.engine) as connection:
        stored = queries.grid_settings(connection)
    name = frozen.settings.name
    same = [one for one in stored.values() if one.name == name and one.declarations]
    return max(same, key=lambda one: one.submitted_at).declarations if same else []


def _started(context: Context, run_ids: list[str]) -> int:
    with reading(context.ledger.engine) as connection:
        return lookups.count_started(connection, run_ids)
