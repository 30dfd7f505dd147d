"""Where runs and their attempts stand, for a reader that follows their output."""

from collections.abc import Mapping, Sequence

from ...db import queries
from ...db.engine import reading
from ...jobs.run.selector import Selection
from ...jobs.run.states import AttemptState, RunState
from ...jobs.values import Value
from ...jobs.workspace.markers import Marker, closed
from ..loop.context import Context


class Standing(Value, frozen=True, kw_only=True):
    """A run as the ledger and its grid's markers have it."""

    state: RunState
    is_held: bool
    attempts: Mapping[int, AttemptState]
    """Number -> state, of every attempt that was ever submitted."""

    @property
    def waits(self) -> bool:
        """Whether the run has yet to start, or to start again."""
        return self.state in (RunState.PENDING, RunState.QUEUED)

    def is_over(self, attempt: int) -> bool:
        """Return whether nothing more comes from an attempt, begun or yet to come."""
        state = self.attempts.get(attempt)
        if state is None:
            return self.state.is_settled or attempt < max(self.attempts, default=0)
        return state.is_terminal


def standings(context: Context, run_ids: Sequence[str]) -> dict[str, Standing]:
    """Read where runs stand; the scheduler is not asked.

    Raises:
        NothingMatched: none of them is there.
    """
    with reading(context.ledger.engine) as connection:
        rows = queries.list_runs(connection, Selection().narrowed("run", *run_ids))
        attempts = queries.attempts_of_runs(connection, run_ids)
    grids = {row.grid_id for row in rows}
    closed_in = {grid_id: closed(context.workspace, grid_id) for grid_id in grids}
    found = {}
    for row in rows:
        kept = closed_in[row.grid_id](row.run_id)
        found[row.run_id] = Standing(
            state=RunState(row.state),
            is_held=kept is not None and kept.marker is Marker.HOLD,
            attempts={
                attempt.number: AttemptState(attempt.state)
                for attempt in attempts.get(row.run_id, ())
            },
        )
    return found
