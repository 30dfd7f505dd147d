"""Transitions of attempts: each a compare-and-set that leaves an event."""

from typing import Any

from sqlalchemy import Connection, insert, literal, select, update

from ..jobs.run.states import TRANSITIONS, AttemptState
from . import models as m
from .rows import event_row

FIELDS = frozenset(column.name for column in m.attempts.columns) - {"run_id", "number", "state"}


def move_attempt(
    connection: Connection,
    attempt: tuple[str, int],
    to: AttemptState,
    *,
    source: str,
    now: float,
    raw: str = "",
    at: float | None = None,
    **fields: Any,
) -> bool:
    """Move an attempt, where the state machine allows it; return whether it moved.

    Args:
        connection: of the transaction that it is part of.
        attempt: id of its run, and its number.
        to: the new state.
        source: who says so.
        now: the time, in seconds since 1970.
        raw: the word that was told.
        at: when it happened; default: now.
        fields: further columns of the attempt.
    """
    assert fields.keys() <= FIELDS, fields
    at = now if at is None else at
    run_id, number = attempt
    key = (m.attempts.c.run_id == run_id) & (m.attempts.c.number == number)
    before = connection.execute(select(m.attempts.c.state).where(key)).scalar()
    if before is None or to not in TRANSITIONS[AttemptState(before)]:
        return False
    if to.is_terminal:
        fields.setdefault("ended_at", at)
    mine = update(m.attempts).where(key, m.attempts.c.state == before)
    done = connection.execute(mine.values(state=to, **fields))
    if done.rowcount != 1:
        return False
    row = {"run_id": run_id, "number": number}
    connection.execute(insert(m.events), event_row(row, before, to, source, at, raw[:2000]))
    return True


def move_all(
    connection: Connection,
    token: str,
    step: tuple[AttemptState, AttemptState],
    *,
    source: str,
    raw: str,
    now: float,
) -> None:
    """Move those attempts of an allocation that are in a state.

    Args:
        connection: of the transaction that it is part of.
        token: of the allocation.
        step: the state that they are in, and the new one.
        source: who says so.
        raw: the word that was told.
        now: the time, in seconds since 1970.
    """
    before, after = step
    mine = (m.attempts.c.token == token) & (m.attempts.c.state == before)
    moved = select(
        m.attempts.c.run_id,
        m.attempts.c.number,
        literal(now),
        literal(source),
        literal(str(before)),
        literal(str(after)),
        literal(raw),
    ).where(mine)
    names = ["run_id", "attempt", "at", "source", "before", "after", "raw"]
    connection.execute(insert(m.events).from_select(names, moved))
    connection.execute(update(m.attempts).where(mine).values(state=after))
