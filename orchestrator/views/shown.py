"""The one word that a run is shown by: its state, or what is only shown and never stored."""

from ...db import records
from ...jobs.run.states import AttemptState, RunState
from ...jobs.workspace.journal import LEASE_S
from ..loop.context import Context

# How a pending run is shown that the user holds.
HELD = "held"


def _is_cancelled_there(context: Context, row: records.RunRow) -> bool:
    """Whether the scheduler calls the run's job cancelled.

    That is not believed while processes may live on a lost node.
    """
    if not row.word or row.backend is None:
        return False
    word = context.backend(row.backend).cancelled_word
    return bool(word) and row.word.startswith(word)


def shown_state(context: Context, row: records.RunRow, is_held: bool) -> str:
    """Return the word: the state, or cancelling, unknown (no sign of life for long) or held."""
    live = row.attempt_state is not None and not AttemptState(row.attempt_state).is_terminal
    if live and (row.cancelled_through >= (row.attempt or 0) or _is_cancelled_there(context, row)):
        return "cancelling"
    if (
        row.state == RunState.RUNNING
        and row.heartbeat_at
        and context.clock() - row.heartbeat_at > LEASE_S
    ):
        return "unknown"
    if row.state == RunState.PENDING and is_held:
        return HELD
    return row.state
