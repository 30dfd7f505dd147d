"""What the ledger remembers of schedulers.

When one was asked last, since when one is away, its last words.
"""

import json
from collections.abc import Collection, Sequence

from sqlalchemy import Connection, bindparam, delete, insert, select, update

from ..jobs.errors import SchedulerSlow, SchedulerUnreachable, Unauthenticated
from ..jobs.run.spec import canonical
from ..jobs.values import Value, asdict
from . import models as m
from .engine import reading, writing
from .ledger import Ledger

# A scheduler that gives no answer in time is taken to be slow for so long.
SILENT_S = 300.0


class Away(Value, frozen=True):
    """A scheduler that could not be asked the last time."""

    since: float
    """Unix time in seconds of the first question that got no answer."""
    reason: str
    of_asker: bool = False
    """Whether it refused whoever asked. The next one does not wait for a turn: a mended token works
    at once.
    """
    timed_out: bool = False
    """Whether it gave no answer in time; otherwise it was a clear no."""
    asked: float = 0.0
    """Unix time in seconds of the last question."""
    answered: float | None = None
    """Unix time in seconds of the last answer; None: it never gave one."""

    @property
    def is_slow(self) -> bool:
        """Whether it may well be at work: what it said last is shown as it is.

        By the times of the questions, not of the reader: nobody may have asked for hours.
        """
        return self.timed_out and self.asked - self.since < SILENT_S


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


def set_starts(ledger: Ledger, starts: Sequence[tuple[str, int, float]]) -> None:
    """Write down when live attempts have started or are expected to: (run, attempt, when)."""
    if not starts:
        return
    mine = (m.attempts.c.run_id == bindparam("b_run")) & (
        m.attempts.c.number == bindparam("b_number")
    )
    with writing(ledger.engine) as connection:
        connection.execute(
            update(m.attempts).where(mine).values(starts_at=bindparam("b_at")),
            [{"b_run": run_id, "b_number": number, "b_at": at} for run_id, number, at in starts],
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


def may_wait(ledger: Ledger, name: str, *, every_s: float) -> bool:
    """Return whether a scheduler may be asked now by somebody who waits longer than a look.

    One that was late for a look has a turn of its own for that: whoever looks again and again would
    else take every turn, and get no answer.
    """
    what = "waited" if (note := away(ledger).get(name)) and note.timed_out else "asked"
    return may_ask(ledger, name, what, every_s=every_s)


def may_ask(ledger: Ledger, name: str, what: str, *, every_s: float) -> bool:
    """Whether the scheduler `name` may be asked now: it was not lately, or refused whoever did.

    Args:
        ledger: where it is remembered.
        name: the backend's.
        what: "asked" for a question, "waited" for one with a longer wait, "tried" for a submission;
            each has turns of its own.
        every_s: how far turns lie apart, in seconds.
    """
    refused_asker = (note := away(ledger).get(name)) is not None and note.of_asker
    return take_turn(ledger, f"{what}.{name}", every_s=every_s) or refused_asker


def is_overdue(ledger: Ledger, name: str) -> bool:
    """Return whether a look is to wait for a scheduler longer than usual, this once.

    Before one that was slow for five minutes is called unreachable, and every five minutes from
    then on, where nobody else has waited: it may do no worse than answer late.
    """
    note = away(ledger).get(name)
    if note is None or not note.timed_out or ledger.clock() - note.since < SILENT_S:
        return False
    return take_turn(ledger, f"waited.{name}", every_s=SILENT_S)


def note_away(ledger: Ledger, name: str, error: SchedulerUnreachable) -> None:
    """Write down that a scheduler could not be asked, since when, and when it answered last."""
    now = ledger.clock()
    with writing(ledger.engine) as connection:
        before = _get(connection, f"away.{name}")
        answered = _get(connection, f"answered.{name}")
        note = Away(
            json.loads(before)["since"] if before else now,
            str(error),
            of_asker=isinstance(error, Unauthenticated),
            timed_out=isinstance(error, SchedulerSlow),
            asked=now,
            answered=float(answered) if answered else None,
        )
        _set(connection, f"away.{name}", canonical(asdict(note)))


def note_answer(ledger: Ledger, name: str, *, every_s: float) -> None:
    """Write down that a scheduler has answered: it is not away, and may be tried at any time.

    Args:
        ledger: where it is remembered.
        name: the backend's.
        every_s: how far turns lie apart, in seconds. Of one that has none, the time is not kept.
    """
    forget_away(ledger, name)
    if every_s > 0:
        with writing(ledger.engine) as connection:
            _set(connection, f"answered.{name}", repr(ledger.clock()))


def forget_away(ledger: Ledger, name: str) -> None:
    """Drop what is noted of a scheduler that could not be asked."""
    with reading(ledger.engine) as connection:
        if _get(connection, f"away.{name}") is None:
            return
    with writing(ledger.engine) as connection:
        _set(connection, f"away.{name}", None)
        # It was a try that failed.
        _set(connection, f"tried.{name}", None)


def away(ledger: Ledger) -> dict[str, Away]:
    """Return the schedulers that could not be asked the last time, by name."""
    with reading(ledger.engine) as connection:
        rows = connection.execute(select(m.meta).where(m.meta.c.key.like("away.%"))).all()
    return {row.key.partition(".")[2]: Away(**json.loads(row.value)) for row in rows}


def note_kept_out(ledger: Ledger, name: str, grid_ids: Collection[str]) -> None:
    """Write down whose runs a scheduler takes no more of at present."""
    _note_names(ledger, f"kept.{name}", grid_ids)


def kept_out(ledger: Ledger, name: str) -> frozenset[str]:
    """Return the grids of which a scheduler took no more the last time."""
    with reading(ledger.engine) as connection:
        found = _get(connection, f"kept.{name}")
    return frozenset(json.loads(found)) if found else frozenset()


def note_kept_off(ledger: Ledger, name: str, nodes: Collection[str]) -> None:
    """Write down which nodes what waits in a scheduler's queue has been kept off."""
    _note_names(ledger, f"off.{name}", nodes)


def kept_off(ledger: Ledger) -> dict[str, frozenset[str]]:
    """Return the nodes that what waits in a scheduler's queue has been kept off, by scheduler."""
    with reading(ledger.engine) as connection:
        rows = connection.execute(select(m.meta).where(m.meta.c.key.like("off.%"))).all()
    return {row.key.partition(".")[2]: frozenset(json.loads(row.value)) for row in rows}


def _note_names(ledger: Ledger, key: str, names: Collection[str]) -> None:
    value = canonical(sorted(names)) if names else None
    with reading(ledger.engine) as connection:
        if _get(connection, key) == value:
            return
    with writing(ledger.engine) as connection:
        _set(connection, key, value)


class Learned(Value, frozen=True, kw_only=True):
    """A limit that a scheduler does not tell, as its refusals have shown it."""

    places: int
    """Live ones at which one more was refused."""
    at: float
    """When, in seconds since 1970."""
    step: int = 1
    """How many more are tried next: the limit may have been raised, or others share it."""


def learn(ledger: Ledger, name: str, queue: str, found: Learned | None) -> None:
    """Write down what refusals have shown of one of a scheduler's queues; None forgets it."""
    with writing(ledger.engine) as connection:
        _set(connection, f"limit.{name}.{queue}", canonical(asdict(found)) if found else None)


def learned(ledger: Ledger, name: str) -> dict[str, Learned]:
    """Return what refusals have shown of a scheduler's queues, by queue."""
    prefix = f"limit.{name}."
    with reading(ledger.engine) as connection:
        query = select(m.meta).where(m.meta.c.key.startswith(prefix, autoescape=True))
        rows = connection.execute(query).all()
    return {row.key.removeprefix(prefix): Learned(**json.loads(row.value)) for row in rows}


def _get(connection: Connection, key: str) -> str | None:
    return connection.execute(select(m.meta.c.value).where(m.meta.c.key == key)).scalar()


def _set(connection: Connection, key: str, value: str | None) -> None:
    connection.execute(delete(m.meta).where(m.meta.c.key == key))
    if value is not None:
        connection.execute(insert(m.meta), {"key": key, "value": value})
