"""What users ask of runs, as it is written down: one statement for all runs, not one for each."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Update, and_, bindparam, insert, true, update

from . import models as m
from .rows import Asked, Row, request_row


def cancel(connection: Connection, through: Mapping[str, int], asked: Mapping[str, Asked]) -> None:
    """Write down cancels.

    Args:
        connection: in a write transaction.
        through: run -> the attempt that the cancel covers.
        asked: run -> by whom and when.
    """
    rows = [{"run": run_id, "through": number} for run_id, number in through.items()]
    is_new = m.runs.c.cancelled_through < bindparam("through")
    _update_each(
        connection,
        update(m.runs).where(is_new).values(cancelled_through=bindparam("through")),
        rows,
    )
    _put(connection, "cancel", through, asked)


def grant(
    connection: Connection,
    highest: Mapping[str, int],
    asked: Mapping[str, Asked],
    *,
    clean: bool,
) -> None:
    """Write down that runs are tried again.

    Args:
        connection: in a write transaction.
        highest: run -> the highest attempt number so far, which no longer counts.
        asked: run -> by whom and when.
        clean: whether from nothing.
    """
    rows = [{"run": run_id, "highest": number} for run_id, number in highest.items()]
    what = update(m.runs).values(
        tries_from=bindparam("highest"), clean_next=_clean(clean), not_before=0.0
    )
    _update_each(connection, what, rows)
    _put(connection, "rerun" if clean else "retry", highest, asked)


def _clean(clean: bool) -> Any:
    # A start from nothing that was asked for at this very attempt and has not begun is not taken
    # back by a retry.
    same = m.runs.c.tries_from == bindparam("highest")
    return true() if clean else and_(m.runs.c.clean_next, same)


def _update_each(connection: Connection, what: Update, rows: list[Row]) -> None:
    """Update many runs; each row has its run's id as `run`."""
    if rows:
        connection.execute(what.where(m.runs.c.run_id == bindparam("run")), rows)


def _put(
    connection: Connection, word: str, numbers: Mapping[str, int], asked: Mapping[str, Asked]
) -> None:
    """Leave an event for each request."""
    rows = [request_row(run_id, number, word, asked[run_id]) for run_id, number in numbers.items()]
    if rows:
        connection.execute(insert(m.events), rows)
