"""Follow runs to their end: the loop behind `--wait`."""

import time
from collections.abc import Callable

from ...db import queries, records
from ...db.engine import reading
from ...jobs.errors import LedgerUnreachable
from ...jobs.run.selector import Selection
from ...jobs.run.states import RunState
from ...jobs.workspace.markers import Marker, closed
from .context import Context
from .tick import Effort, Report, tick

POLL_S = 1.0
# How long a ledger that went away may stay away before the wait gives up.
PATIENCE_S = 600.0

Show = Callable[[list[records.RunRow], Report], None]


def wait(context: Context, selection: Selection, show: Show) -> list[records.RunRow]:
    """Tick until every selected run is settled, or stopped by its grid's breaker; return them.

    Raises:
        LedgerUnreachable: the ledger stayed away.
    """
    context.be_patient()
    away_since: float | None = None
    while True:
        effort = Effort()
        try:
            report = tick(context)
            with reading(context.ledger.engine) as connection:
                rows = queries.list_runs(connection, selection)
            away_since = None
        except LedgerUnreachable:
            away_since = away_since or time.monotonic()
            if time.monotonic() - away_since > PATIENCE_S:
                raise
            time.sleep(POLL_S)
            continue
        show(rows, report)
        left = [row for row in rows if not RunState(row.state).is_settled]
        if _are_stopped(context, left):
            return rows
        time.sleep(max(POLL_S, effort.rest_s()))


def _are_stopped(context: Context, rows: list[records.RunRow]) -> bool:
    """Whether none of these, if there are any, will start before a user has acted."""
    if any(row.state != RunState.PENDING for row in rows):
        return False
    shut = {grid_id: closed(context.workspace, grid_id) for grid_id in {r.grid_id for r in rows}}
    found = [shut[row.grid_id](row.run_id) for row in rows]
    return all(why is not None and why.marker is Marker.BREAKER for why in found)
