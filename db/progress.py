"""How far attempts have come, and what they use, by the newest events of their journals."""

import json
from collections import defaultdict
from typing import Any

from sqlalchemy import Connection, bindparam, case, update

from ..jobs.documents import to_plain
from ..jobs.workspace.events import Checkpoint, End, Epoch, Event, Progress, Start
from . import models as m
from .rows import Row


def note_progress(row: Row, event: Event) -> None:
    """Put what an event of an attempt says of it into its row; the newest event holds."""
    row["heartbeat_at"] = event.at
    if isinstance(event, Checkpoint):
        row["checkpoint_step"] = event.step
    row |= {name: value for name, value in _position(event).items() if value is not None}
    if isinstance(event, Epoch | Checkpoint | End) and event.usage is not None:
        row["usage"] = event.usage


def _position(event: Event) -> Row:
    """Return how far an event says that training has come."""
    match event:
        case Start():
            return {"step": event.resumed_step, "steps": event.steps}
        case Progress():
            place = {"epoch": event.epoch, "step": event.step, "steps": event.steps}
            return place | {"trained_s": event.trained_s}
        case Epoch() | Checkpoint():
            return {"epoch": event.epoch, "step": event.step, "trained_s": event.trained_s}
        case End():
            return {"epoch": event.epoch, "step": event.step}
    return {}


def write_progress(connection: Connection, progress: dict[tuple[str, int], Row]) -> None:
    """Write these rows: (run, attempt) -> what is new of it."""
    by_fields: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    for (run_id, attempt), fields in progress.items():
        if fields:
            row = {"b_run": run_id, "b_attempt": attempt, **fields}
            if "usage" in row:
                row["usage"] = json.dumps(to_plain(row["usage"]))
            by_fields[tuple(sorted(fields))].append(row)
    for names, rows in by_fields.items():
        connection.execute(
            update(m.attempts)
            .where(
                m.attempts.c.run_id == bindparam("b_run"),
                m.attempts.c.number == bindparam("b_attempt"),
            )
            .values({name: _newer(name) for name in names}),
            rows,
        )


def _newer(name: str) -> Any:
    # A reader that was overtaken by another one brings what is old already. Numbers only grow; of
    # what is used the newest word holds.
    column: Any = m.attempts.c[name]
    value: Any = bindparam(name)
    if name == "usage":
        is_old = m.attempts.c.heartbeat_at > bindparam("heartbeat_at")
    else:
        is_old = column > value
    return case((is_old, column), else_=value)
