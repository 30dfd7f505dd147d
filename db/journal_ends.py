"""What the beginning and the end of an attempt come to, as its journal tells them."""

import json

from sqlalchemy import Connection, update

from ..jobs.run.states import LIVE, AttemptState, FailureClass
from ..jobs.workspace.events import End, Start
from ..jobs.workspace.lineage import completed_by, read_attempt
from ..jobs.workspace.paths import RunFolder
from . import models as m
from .ledger import Ledger
from .moves import move_attempt
from .rows import Row


def started(
    ledger: Ledger, connection: Connection, run_id: str, attempt: int, event: Start
) -> bool:
    """Put down that an attempt has begun; return whether its state changed."""
    # A start from nothing is done once an attempt has begun, and not when it was merely submitted.
    mine = (m.runs.c.run_id == run_id) & (m.runs.c.tries_from < attempt)
    connection.execute(update(m.runs).where(mine).values(clean_next=False))
    names = ("host", "world_size", "resumed_attempt", "resumed_step", "exact")
    facts = {"started_at": event.at, **{name: getattr(event, name) for name in names}}
    facts["software"] = json.dumps(event.software, sort_keys=True) if event.software else None
    # Whether or not it still counts as live: its successors' lineage leads through it.
    mine = (m.attempts.c.run_id == run_id) & (m.attempts.c.number == attempt)
    connection.execute(update(m.attempts).where(mine).values(**facts))
    running = AttemptState.RUNNING
    return move_attempt(
        connection,
        (run_id, attempt),
        running,
        source="journal",
        now=ledger.clock(),
        raw="start",
        at=event.at,
    )


def completed_before(folder: RunFolder, attempt: int, event: End) -> int | None:
    """Return the lower attempt whose completion made this one step back, or None."""
    if event.failure != FailureClass.SUPERSEDED or read_attempt(folder, attempt).start is not None:
        return None
    return completed_by(folder, attempt)


def _is_zombie(folder: RunFolder, attempt: int, end: End) -> bool:
    """Whether a higher attempt started without this end.

    Read from the workspace alone, whenever it is asked.
    """
    later = [number for number in folder.attempts() if number > attempt]
    starts = {
        number: start
        for number in later
        if (start := read_attempt(folder, number).start) is not None
    }
    if any(start.at < end.at for start in starts.values()):
        return True
    if end.state != AttemptState.COMPLETED:
        return False
    # Who starts after a completion has not seen it, unless the user asked for the run anew.
    granted = [number for number, _ in folder.all_grants()] if starts else []
    return any(not any(attempt <= grant < number for grant in granted) for number in starts)


def ended(
    ledger: Ledger,
    connection: Connection,
    folder: RunFolder,
    key: tuple[str, int],
    event: End,
    done: int | None,
) -> bool:
    """Put down how an attempt ended, as its journal says; return whether its state changed.

    Args:
        ledger: gives the time.
        connection: in a transaction that writes.
        folder: the run's.
        key: run and attempt.
        event: its end.
        done: the lower attempt that had completed the run, if this one found it so.
    """
    run_id, attempt = key
    state, raw = event.state, f"end {event.state}"
    fields: Row = {"failure": event.failure, "signature": event.signature}
    if event.host:
        # Of several nodes the one where it went wrong, so that a retry can avoid it.
        fields["host"] = event.host
    if _is_zombie(folder, attempt, event):
        # A zombie's word: a higher attempt started without it. Kept in the journal, never adopted.
        state, raw = AttemptState.SUPERSEDED, f"{raw}, after a higher attempt had started"
    elif done is not None:
        # The completed one had been given up for lost; ends are final, so this one stands for it.
        state, raw = AttemptState.COMPLETED, f"{raw}, attempt {done} had completed"
        fields = {"failure": None, "resumed_attempt": done}
    elif not event.explained:
        # A TERM that nobody could explain: what is there is kept, and the scheduler's word will end
        # the attempt.
        mine = (
            (m.attempts.c.run_id == run_id)
            & (m.attempts.c.number == attempt)
            & m.attempts.c.state.in_(LIVE)
        )
        connection.execute(
            update(m.attempts)
            .where(mine)
            .values(signature=fields["signature"], exit_code=event.exit_code)
        )
        return False
    return move_attempt(
        connection,
        (run_id, attempt),
        state,
        source="journal",
        now=ledger.clock(),
        raw=raw,
        at=event.at,
        error=event.error,
        exit_code=event.exit_code,
        **fields,
    )
