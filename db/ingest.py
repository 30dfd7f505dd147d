"""Journals -> ledger: incremental, and idempotent on (run, attempt, node, seq).

Rows and the new offset are written in one transaction, so a crash anywhere repeats or skips
nothing.
"""

import json
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import Connection, Engine, bindparam, select, update

from ..jobs.at_once import at_once
from ..jobs.errors import DamagedJournal
from ..jobs.run.states import LIVE, AttemptState
from ..jobs.workspace.events import (
    Checkpoint,
    End,
    Epoch,
    Evaluation,
    Event,
    Start,
    typed,
)
from ..jobs.workspace.journal import Line, read_from
from ..jobs.workspace.paths import Workspace
from . import models as m
from .engine import reading, writing
from .journal_ends import completed_before, ended, started
from .ledger import DUE, Ledger
from .parts import in_parts
from .progress import note_progress, write_progress
from .results import summarise
from .rows import Row, insert_new
from .run_state import derive_runs

# Bytes of journals that go into one transaction.
BATCH_BYTES = 4 << 20
EVALUATION_NODE = "evaluation-"
DECIDING_NODE = "0"
# Where a journal begins that nobody has read.
UNREAD = (0, "open")

Key = tuple[str, int, str]


@dataclass(slots=True)
class Batch:
    """Rows of several journals on their way into one transaction."""

    epochs: list[Row] = field(default_factory=list)
    evaluations: list[Row] = field(default_factory=list)
    checkpoints: list[Row] = field(default_factory=list)
    progress: dict[tuple[str, int], Row] = field(default_factory=lambda: defaultdict(dict))
    starts: list[tuple[str, int, Start]] = field(default_factory=list)
    ends: list[tuple[str, int, End]] = field(default_factory=list)
    offsets: list[Row] = field(default_factory=list)
    lineage: set[tuple[str, int]] = field(default_factory=set)
    """Lower attempts that these build upon; nobody else reads the rest of their journals."""
    bytes: int = 0

    def add(self, key: Key, line: Line) -> None:
        """Sort one event into the tables it belongs to."""
        run_id, attempt, node = key
        event = typed(line)
        if event is None:
            return
        self._sort(key, event)
        if isinstance(event, Evaluation) and node.startswith(EVALUATION_NODE):
            # Scores that were computed later are no sign of life of the attempt.
            return
        note_progress(self.progress[run_id, attempt], event)

    def _sort(self, key: Key, event: Event) -> None:
        run_id, attempt, node = key
        row = {"run_id": run_id, "attempt": attempt, "at": event.at}
        line = {**row, "node": node, "seq": event.seq}
        match event:
            case Epoch():
                position = {"epoch": event.epoch, "step": event.step}
                self.epochs.append({**line, **position, "metrics": json.dumps(event.metrics)})
            case Evaluation():
                scored = {"epoch": event.epoch, "step": event.step, "set_name": event.set}
                self.evaluations.append({**line, **scored, "metrics": json.dumps(event.metrics)})
            case Checkpoint():
                position = {"step": event.step, "epoch": event.epoch}
                self.checkpoints.append({**row, **position, "bytes": event.bytes})
            case Start():
                self.starts.append((run_id, attempt, event))
                if event.resumed_attempt:
                    self.lineage.add((run_id, event.resumed_attempt))
            case End():
                self.ends.append((run_id, attempt, event))


def ingest_live(ledger: Ledger, workspace: Workspace) -> int:
    """Read what the journals of live attempts have gained; return the number of events."""
    with reading(ledger.engine) as connection:
        query = select(m.attempts.c.run_id, m.attempts.c.number).where(m.attempts.c.state.in_(LIVE))
        live = {(row.run_id, row.number): None for row in connection.execute(query)}
        # What an attempt builds upon, where the reader died between the two.
        due = select(m.journals.c.run_id, m.journals.c.attempt).where(m.journals.c.state == DUE)
        live |= {(row.run_id, row.attempt): None for row in connection.execute(due)}
    return ingest(ledger, workspace, live)


def ingest(ledger: Ledger, workspace: Workspace, attempts: Iterable[tuple[str, int]]) -> int:
    """Read what the journals of these attempts have gained; return the number of events.

    That is one file for each attempt: what the other nodes of one write is for the agents' eyes.
    """
    found = [
        ((run_id, number, DECIDING_NODE), workspace.run(run_id).journal(number, int(DECIDING_NODE)))
        for run_id, number in attempts
    ]
    return ingest_files(ledger, workspace, found)


def ingest_evaluations(ledger: Ledger, workspace: Workspace, run_ids: Iterable[str]) -> int:
    """Read the journals that `vtjobs evaluate` left in these runs' folders."""
    found: list[tuple[Key, Path]] = []
    for run_id in run_ids:
        for path in sorted(workspace.run(run_id).evaluations.glob("*.jsonl")):
            attempt, _, token = path.stem.partition("-")
            found.append(((run_id, int(attempt), EVALUATION_NODE + token), path))
    return ingest_files(ledger, workspace, found)


def ingest_files(ledger: Ledger, workspace: Workspace, files: list[tuple[Key, Path]]) -> int:
    """Read what these journals have gained; return the number of events."""
    offsets = _offsets(ledger.engine, {key[0] for key, _ in files})
    total = 0
    batch = Batch()
    lineage: set[tuple[str, int]] = set()
    for key, path in _to_read(files, offsets):
        offset, state = offsets.get(key, UNREAD)
        if state == DUE:
            batch.offsets.append(_offset_row(key, offset, "open", ""))
        while True:
            gained, more = _read(batch, key, path, offset)
            total += gained
            if batch.bytes >= BATCH_BYTES:
                lineage |= _commit(ledger, workspace, batch)
                batch = Batch()
            if not more:
                break
            offset = more
    if batch.offsets:
        lineage |= _commit(ledger, workspace, batch)
    return total + ingest(ledger, workspace, sorted(lineage)) if lineage else total


def _to_read(
    files: list[tuple[Key, Path]], offsets: Mapping[Key, tuple[int, str]]
) -> list[tuple[Key, Path]]:
    """Leave out the journals that are damaged, and those that have gained nothing.

    One call to open and one to read for each of them, many at a time: of ten thousand live attempts
    few have written since the last look.
    """

    def is_due(file: tuple[Key, Path]) -> bool:
        offset, state = offsets.get(file[0], UNREAD)
        return state == DUE or (state != "damaged" and _has_more(file[1], offset))

    return [file for file, due in zip(files, at_once(is_due, files), strict=True) if due]


def _has_more(path: Path, offset: int) -> bool:
    # Opened without a look at its size: on a shared file system a size by name may be a minute old.
    try:
        handle = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        return bool(os.pread(handle, 1, offset))
    finally:
        os.close(handle)


def _read(batch: Batch, key: Key, path: Path, offset: int) -> tuple[int, int]:
    """Add one chunk of a journal to the batch.

    Return how many events, and the next offset if there is more.
    """
    try:
        chunk = read_from(path, offset, most_bytes=BATCH_BYTES)
    except FileNotFoundError:
        return 0, 0
    except DamagedJournal as error:
        for event in error.events:
            batch.add(key, event)
        batch.offsets.append(_offset_row(key, error.offset, "damaged", str(error)))
        return len(error.events), 0
    for event in chunk.events:
        batch.add(key, event)
    if chunk.offset > offset:
        batch.offsets.append(_offset_row(key, chunk.offset, "open", ""))
    batch.bytes += chunk.offset - offset
    more = (
        chunk.offset if chunk.events and path.stat().st_size > chunk.offset + len(chunk.tail) else 0
    )
    return len(chunk.events), more


def _offset_row(key: Key, read_bytes: int, state: str, note: str) -> Row:
    return {
        "run_id": key[0],
        "attempt": key[1],
        "node": key[2],
        "read_bytes": read_bytes,
        "state": state,
        "note": note,
    }


def _offsets(engine: Engine, run_ids: set[str]) -> dict[Key, tuple[int, str]]:
    found: dict[Key, tuple[int, str]] = {}
    with reading(engine) as connection:
        for part in in_parts(run_ids):
            for row in connection.execute(select(m.journals).where(m.journals.c.run_id.in_(part))):
                found[row.run_id, row.attempt, row.node] = (row.read_bytes, row.state)
    return found


def _commit(ledger: Ledger, workspace: Workspace, batch: Batch) -> set[tuple[str, int]]:
    """Write a batch in one transaction; return the lower attempts that must be read as well."""
    with writing(ledger.engine) as connection:
        for table, rows in (
            (m.epoch_metrics, batch.epochs),
            (m.evaluations, batch.evaluations),
            (m.checkpoints, batch.checkpoints),
        ):
            if rows:
                connection.execute(insert_new(connection, table), rows)
        _write_offsets(connection, batch.offsets)
        write_progress(connection, batch.progress)
        changed = {start[0] for start in batch.starts if started(ledger, connection, *start)}
        for run_id, attempt, event in batch.ends:
            done = completed_before(workspace.run(run_id), attempt, event)
            if done is not None:
                batch.lineage.add((run_id, done))
            if ended(ledger, connection, workspace.run(run_id), (run_id, attempt), event, done):
                changed.add(run_id)
        _write_due(connection, batch.lineage)
        derive_runs(connection, changed, ledger.clock())
        summarise(connection, _scored(connection, batch))
    return batch.lineage


def _scored(connection: Connection, batch: Batch) -> set[str]:
    """Return the runs whose results follow from this batch.

    Scored afterwards, or once completed.
    """
    found = {row["run_id"] for row in batch.evaluations if row["node"].startswith(EVALUATION_NODE)}
    touched = {row["run_id"] for row in batch.evaluations} | {run_id for run_id, _, _ in batch.ends}
    for part in in_parts(touched - found):
        done = m.attempts.c.state == AttemptState.COMPLETED
        query = select(m.attempts.c.run_id).where(m.attempts.c.run_id.in_(part), done)
        found |= set(connection.execute(query).scalars())
    return found


def _write_offsets(connection: Connection, rows: list[Row]) -> None:
    latest = {(row["run_id"], row["attempt"], row["node"]): row for row in rows}
    if not latest:
        return
    connection.execute(insert_new(connection, m.journals), list(latest.values()))
    table = m.journals.c
    connection.execute(
        update(m.journals)
        .where(table.run_id == bindparam("b_run"), table.attempt == bindparam("b_attempt"))
        .where(table.node == bindparam("b_node"), table.read_bytes <= bindparam("b_offset"))
        .values(
            read_bytes=bindparam("b_offset"), state=bindparam("b_state"), note=bindparam("b_note")
        ),
        [
            {
                "b_run": row["run_id"],
                "b_attempt": row["attempt"],
                "b_node": row["node"],
                "b_offset": row["read_bytes"],
                "b_state": row["state"],
                "b_note": row["note"],
            }
            for row in latest.values()
        ],
    )


def _write_due(connection: Connection, lineage: set[tuple[str, int]]) -> None:
    """Remember, with what leads to them, the journals that must be read next."""
    keys = [(run_id, attempt, "0") for run_id, attempt in sorted(lineage)]
    if not keys:
        return
    connection.execute(
        insert_new(connection, m.journals), [_offset_row(key, 0, DUE, "") for key in keys]
    )
    table = m.journals.c
    connection.execute(
        update(m.journals)
        .where(table.run_id == bindparam("b_run"), table.attempt == bindparam("b_attempt"))
        .where(table.node == bindparam("b_node"), table.state == "open")
        .values(state=DUE),
        [{"b_run": run_id, "b_attempt": attempt, "b_node": node} for run_id, attempt, node in keys],
    )
