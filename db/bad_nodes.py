"""Nodes that runs should not be tried on.

Those that failed a run, and black holes: nodes on which no agent can start, because of a missing
mount or a broken module. These are always free, and take one job after another.
"""

from collections import defaultdict

from sqlalchemy import Connection, func, select

from ..jobs.run.states import FailureClass
from ..jobs.values import Value
from . import models as m
from .parts import in_parts

# Failures that the node may be to blame for, and how many of them it takes.
_NODE_FAULTS = {FailureClass.HARDWARE: 1, FailureClass.COMMUNICATION: 2}
# So many jobs that ended before their agent began make a node a black hole, for so long after the
# last of them: then it may have been mended.
BLACK_HOLE_JOBS = 2
BLACK_HOLE_S = 6 * 3600.0


class BlackHole(Value, frozen=True, kw_only=True):
    """A node on which jobs end before their agent begins."""

    backend: str
    node: str
    jobs: int
    error: str
    """What the last of them printed."""


def bad_nodes(connection: Connection, run_ids: list[str]) -> dict[str, tuple[str, ...]]:
    """Return the nodes that failed each of these runs, where it should not be tried again."""
    found: dict[tuple[str, str], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    table = m.attempts.c
    for part in in_parts(run_ids):
        query = select(table.run_id, table.host, table.failure).where(
            table.run_id.in_(part),
            table.failure.in_(_NODE_FAULTS),
            table.host.is_not(None),
        )
        for row in connection.execute(query):
            found[row.run_id, row.host][row.failure] += 1
    bad: dict[str, tuple[str, ...]] = {}
    for (run_id, host), counts in sorted(found.items()):
        if any(counts[failure] >= most for failure, most in _NODE_FAULTS.items()):
            bad[run_id] = (*bad.get(run_id, ()), host)
    return bad


def black_holes(connection: Connection, *, now: float) -> list[BlackHole]:
    """Return the nodes on which no agent could start lately, by backend and name.

    An attempt that started on a node speaks for it against all that ended there before.
    """
    table, other = m.attempts.c, m.attempts.alias("other").c
    # Of an attempt that never started, only a scheduler that blames the node names it.
    ended = table.failure == FailureClass.NOT_SUBMITTED
    started_later = (other.host == table.host) & (other.started_at > table.ended_at)
    query = (
        select(
            m.allocations.c.backend,
            table.host,
            table.token,
            table.array_index,
            func.max(table.error).label("error"),
        )
        .select_from(m.attempts)
        .join(m.allocations, m.allocations.c.token == table.token)
        .where(ended, table.host.is_not(None), table.ended_at > now - BLACK_HOLE_S)
        .where(~select(other.run_id).where(started_later).exists())
        .group_by(m.allocations.c.backend, table.host, table.token, table.array_index)
        .order_by(m.allocations.c.backend, table.host, func.max(table.ended_at))
    )
    jobs: dict[tuple[str, str], list[str]] = defaultdict(list)
    for row in connection.execute(query):
        jobs[row.backend, row.host].append(row.error)
    return [
        BlackHole(backend=backend, node=node, jobs=len(errors), error=errors[-1])
        for (backend, node), errors in jobs.items()
        if len(errors) >= BLACK_HOLE_JOBS
    ]


def began(connection: Connection, token: str, array_index: int) -> bool:
    """Return whether an attempt has started at this place: then its node let the agent begin."""
    table = m.attempts.c
    query = select(table.run_id).where(
        table.token == token, table.array_index == array_index, table.started_at.is_not(None)
    )
    return connection.execute(query.limit(1)).first() is not None
