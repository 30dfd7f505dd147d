"""Keeps what waits already off the nodes on which no agent can start.

Such a node is always free: it would take all of a queue in which it was not excluded yet.
"""

from collections import defaultdict

from ...db import queries, scheduler_notes
from ...db.bad_nodes import black_holes
from ...db.engine import reading
from ...jobs.errors import SchedulerUnreachable
from ..backends.base import Key, Place
from .context import Context
from .places import place_of


def keep_off_black_holes(context: Context) -> list[str]:
    """Have the places that wait avoid nodes that were found to be black holes since the last pass.

    New places avoid them from the start.

    Returns:
        What the user should know.
    """
    with reading(context.ledger.engine) as connection:
        holes = black_holes(connection, now=context.clock())
    nodes: dict[str, list[str]] = defaultdict(list)
    for hole in holes:
        nodes[hole.backend].append(hole.node)
    told = scheduler_notes.kept_off(context.ledger)
    problems = []
    for name in sorted(nodes.keys() | told.keys()):
        new = [node for node in nodes[name] if node not in told.get(name, ())]
        try:
            if new:
                context.backend(name).avoid(_waiting(context, name), new)
            scheduler_notes.note_kept_off(context.ledger, name, nodes[name])
        except SchedulerUnreachable as error:
            problems.append(f"{name}: what waits could not be kept off {new[0]}: {error}")
    return problems


def _waiting(context: Context, name: str) -> list[Place]:
    """Return the places of a backend in which nothing has started."""
    with reading(context.ledger.engine) as connection:
        rows = queries.live_attempts(connection)
    places: dict[Key, Place] = {}
    for place in (place_of(row) for row in rows if row.backend == name):
        if place.key not in places or place.is_started:
            places[place.key] = place
    return [place for place in places.values() if not place.is_started]
