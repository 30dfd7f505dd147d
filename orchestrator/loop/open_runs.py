"""The pending runs that may start, as far as the markers of their grids go."""

from ...db import lookups
from ...db.due import DueRun, due_runs
from ...db.engine import Connection
from ...jobs.run.states import RunState
from ...jobs.workspace.markers import closed
from ...jobs.workspace.paths import Workspace


def open_runs(connection: Connection, workspace: Workspace, now: float) -> list[DueRun]:
    """Return the runs that are due at a moment and that no marker keeps from starting.

    Args:
        connection: to the ledger.
        workspace: has the markers.
        now: seconds since 1970; infinity: whenever their back-off is over.
    """
    pending = lookups.runs_by_grid(connection, (RunState.PENDING,))
    markers = {grid_id: closed(workspace, grid_id) for grid_id in pending}
    found = due_runs(
        connection,
        now,
        held={grid_id: one.held for grid_id, one in markers.items() if one.held},
        only={grid_id: only for grid_id, one in markers.items() if (only := one.only) is not None},
    )
    # A submission on hold writes its marker first and its runs then: both may have come since.
    markers = {grid_id: closed(workspace, grid_id) for grid_id in {run.grid_id for run in found}}
    return [run for run in found if markers[run.grid_id](run.run_id) is None]
