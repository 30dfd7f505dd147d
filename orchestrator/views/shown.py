"""The one word that a run is shown by: its state, or what is only shown and never stored."""

from ...db import records
from ...jobs.run.states import AttemptState, RunState
from ...jobs.workspace.journal import HEARTBEAT_S, LEASE_S
from ..backends.base import CANCELLING, REQUEUED
from ..loop.context import Context

# How a pending run is shown that the user holds.
HELD = "held"


def shown_state(context: Context, row: records.RunRow, is_held: bool) -> str:
    """Return the word: the state, or what the ledger does not have as one.

    - cancelling: it was cancelled, and may still be at work;
    - suspended, requeued: by somebody in the scheduler, after it had started;
    - unknown: it has given no sign of life for long;
    - held: by the user.
    """
    is_live = row.attempt_state is not None and not AttemptState(row.attempt_state).is_terminal
    is_running = row.state == RunState.RUNNING
    there = _there(context, row) if is_live else ""
    if is_live and (row.cancelled_through >= (row.attempt or 0) or there == CANCELLING):
        return CANCELLING
    if is_running and there and (there != REQUEUED or _is_silent(context, row)):
        return there
    if is_running and row.heartbeat_at and context.clock() - row.heartbeat_at > LEASE_S:
        return "unknown"
    if row.state == RunState.PENDING and is_held:
        return HELD
    return row.state


def _is_silent(context: Context, row: records.RunRow) -> bool:
    """Whether several heartbeats are missing.

    Of one that has just started the scheduler's last word may still be why it waited.
    """
    seen_at = max(row.started_at or 0.0, row.heartbeat_at or 0.0)
    return context.clock() - seen_at > 3 * HEARTBEAT_S


def _there(context: Context, row: records.RunRow) -> str:
    """Return how the scheduler's word for the job would show the run, or "".

    An end there is not believed while processes may live on a lost node.
    """
    if not row.word or row.backend is None:
        return ""
    words = context.backend(row.backend).shown_words
    return next((shown for begin, shown in words.items() if row.word.startswith(begin)), "")
