"""Attempts that have started, with what their time can be added up by."""

from collections.abc import Iterable

from sqlalchemy import Connection, func, select

from ..jobs.run.selector import Selection
from ..jobs.values import Value
from . import models as m
from .allocations import contents_of
from .gpu_hours import GpuHours, by_run, worked_until
from .parts import in_parts
from .selected import nothing, submitters, where


class Worked(Value, frozen=True, kw_only=True):
    """One attempt that has started, and what became of its time."""

    run_id: str
    backbone: str
    dataset: str
    head: str
    grid_id: str
    """That it was submitted for; its run may be another grid's by now."""
    user: str
    """Who submitted that grid last; empty: it was not recorded."""
    host: str | None
    started_at: float
    hours: float
    """That it worked, up to its last sign of life."""
    gpu_hours: GpuHours


def worked(connection: Connection, selection: Selection) -> list[Worked]:
    """Return every attempt at the selected runs that has started.

    Raises:
        NothingMatched: no run is selected.
    """
    labels = (m.cells.c[name] for name in ("backbone", "dataset", "head"))
    query = select(m.runs.c.run_id, m.runs.c.grid_id, *labels).join(
        m.cells, m.cells.c.cell_id == m.runs.c.cell_id
    )
    rows = connection.execute(query.where(where(connection, selection)))
    runs = {row.run_id: row for row in rows}
    if not runs:
        raise nothing(connection, selection)
    submitted, users = _submitted_for(connection, runs), submitters(connection)
    found = []
    for attempts, hours in by_run(connection, runs):
        for row in attempts:
            if row.started_at is None:
                continue
            run = runs[row.run_id]
            grid_id = submitted.get((row.token, row.run_id), run.grid_id)
            found.append(
                Worked(
                    run_id=row.run_id,
                    backbone=run.backbone,
                    dataset=run.dataset,
                    head=run.head,
                    grid_id=grid_id,
                    user=users.get(grid_id, ""),
                    host=row.host,
                    started_at=row.started_at,
                    hours=max(0.0, worked_until(row) - row.started_at) / 3600,
                    gpu_hours=hours[row.number],
                )
            )
    return found


def _submitted_for(connection: Connection, run_ids: Iterable[str]) -> dict[tuple[str, str], str]:
    """Return (allocation, run) -> the grid it was submitted for, of runs that several grids have.

    Allocations are long to read, and most runs have one grid.
    """
    shared = select(m.grid_runs.c.run_id).group_by(m.grid_runs.c.run_id)
    shared = shared.having(func.count() > 1)
    tokens: set[str] = set()
    for part in in_parts(run_ids):
        query = select(m.attempts.c.token).where(m.attempts.c.run_id.in_(part))
        query = query.where(m.attempts.c.run_id.in_(shared)).distinct()
        tokens |= set(connection.execute(query).scalars())
    return {
        (token, task.run_id): task.grid_id
        for token, content in contents_of(connection, tokens).items()
        for task in content.all_tasks
    }
