"""The reading side: counts, lists and details, as plain records."""

import json
from collections.abc import Sequence
from typing import Any, get_args

from sqlalchemy import Connection, Select, and_, exists, func, literal, or_, select

from ..jobs.documents import from_plain, reader
from ..jobs.run.selector import Selection
from ..jobs.run.settings import CLASSIFICATION, Task
from ..jobs.run.spec import Axes, CellSpec
from ..jobs.run.states import LIVE, AttemptState
from ..jobs.values import fields
from ..jobs.workspace.events import Usage
from ..jobs.workspace.grid_settings import GridSettings
from . import cell_names
from . import models as m
from .parts import in_parts
from .records import AttemptRow, CellRow, CheckpointRow, EventRow, JobRow, ResultRow, RunRow
from .rows import Row, dicts
from .selected import named_grids, nothing, where


def _of_attempts(what: Any, table: Any) -> Any:
    # One look at the key per selected run; grouping all attempts would cost the same for one run as
    # for all.
    return select(what).where(table.c.run_id == m.runs.c.run_id).scalar_subquery()


# What a run's row has of its cell, and of its latest attempt.
_OF_CELLS = ("backbone", "dataset", "head", "recipe", "stage", "axes")
_OF_ATTEMPTS = (
    *("epoch", "step", "steps", "host", "started_at", "ended_at", "heartbeat_at"),
    *("failure", "signature", "token", "word"),
)


def list_runs(
    connection: Connection, selection: Selection, *, limit: int | None = None
) -> list[RunRow]:
    """Return the selected runs in the order of their grid, and with its names for their cells.

    Raises:
        NothingMatched: there are none.
    """
    attempt, tried = m.attempts, m.attempts.alias("tried")
    latest = _of_attempts(func.max(tried.c.number), tried)
    asked = named_grids(connection, selection)
    # A run that several grids have counts as the newest one's, unless one of them is asked for.
    counts_as = literal(asked[0]) if len(asked) == 1 else m.runs.c.grid_id
    query: Select[Any] = (
        select(
            m.runs,
            *(m.cells.c[name] for name in _OF_CELLS),
            _of_attempts(func.count(), tried).label("attempts"),
            attempt.c.number.label("attempt"),
            attempt.c.state.label("attempt_state"),
            *(attempt.c[name] for name in _OF_ATTEMPTS),
            m.allocations.c.backend,
        )
        .join(m.cells, m.cells.c.cell_id == m.runs.c.cell_id)
        .outerjoin(attempt, and_(attempt.c.run_id == m.runs.c.run_id, attempt.c.number == latest))
        .outerjoin(m.allocations, m.allocations.c.token == attempt.c.token)
        .outerjoin(
            m.grid_runs,
            and_(m.grid_runs.c.run_id == m.runs.c.run_id, m.grid_runs.c.grid_id == counts_as),
        )
        .where(where(connection, selection))
        .order_by(m.grid_runs.c.grid_id, m.grid_runs.c.position)
    )
    rows = dicts(connection.execute(query.limit(limit) if limit else query))
    if not rows:
        raise nothing(connection, selection)
    grids = [asked[0] if len(asked) == 1 else row["grid_id"] for row in rows]
    names = cell_names.of_grids(connection, set(grids))
    return [
        _run_row(row | names.get((grid_id, row["cell_id"]), {}))
        for grid_id, row in zip(grids, rows, strict=True)
    ]


_axes = reader(Axes)
_RUN_COLUMNS = fields(RunRow)


def _run_row(row: Row) -> RunRow:
    found = {name: row[name] for name in _RUN_COLUMNS}
    found["axes"] = _axes(row["axes"])
    found["streams"] = json.loads(row["streams"]) if row["streams"] else None
    return RunRow(**found)


def status_counts(connection: Connection, selection: Selection | None = None) -> dict[str, int]:
    """Return how many of the selected runs are in each state."""
    query = select(m.runs.c.state, func.count()).group_by(m.runs.c.state)
    if selection is not None and (selection.names or selection.conditions):
        query = query.join(m.cells, m.cells.c.cell_id == m.runs.c.cell_id).where(
            where(connection, selection)
        )
    return {row[0]: row[1] for row in connection.execute(query)}


def live_attempts(connection: Connection) -> list[Any]:
    """Return the live attempts with their allocations, oldest first."""
    table = m.attempts.c
    query = (
        select(
            table.run_id,
            table.number,
            table.token,
            table.array_index,
            table.state,
            table.word,
            table.submitted_at,
            table.started_at,
            table.starts_at,
            table.heartbeat_at,
            table.exit_code,
            table.host,
            m.runs.c.cancelled_through,
            m.allocations.c.backend,
            m.allocations.c.job_id,
            m.allocations.c.places,
            m.allocations.c.launching_until,
            m.allocations.c.created_at,
        )
        .join(m.allocations, m.allocations.c.token == table.token)
        .join(m.runs, m.runs.c.run_id == table.run_id)
        .where(table.state.in_(LIVE))
        .order_by(m.allocations.c.created_at, table.run_id)
    )
    return list(connection.execute(query))


def grid_settings(
    connection: Connection, grid_ids: set[str] | None = None
) -> dict[str, GridSettings]:
    """Return the settings of grids by id."""
    query = select(m.grids.c.grid_id, m.grids.c.settings).order_by(m.grids.c.submitted_at)
    if grid_ids is not None:
        query = query.where(m.grids.c.grid_id.in_(grid_ids))
    return {
        row.grid_id: from_plain(json.loads(row.settings), GridSettings)
        for row in connection.execute(query)
    }


def attempts_of(connection: Connection, run_id: str) -> list[AttemptRow]:
    """Return every attempt at a run, oldest first."""
    query = select(m.attempts).where(m.attempts.c.run_id == run_id).order_by(m.attempts.c.number)
    return [_attempt_row(row) for row in connection.execute(query).mappings()]


def attempts_of_runs(connection: Connection, run_ids: Sequence[str]) -> dict[str, list[AttemptRow]]:
    """Return run -> every attempt at it, oldest first, for runs that were tried."""
    found: dict[str, list[AttemptRow]] = {}
    for part in in_parts(run_ids):
        query = select(m.attempts).where(m.attempts.c.run_id.in_(part))
        query = query.order_by(m.attempts.c.run_id, m.attempts.c.number)
        for row in connection.execute(query).mappings():
            found.setdefault(row["run_id"], []).append(_attempt_row(row))
    return found


def _attempt_row(row: Any) -> AttemptRow:
    usage = None if row["usage"] is None else from_plain(json.loads(row["usage"]), Usage)
    software = None if row["software"] is None else json.loads(row["software"])
    return AttemptRow(**{**row, "usage": usage, "software": software})


def job_of(connection: Connection, run_id: str) -> JobRow | None:
    """Return where the scheduler has a run's latest attempt."""
    table, facts = m.attempts.c, m.allocations.c
    query = (
        select(facts.backend, facts.job_id, facts.places, facts.token, table.array_index)
        .join(m.attempts, table.token == facts.token)
        .where(table.run_id == run_id, facts.job_id.is_not(None))
        .order_by(table.number.desc())
        .limit(1)
    )
    row = connection.execute(query).first()
    if row is None:
        return None
    job = f"{row.job_id}_{row.array_index}" if row.places > 1 else row.job_id
    return JobRow(backend=row.backend, job=job, token=row.token)


def waiting_words(connection: Connection) -> list[Any]:
    """Return what the scheduler says of queued attempts, once per grid and word, with the number of
    runs and one.
    """
    table = m.attempts.c
    query = (
        select(
            m.runs.c.grid_id,
            m.allocations.c.backend,
            table.word,
            func.count().label("runs"),
            func.min(table.run_id).label("run_id"),
            func.min(table.token).label("token"),
        )
        .select_from(m.attempts)
        .join(m.runs, m.runs.c.run_id == table.run_id)
        .join(m.allocations, m.allocations.c.token == table.token)
        .where(table.state == AttemptState.QUEUED, table.word != "")
        .group_by(m.runs.c.grid_id, m.allocations.c.backend, table.word)
    )
    return list(connection.execute(query))


def events_of(connection: Connection, run_id: str) -> list[EventRow]:
    """Return every change of state of a run, oldest first, with who said so."""
    table = m.events.c
    query = select(table.attempt, table.at, table.source, table.before, table.after, table.raw)
    query = query.where(table.run_id == run_id).order_by(table.id)
    return [EventRow(**row) for row in connection.execute(query).mappings()]


def checkpoints_of(connection: Connection, run_id: str) -> list[CheckpointRow]:
    """Return the checkpoints that were announced for a run."""
    table = m.checkpoints.c
    query = select(table.attempt, table.step, table.epoch, table.bytes, table.at)
    query = query.where(table.run_id == run_id).order_by(table.attempt, table.step)
    return [CheckpointRow(**row) for row in connection.execute(query).mappings()]


def results_of(connection: Connection, run_ids: list[str]) -> list[ResultRow]:
    """Return the results of these runs."""
    found: list[ResultRow] = []
    for part in in_parts(run_ids):
        query = select(m.results).where(m.results.c.run_id.in_(part))
        found += [ResultRow(**row) for row in dicts(connection.execute(query))]
    return found


def scored(connection: Connection, selection: Selection) -> set[tuple[str, str]]:
    """Return the sets and metrics that any of the selected runs has a result of."""
    query = select(m.results.c.set_name, m.results.c.metric).distinct()
    query = query.join(m.runs, m.runs.c.run_id == m.results.c.run_id)
    query = query.join(m.cells, m.cells.c.cell_id == m.runs.c.cell_id)
    query = query.where(where(connection, selection))
    return {(row[0], row[1]) for row in connection.execute(query)}


def task_of(connection: Connection, selection: Selection) -> Task:
    """Return what all runs that no other starts from are trained for; else classification."""
    # Words that other cells hardly have; most ledgers have none with them.
    others = [task for task in get_args(Task) if task != CLASSIFICATION]
    begun = select(m.cells.c.cell_id, m.cells.c.spec).where(
        or_(*(m.cells.c.spec.contains(task) for task in others))
    )
    tasks = {
        cell_id: spec.settings.dataset.task
        for cell_id, text in connection.execute(begun)
        if (spec := CellSpec.stored(text)) is not None
    }
    if not tasks:
        return CLASSIFICATION
    child = m.runs.alias()
    query = select(m.runs.c.cell_id).distinct()
    query = query.join(m.cells, m.cells.c.cell_id == m.runs.c.cell_id)
    query = query.where(
        where(connection, selection), ~exists().where(child.c.parent == m.runs.c.run_id)
    )
    found = {tasks.get(cell_id, CLASSIFICATION) for cell_id in connection.execute(query).scalars()}
    return found.pop() if len(found) == 1 else CLASSIFICATION


def cell_rows(
    connection: Connection, cell_ids: set[str], selection: Selection
) -> dict[str, CellRow]:
    """Return cells by id, with the names that the one grid of a selection has for them.

    Where several grids are selected, or none by name, cells have their first names.
    """
    asked = named_grids(connection, selection)
    names = cell_names.of_grids(connection, asked) if len(asked) == 1 else {}
    found: dict[str, CellRow] = {}
    for part in in_parts(cell_ids):
        query = select(m.cells).where(m.cells.c.cell_id.in_(part))
        for row in dicts(connection.execute(query)):
            named = row | names.get((asked[0], row["cell_id"]), {}) if names else row
            found[row["cell_id"]] = CellRow(**(named | {"axes": _axes(named["axes"])}))
    return found


def damaged_journals(connection: Connection) -> list[Row]:
    """Return the journals that were set aside because a line in them is damaged."""
    query = select(m.journals).where(m.journals.c.state == "damaged")
    return dicts(connection.execute(query))
