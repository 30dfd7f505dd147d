"""The one word that a run is shown by: its state, or what is only shown and never stored."""

from ...db import records
from ...jobs.run.states import AttemptState, RunState
from ...jobs.workspace.imported import IMPORTED
from ...jobs.workspace.journal import LEASE_S, SILENT_S
from ...jobs.workspace.markers import held_runs
from ..backends.base import CANCELLING, REQUEUED, SUSPENDED
from ..loop.context import Context

# How a run is shown that waits, and that the user holds.
HELD = "held"
# How a run is shown that has given no sign of life for long.
UNKNOWN = "unknown"
# Every word, from waiting to ended. A lab's own backend may have more.
WORDS = (
    RunState.PENDING,
    HELD,
    RunState.BLOCKED,
    RunState.QUEUED,
    RunState.RUNNING,
    CANCELLING,
    SUSPENDED,
    REQUEUED,
    UNKNOWN,
    RunState.COMPLETED,
    RunState.DIVERGED,
    RunState.FAILED,
    RunState.CANCELLED,
)


class Words:
    """The words of many runs. A grid's hold marker is read once."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self._held: dict[str, set[str]] = {}

    def of(self, row: records.RunRow | records.AlikeRow) -> str:
        """Return the word of a run, or of runs that stand alike.

        - cancelling: it was cancelled, and may still be at work;
        - suspended, requeued: by somebody in the scheduler, after it had started;
        - unknown: it has given no sign of life for long;
        - held: by the user;
        - imported: it was trained elsewhere.
        """
        if row.state == RunState.PENDING:
            return HELD if self._is_held(row) else row.state
        if row.attempt_state is None or AttemptState(row.attempt_state).is_terminal:
            is_imported = isinstance(row, records.RunRow) and row.is_imported
            return IMPORTED if is_imported and row.state == RunState.COMPLETED else row.state
        word = _at_work(self.context, row)
        return HELD if word == RunState.QUEUED and self._is_held(row) else word

    def _is_held(self, row: records.RunRow | records.AlikeRow) -> bool:
        if isinstance(row, records.AlikeRow):
            return row.is_held
        return row.run_id in self.held(row.grid_id)

    def held(self, grid_id: str) -> set[str]:
        """Return the runs that the user holds by this grid."""
        if grid_id not in self._held:
            self._held[grid_id] = held_runs(self.context.workspace, (grid_id,))
        return self._held[grid_id]


def _at_work(context: Context, row: records.Standing) -> str:
    """Return the word of a run whose latest attempt is live."""
    there = _there(context, row)
    if row.cancelled_through >= (row.attempt or 0) or there == CANCELLING:
        return CANCELLING
    if row.state != RunState.RUNNING:
        return row.state
    if there and (there != REQUEUED or _is_silent(context, row)):
        return there
    if row.heartbeat_at and context.clock() - row.heartbeat_at > LEASE_S:
        return UNKNOWN
    return row.state


def _is_silent(context: Context, row: records.Standing) -> bool:
    """Whether several heartbeats are missing.

    Of one that has just started the scheduler's last word may still be why it waited.
    """
    seen_at = max(row.started_at or 0.0, row.heartbeat_at or 0.0)
    return context.clock() - seen_at > SILENT_S


def _there(context: Context, row: records.Standing) -> str:
    """Return how the scheduler's word for the job would show the run, or "".

    An end there is not believed while processes may live on a lost node.
    """
    if not row.word or row.backend is None:
        return ""
    words = context.backend(row.backend).shown_words
    return next((shown for begin, shown in words.items() if row.word.startswith(begin)), "")
