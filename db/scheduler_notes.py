"""What the ledger remembers of schedulers.

When one was asked last, since when one is away, its last words.
"""

import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, delete, insert, select, update

from ..jobs.run.spec import canonical
from . import models as m
from .engine import reading, writing
from .ledger import Ledger


def set_words(ledger: Ledger, words: Sequence[tuple[str, int, str]]) -> None:
    """Write down the scheduler's last word about live attempts: (run, attempt, word)."""
    if not words:
        return
    with writing(ledger.engine) as connection:
        connection.execute(
            update(m.attempts)
            .where(
                m.attempts.c.run_id == bindparam("b_run"),
                m.attempts.c.number == bindparam("b_number"),
            )
            .values(word=bindparam("b_word")),
            [
                {"b_run": run_id, "b_number": number, "b_word": word}
                for run_id, number, word in words
            ],
        )


def take_turn(ledger: Ledger, name: str, *, every_s: float) -> bool:
    """Become the one who does something that is done at most so often.

    False where it was done lately.
    """
    if every_s <= 0:
        return True
    now = ledger.clock()
    with writing(ledger.engine) as connection:
        last = _get(connection, name)
        if last is not None and 0 <= now - float(last) < every_s:
            return False
        _set(connection, name, repr(now))
    return True


def note_away(ledger: Ledger, name: str, reason: str) -> None:
    """Write down that a scheduler could not be asked, and since when; an empty reason ends it."""
    key = f"away.{name}"
    with reading(ledger.engine) as connection:
        before = _get(connection, key)
    if not reason and before is None:
        return
    with writing(ledger.engine) as connection:
        since = json.loads(before)["since"] if before else ledger.clock()
        _set(connection, key, canonical({"since": since, "reason": reason}) if reason else None)


def away(ledger: Ledger) -> dict[str, dict[str, Any]]:
    """Return the schedulers that could not be asked the last time: name -> since when, and why."""
    with reading(ledger.engine) as connection:
        rows = connection.execute(select(m.meta).where(m.meta.c.key.like("away.%"))).all()
    return {row.key.partition(".")[2]: json.loads(row.value) for row in rows}


def note_full(ledger: Ledger, name: str, is_full: bool) -> None:
    """Write down whether a scheduler takes no more of this user's work at present."""
    key = f"full.{name}"
    with reading(ledger.engine) as connection:
        if (_get(connection, key) is not None) is is_full:
            return
    with writing(ledger.engine) as connection:
        _set(connection, key, repr(ledger.clock()) if is_full else None)


def is_full(ledger: Ledger, name: str) -> bool:
    """Whether a scheduler took no more of this user's work the last time."""
    with reading(ledger.engine) as connection:
        return _get(connection, f"full.{name}") is not None


def _get(connection: Connection, key: str) -> str | None:
    return connection.execute(select(m.meta.c.value).where(m.meta.c.key == key)).scalar()


def _set(connection: Connection, key: str, value: str | None) -> None:
    connection.execute(delete(m.meta).where(m.meta.c.key == key))
    if value is not None:
        connection.execute(insert(m.meta), {"key": key, "value": value})
