"""Take in allocations that were found on disk.

Those of agents that handed on, and all of them after a loss.
"""

from sqlalchemy import Connection, insert, select, update

from ..jobs.run.states import LIVE, WITHOUT_RECORD, AttemptState, FailureClass
from ..jobs.workspace.allocation import Allocation, Place, Task
from . import models as m
from .engine import writing
from .ledger import DUE, Ledger
from .moves import move_attempt
from .rows import Row, attempt_row, event_row, insert_new
from .run_state import derive_runs

# How long a node may take from writing a successor down to hearing from the scheduler.
HAND_ON_S = 90.0


def adopt_allocation(ledger: Ledger, content: Allocation) -> bool:
    """Take in an allocation file that the ledger does not know; return whether it was new."""
    now = ledger.clock()
    with writing(ledger.engine) as connection:
        known = connection.execute(
            select(m.allocations.c.token).where(m.allocations.c.token == content.token)
        )
        if known.first() is not None:
            return False
        tasks = [(index, task) for index, group in enumerate(content.tasks) for task in group]
        runs = ledger._known(connection, [task.run_id for _, task in tasks])
        # The node that wrote it down may be submitting it at this moment.
        ledger._insert_allocation(
            connection, content, launching_until=content.created_at + HAND_ON_S
        )
        for index, task in tasks:
            if task.run_id not in runs:
                continue
            row = attempt_row(content, index, task)
            if content.inside is not None:
                row |= _inside(connection, content.inside, task)
            at = min(now, content.created_at)
            _give_up_below(connection, task, at, handed_on=content.handed_on)
            if _is_overtaken(connection, task):
                # Not live, whatever it does: but a later one may build upon it, and lineages lead
                # through rows.
                row |= {
                    "state": AttemptState.SUPERSEDED,
                    "failure": FailureClass.SUPERSEDED,
                    "ended_at": now,
                }
                _read_again(connection, task)
            done = connection.execute(insert_new(connection, m.attempts), row)
            if done.rowcount:
                at = content.created_at
                event = event_row(row, None, row["state"], "vtjobs", at, "")
                connection.execute(insert(m.events), event)
                share = (
                    update(m.runs)
                    .where(m.runs.c.run_id == task.run_id)
                    .values(micro_split=task.micro_split)
                )
                connection.execute(share)
        derive_runs(connection, runs, now)
    return True


def _inside(connection: Connection, place: Place, task: Task) -> Row:
    """Return what the row of an attempt says that another allocation's agent took on.

    A row of that number, which was meant for an allocation of its own, moves to that place: the
    agent has claimed the run, so nobody else can start it.
    """
    where: Row = {"token": place.token, "array_index": place.index}
    mine = (m.attempts.c.run_id == task.run_id) & (m.attempts.c.number == task.attempt)
    connection.execute(update(m.attempts).where(mine).values(**where))
    known = select(m.allocations.c.job_id).where(m.allocations.c.token == place.token)
    is_accepted = connection.execute(known).scalar() is not None
    return where | {"state": AttemptState.QUEUED if is_accepted else AttemptState.SUBMITTING}


def _is_overtaken(connection: Connection, task: Task) -> bool:
    higher = (m.attempts.c.run_id == task.run_id) & (m.attempts.c.number > task.attempt)
    return (
        connection.execute(select(m.attempts.c.number).where(higher).limit(1)).first() is not None
    )


def _read_again(connection: Connection, task: Task) -> None:
    """Have a journal read from its beginning.

    What it said of an attempt without a row was dropped.
    """
    key = {"run_id": task.run_id, "attempt": task.attempt, "node": "0"}
    connection.execute(
        insert_new(connection, m.journals), {**key, "read_bytes": 0, "state": DUE, "note": ""}
    )
    mine = (
        (m.journals.c.run_id == task.run_id)
        & (m.journals.c.attempt == task.attempt)
        & (m.journals.c.node == "0")
    )
    connection.execute(update(m.journals).where(mine).values(read_bytes=0, state=DUE))


def _give_up_below(connection: Connection, task: Task, at: float, *, handed_on: bool) -> None:
    """End the live attempts below one that was written down at this moment.

    Somebody saw them end, without a record.
    """
    query = (
        select(m.attempts.c.number, m.attempts.c.state, m.runs.c.cancelled_through)
        .join(m.runs, m.runs.c.run_id == m.attempts.c.run_id)
        .where(
            m.attempts.c.run_id == task.run_id,
            m.attempts.c.state.in_(LIVE),
            m.attempts.c.number < task.attempt,
        )
    )
    for row in connection.execute(query).all():
        state, failure = AttemptState.LOST, FailureClass.AGENT_DIED
        if row.cancelled_through >= row.number:
            state, failure = AttemptState.CANCELLED, FailureClass.CANCELLED
        elif row.state in (AttemptState.SUBMITTING, AttemptState.QUEUED):
            failure = FailureClass.NOT_SUBMITTED
            if handed_on:
                # However often a run is handed on before it could start, nothing has failed.
                state, failure = AttemptState.SUPERSEDED, FailureClass.SUPERSEDED
        move_attempt(
            connection,
            (task.run_id, row.number),
            state,
            source="vtjobs",
            now=at,
            raw="a later attempt",
            failure=failure,
            signature=WITHOUT_RECORD[failure],
        )
