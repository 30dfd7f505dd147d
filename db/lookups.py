"""Facts about given runs, one function a question. Readers hand in a connection of `reading`."""

import json
from collections import Counter
from collections.abc import Iterable

from sqlalchemy import Connection, exists, func, or_, select

from ..jobs.run.settings import CellSettings
from ..jobs.run.spec import CellSpec
from ..jobs.run.states import LIVE, AttemptState, RunState
from ..jobs.values import Value
from ..jobs.workspace.allocation import Allocation
from . import imported
from . import models as m
from .parts import in_parts

# Runs ---------------------------------------------------------------------------------------------


def states_of(connection: Connection, run_ids: Iterable[str]) -> dict[str, RunState]:
    """Return run -> its state; an unknown run is left out."""
    found: dict[str, RunState] = {}
    for part in in_parts(run_ids):
        query = select(m.runs.c.run_id, m.runs.c.state).where(m.runs.c.run_id.in_(part))
        found |= {row.run_id: RunState(row.state) for row in connection.execute(query)}
    return found


def newest_grids_of(connection: Connection, run_ids: Iterable[str]) -> dict[str, set[str]]:
    """Return grid -> those of the runs that follow it: a run follows the newest grid it is in."""
    found: dict[str, set[str]] = {}
    for part in in_parts(run_ids):
        query = select(m.runs.c.grid_id, m.runs.c.run_id).where(m.runs.c.run_id.in_(part))
        for row in connection.execute(query):
            found.setdefault(row.grid_id, set()).add(row.run_id)
    return found


def all_grids_of(connection: Connection, run_ids: Iterable[str]) -> set[str]:
    """Return every grid that holds any of the runs."""
    found: set[str] = set()
    for part in in_parts(run_ids):
        query = select(m.grid_runs.c.grid_id).where(m.grid_runs.c.run_id.in_(part)).distinct()
        found |= set(connection.execute(query).scalars())
    return found


def grids_of(connection: Connection, run_id: str) -> list[str]:
    """Return every grid that has a run, the newest first."""
    query = (
        select(m.grids.c.grid_id)
        .join(m.grid_runs, m.grid_runs.c.grid_id == m.grids.c.grid_id)
        .where(m.grid_runs.c.run_id == run_id)
        .order_by(m.grids.c.submitted_at.desc(), m.grids.c.grid_id)
    )
    return list(connection.execute(query).scalars())


def submission_before(connection: Connection, name: str, grid_id: str) -> str | None:
    """Return the newest submission of a grid's name but this one."""
    query = (
        select(m.grids.c.grid_id)
        .where(m.grids.c.name == name, m.grids.c.grid_id != grid_id)
        .order_by(m.grids.c.submitted_at.desc())
        .limit(1)
    )
    return connection.execute(query).scalar()


def unsettled_runs(connection: Connection, grid_id: str) -> set[str]:
    """Return the runs of a grid that still wait or run."""
    query = (
        select(m.runs.c.run_id)
        .join(m.grid_runs, m.grid_runs.c.run_id == m.runs.c.run_id)
        .where(
            m.grid_runs.c.grid_id == grid_id,
            m.runs.c.state.in_([state for state in RunState if not state.is_terminal]),
        )
    )
    return set(connection.execute(query).scalars())


def grids_of_other_names(
    connection: Connection, run_ids: Iterable[str], name: str
) -> dict[str, set[str]]:
    """Return grid -> those of the runs that it has, for grids that are not called so."""
    found: dict[str, set[str]] = {}
    for part in in_parts(run_ids):
        query = (
            select(m.grid_runs.c.grid_id, m.grid_runs.c.run_id)
            .join(m.grids, m.grids.c.grid_id == m.grid_runs.c.grid_id)
            .where(m.grid_runs.c.run_id.in_(part), m.grids.c.name != name)
        )
        for row in connection.execute(query):
            found.setdefault(row.grid_id, set()).add(row.run_id)
    return found


def holds_runs(connection: Connection) -> bool:
    """Return whether the ledger has a run at all."""
    return connection.execute(select(m.runs.c.run_id).limit(1)).first() is not None


def runs_by_grid(connection: Connection, states: Iterable[RunState]) -> dict[str, int]:
    """Return grid -> how many runs that follow it are in one of the states."""
    query = (
        select(m.runs.c.grid_id, func.count())
        .where(m.runs.c.state.in_(list(states)))
        .group_by(m.runs.c.grid_id)
    )
    return {row[0]: row[1] for row in connection.execute(query)}


def places_by_grid(connection: Connection, backend: str) -> dict[str, int]:
    """Return grid -> how many places of a backend its live attempts have."""
    place = (m.attempts.c.token, m.attempts.c.array_index)
    places = (
        select(func.min(m.runs.c.grid_id).label("grid_id"))
        .join(m.attempts, m.attempts.c.run_id == m.runs.c.run_id)
        .join(m.allocations, m.allocations.c.token == m.attempts.c.token)
        .where(m.attempts.c.state.in_(LIVE), m.allocations.c.backend == backend)
        .group_by(*place)
        .subquery()
    )
    query = select(places.c.grid_id, func.count()).group_by(places.c.grid_id)
    return {row[0]: row[1] for row in connection.execute(query)}


class CompletedRun(Value, frozen=True, kw_only=True):
    """A run that has completed."""

    run_id: str
    grid_id: str
    settings: CellSettings


def completed_runs(connection: Connection, run_ids: Iterable[str]) -> list[CompletedRun]:
    """Return those of the runs that vtjobs has trained to their end."""
    found: list[CompletedRun] = []
    elsewhere = imported.among(connection, run_ids := list(run_ids))
    for part in in_parts(run_ids):
        query = (
            select(m.runs.c.grid_id, m.runs.c.run_id, m.cells.c.spec)
            .join(m.cells, m.cells.c.cell_id == m.runs.c.cell_id)
            .where(m.runs.c.run_id.in_(part), m.runs.c.state == RunState.COMPLETED)
        )
        found += [
            CompletedRun(run_id=row.run_id, grid_id=row.grid_id, settings=spec.settings)
            for row in connection.execute(query)
            if row.run_id not in elsewhere and (spec := CellSpec.stored(row.spec)) is not None
        ]
    return found


def seeds_of_cells(connection: Connection, cell_ids: Iterable[str]) -> dict[str, dict[int, str]]:
    """Return cell -> seed -> its run, of runs that are replicates."""
    table, found = m.runs.c, dict[str, dict[int, str]]()
    for part in in_parts(sorted(cell_ids)):
        query = select(table.cell_id, table.seed, table.run_id)
        for row in connection.execute(query.where(table.cell_id.in_(part), table.streams == "")):
            found.setdefault(row.cell_id, {})[row.seed] = row.run_id
    return found


class Parent(Value, frozen=True, kw_only=True):
    """A run that another one starts from or learns from."""

    cell_id: str
    parent: str | None


def parents_of(connection: Connection, run_ids: Iterable[str]) -> dict[str, Parent]:
    """Return run -> its cell and its own parent."""
    found: dict[str, Parent] = {}
    for part in in_parts(sorted(run_ids)):
        query = select(m.runs.c.run_id, m.runs.c.cell_id, m.runs.c.parent).where(
            m.runs.c.run_id.in_(part)
        )
        for row in connection.execute(query):
            found[row.run_id] = Parent(cell_id=row.cell_id, parent=row.parent)
    return found


def settings_tried(connection: Connection, cell_ids: Iterable[str]) -> dict[str, int]:
    """Return cell -> how many cells with its backbone, dataset, head and stage have begun.

    They differ in recipe and settings, also in those of the backbone and of the head. A cell has
    begun once a run of it is no longer pending; one that has not begun has 0.
    """
    what = (m.cells.c.backbone, m.cells.c.dataset, m.cells.c.head, m.cells.c.stage)
    begun = exists().where(m.runs.c.cell_id == m.cells.c.cell_id, m.runs.c.state != "pending")
    wanted, names_of, numbers = set(cell_ids), {}, Counter[tuple[str, ...]]()
    for cell_id, *labels in connection.execute(select(m.cells.c.cell_id, *what).where(begun)):
        # A label that a list has twice names its settings in brackets.
        names = tuple(label.partition("(")[0] for label in labels)
        numbers[names] += 1
        if cell_id in wanted:
            names_of[cell_id] = names
    return {cell_id: numbers[names] for cell_id, names in names_of.items()}


# Attempts -----------------------------------------------------------------------------------------


def newest_attempts_of(connection: Connection, run_ids: Iterable[str]) -> dict[str, int]:
    """Return run -> the number of its newest attempt, for runs that were tried."""
    table, found = m.attempts.c, dict[str, int]()
    for part in in_parts(run_ids):
        query = select(table.run_id, func.max(table.number)).where(table.run_id.in_(part))
        found |= {row[0]: row[1] for row in connection.execute(query.group_by(table.run_id))}
    return found


def newest_attempts(connection: Connection, grid_ids: Iterable[str]) -> dict[str, dict[str, int]]:
    """Return grid -> run -> the number of its newest attempt, for runs that were tried."""
    query = (
        select(m.runs.c.grid_id, m.runs.c.run_id, func.max(m.attempts.c.number).label("number"))
        .select_from(m.runs)
        .join(m.attempts, m.attempts.c.run_id == m.runs.c.run_id)
        .where(m.runs.c.grid_id.in_(list(grid_ids)))
        .group_by(m.runs.c.grid_id, m.runs.c.run_id)
    )
    found: dict[str, dict[str, int]] = {}
    for row in connection.execute(query):
        found.setdefault(row.grid_id, {})[row.run_id] = row.number
    return found


def moved_since(connection: Connection, at: float) -> set[str]:
    """Return the runs of which an attempt started or ended after a time."""
    table = m.attempts.c
    moved = or_(table.started_at >= at, table.ended_at >= at)
    return set(connection.execute(select(table.run_id).where(moved)).scalars())


def cancelled_through(connection: Connection, run_ids: Iterable[str]) -> dict[str, int]:
    """Return run -> the highest attempt that was cancelled; 0: none was."""
    found: dict[str, int] = {}
    for part in in_parts(run_ids):
        query = select(m.runs.c.run_id, m.runs.c.cancelled_through).where(m.runs.c.run_id.in_(part))
        found |= {row.run_id: row.cancelled_through for row in connection.execute(query)}
    return found


def live_runs(connection: Connection) -> set[str]:
    """Return the runs that have a live attempt."""
    query = select(m.attempts.c.run_id).where(m.attempts.c.state.in_(LIVE))
    return set(connection.execute(query).scalars())


def count_started(connection: Connection, run_ids: Iterable[str]) -> int:
    """Return how many of the runs have ever started."""
    started = func.count(func.distinct(m.attempts.c.run_id))
    return sum(
        connection.execute(
            select(started).where(
                m.attempts.c.run_id.in_(part), m.attempts.c.started_at.is_not(None)
            )
        ).scalar_one()
        for part in in_parts(run_ids)
    )


def scored_runs(connection: Connection, cell_ids: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return the runs of cells that have a score or diverged, each with the match and the id of its
    cell: cells of one match differ in the head alone.
    """
    # Also of runs that still train: whoever wants to see it does.
    is_scored = exists().where(m.evaluations.c.run_id == m.runs.c.run_id)
    query = (
        select(m.runs.c.run_id, m.cells.c.match_id, m.cells.c.cell_id)
        .join(m.cells, m.cells.c.cell_id == m.runs.c.cell_id)
        .where(or_(is_scored, m.runs.c.state == RunState.DIVERGED))
    )
    found: dict[str, tuple[str, str]] = {}
    for part in in_parts(cell_ids):
        for row in connection.execute(query.where(m.runs.c.cell_id.in_(part))):
            found[row.run_id] = (row.match_id, row.cell_id)
    return found


def count_evaluations(
    connection: Connection, run_ids: Iterable[str], set_name: str
) -> dict[str, int]:
    """Return run -> how many epochs it was scored at on a set."""
    query = select(
        m.evaluations.c.run_id, func.count(func.distinct(m.evaluations.c.epoch)).label("epochs")
    ).group_by(m.evaluations.c.run_id)
    found: dict[str, int] = {}
    for part in in_parts(run_ids):
        chosen = query.where(m.evaluations.c.run_id.in_(part), m.evaluations.c.set_name == set_name)
        found |= {row.run_id: row.epochs for row in connection.execute(chosen)}
    return found


def ended_without_result(connection: Connection, cell_ids: Iterable[str]) -> set[str]:
    """Return the runs of cells that are settled and have not completed."""
    states = [state for state in RunState if state.is_settled and state != RunState.COMPLETED]
    query = select(m.runs.c.run_id)
    return {
        run_id
        for part in in_parts(cell_ids)
        for run_id in connection.execute(
            query.where(m.runs.c.cell_id.in_(part), m.runs.c.state.in_(states))
        ).scalars()
    }


def newest_errors(connection: Connection, run_ids: Iterable[str]) -> dict[str, str]:
    """Return run -> what its newest attempt stored of its error, for runs that were tried."""
    table, tried = m.attempts.c, m.attempts.alias("tried").c
    latest = select(func.max(tried.number)).where(tried.run_id == table.run_id).scalar_subquery()
    found: dict[str, str] = {}
    for part in in_parts(run_ids):
        query = select(table.run_id, table.error).where(
            table.run_id.in_(part), table.number == latest
        )
        found |= {row.run_id: row.error for row in connection.execute(query)}
    return found


def inexact_resumes(connection: Connection, run_ids: Iterable[str]) -> dict[str, bool]:
    """Return run -> whether a resume of it was inexact, for runs that were resumed at all."""
    found: dict[str, bool] = {}
    for part in in_parts(run_ids):
        query = select(m.attempts.c.run_id, m.attempts.c.exact).where(
            m.attempts.c.run_id.in_(part), m.attempts.c.resumed_step.is_not(None)
        )
        for row in connection.execute(query):
            found[row.run_id] = found.get(row.run_id, False) or row.exact is not True
    return found


def interrupted_epochs(connection: Connection, run_ids: Iterable[str]) -> dict[str, list[int]]:
    """Return run -> the epochs in which attempts ended without completing it."""
    table = m.attempts.c
    found: dict[str, list[int]] = {}
    for part in in_parts(run_ids):
        query = select(table.run_id, table.epoch).where(
            table.run_id.in_(part),
            table.state.not_in((AttemptState.COMPLETED, *LIVE)),
            table.epoch.is_not(None),
        )
        for row in connection.execute(query):
            found.setdefault(row.run_id, []).append(int(row.epoch))
    return found


# What was measured --------------------------------------------------------------------------------


def epochs_of(connection: Connection, run_ids: Iterable[str]) -> dict[str, int]:
    """Return run -> how many epochs it has reported."""
    table = m.epoch_metrics.c
    found: dict[str, int] = {}
    for part in in_parts(run_ids):
        query = select(table.run_id, func.count()).where(table.run_id.in_(part))
        found |= {row[0]: row[1] for row in connection.execute(query.group_by(table.run_id))}
    return found


def images_of(connection: Connection, run_ids: Iterable[str]) -> dict[str, dict[str, int]]:
    """Return run -> evaluation set -> how many images it was scored on."""
    table = m.evaluations.c
    found: dict[str, dict[str, int]] = {}
    for part in in_parts(sorted(run_ids)):
        query = (
            select(table.run_id, table.set_name, func.max(table.metrics))
            .where(table.run_id.in_(part))
            .group_by(table.run_id, table.set_name)
        )
        for run_id, set_name, metrics in connection.execute(query):
            if "n" in (scored := json.loads(metrics)):
                found.setdefault(run_id, {})[set_name] = int(scored["n"])
    return found


# Allocations --------------------------------------------------------------------------------------


def allocation(connection: Connection, token: str) -> Allocation:
    """Return an allocation as the ledger has it."""
    query = select(m.allocations.c.content).where(m.allocations.c.token == token)
    return Allocation.from_dict(json.loads(connection.execute(query).scalar_one()))


def tokens(connection: Connection) -> set[str]:
    """Return the tokens of all allocations."""
    return set(connection.execute(select(m.allocations.c.token)).scalars())
