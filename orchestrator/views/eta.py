"""When unfinished runs will have ended: what the ledger has of them, put to `jobs.run.eta`."""

from collections.abc import Collection, Mapping

from ...db import pace, queries
from ...db.engine import reading
from ...jobs.run.eta import Eta, Left, estimate, of_runs, together
from ...jobs.run.pace import History
from ...jobs.run.selector import Selection
from ...jobs.values import Value
from ...jobs.workspace.markers import closed
from ..loop.context import Context


class Etas(Value, frozen=True, kw_only=True):
    """When selected runs will have ended."""

    grids: Mapping[str, Eta]
    """Grid -> its runs that are selected; grids that have nothing left, or only what a hold or the
    breaker keeps from starting, are left out."""

    @property
    def all(self) -> Eta | None:
        """All of them; None where nothing is left."""
        return together(list(self.grids.values()))


def etas(context: Context, selection: Selection) -> Etas:
    """Estimate when the selected runs will have ended; a handful of queries, however many runs."""
    now = context.clock()
    with reading(context.ledger.engine) as connection:
        settings = queries.grid_settings(connection)
        backends = {grid_id: found.backend for grid_id, found in settings.items()}
        running = pace.underway(connection, selection, backends)
        markers = {grid_id: closed(context.workspace, grid_id) for grid_id in settings}
        held = {grid_id: found.held for grid_id, found in markers.items()}
        waiting = pace.waiting(connection, selection, backends, held=held, now=now)
        left = Left(
            underway=running,
            waiting=[one for one in waiting if not markers[one.grid_id].is_shut],
            openings=pace.openings(connection),
        )
        if not any(one.is_selected for one in left.all):
            return Etas(grids={})
        # Where nothing says when the first starts, what they take does not help.
        is_known = running or left.openings or any(one.not_before for one in left.waiting)
        known = pace.history(connection, left.cell_ids, running) if is_known else History()
    return Etas(grids=estimate(left, known, now))


def etas_of_runs(context: Context, run_ids: Collection[str]) -> dict[str, Eta]:
    """Estimate when each of these runs will have ended, of those that train."""
    now = context.clock()
    with reading(context.ledger.engine) as connection:
        running = pace.underway(connection, Selection(), {})
        asked = [run for run in running if run.run_id in run_ids]
        known = pace.history(connection, {run.cell_id for run in asked}, running)
    return of_runs(asked, known, now)
