"""What allocations hosted, and for how long."""

import contextlib
import json
from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, select

from ..jobs.documents import Unfit
from ..jobs.values import Value
from ..jobs.workspace.allocation import Allocation
from . import models as m
from .gpu_hours import worked_until
from .parts import in_parts


class Span(Value, frozen=True, kw_only=True):
    """How long one place of an allocation was at work, whatever runs it hosted."""

    token: str
    grid_id: str
    """Of its first run, as it was submitted."""
    walltime_s: int | None
    """As it was asked for."""
    seconds: float
    """From the first start in it to the last sign of life."""


def spans(connection: Connection, grid_ids: Iterable[str]) -> list[Span]:
    """Return the allocations of these grids that have started, the newest last."""
    wanted = set(grid_ids)
    tried, places = m.attempts.c, dict[tuple[str, int], list[Any]]()
    facts = (tried.token, tried.array_index)
    times = (tried.started_at, tried.ended_at, tried.heartbeat_at)
    # Of these runs and of those that were hosted beside them.
    theirs = (
        select(tried.token)
        .join(m.grid_runs, m.grid_runs.c.run_id == tried.run_id)
        .where(m.grid_runs.c.grid_id.in_(wanted))
    )
    query = select(*facts, *times).where(tried.token.in_(theirs), tried.started_at.is_not(None))
    for row in connection.execute(query):
        places.setdefault((row.token, row.array_index), []).append(row)
    contents = contents_of(connection, {token for token, _ in places})
    found = []
    for (token, _), rows in places.items():
        content = contents.get(token)
        if content is None or content.all_tasks[0].grid_id not in wanted:
            continue
        begin, end = min(row.started_at for row in rows), max(map(worked_until, rows))
        found.append(
            Span(
                token=token,
                grid_id=content.all_tasks[0].grid_id,
                walltime_s=content.shape.walltime_s,
                seconds=end - begin,
            )
        )
    return sorted(found, key=lambda one: contents[one.token].created_at)


def contents_of(connection: Connection, tokens: Iterable[str]) -> dict[str, Allocation]:
    """Return token -> allocation; what this version of vtjobs cannot read is left out."""
    table, found = m.allocations.c, dict[str, Allocation]()
    for part in in_parts(tokens):
        query = select(table.token, table.content).where(table.token.in_(part))
        for row in connection.execute(query):
            with contextlib.suppress(Unfit):
                found[row.token] = Allocation.from_dict(json.loads(row.content))
    return found
