"""Where a run and its attempts stand, for a reader that follows its output."""

from collections.abc import Mapping
from dataclasses import dataclass

from ...db import queries
from ...db.engine import reading
from ...jobs.run.selector import Selection
from ...jobs.run.states import AttemptState, RunState
from ...jobs.workspace.markers import Marker, closed
from ..loop.context import Context


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
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


def standing(context: Context, run_id: str) -> Standing:
    """Read where a run stands; the scheduler is not asked."""
    with reading(context.ledger.engine) as connection:
        row = queries.list_runs(connection, Selection(names=(run_id,)))[0]
        attempts = queries.attempts_of(connection, run_id)
    kept = closed(context.workspace, row.grid_id)(run_id)
    return Standing(
        state=RunState(row.state),
        is_held=kept is not None and kept.marker is Marker.HOLD,
        attempts={attempt.number: AttemptState(attempt.state) for attempt in attempts},
    )
