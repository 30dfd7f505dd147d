"""Tags of grids and runs: which there are, and what has them."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from sqlalchemy import Connection, delete, insert, or_, select

from . import models as m
from .parts import in_parts


def keep(connection: Connection, tags: Mapping[str, Collection[str]]) -> None:
    """Make the ledger's tags these: id of a grid or a run -> its tags."""
    connection.execute(delete(m.tags))
    rows = [{"target": target, "tag": tag} for target in tags for tag in sorted(tags[target])]
    if rows:
        connection.execute(insert(m.tags), rows)


def of_targets(
    connection: Connection, targets: Iterable[str] | None = None
) -> dict[str, list[str]]:
    """Return the tags of these grids and runs, or of all, that have any, in alphabetical order."""
    found: dict[str, list[str]] = {}
    query = select(m.tags).order_by(m.tags.c.target, m.tags.c.tag)
    queries = (
        [query]
        if targets is None
        else [query.where(m.tags.c.target.in_(part)) for part in in_parts(targets)]
    )
    for one in queries:
        for row in connection.execute(one):
            found.setdefault(row.target, []).append(row.tag)
    return found


def names(connection: Connection) -> list[str]:
    """Return the tags that there are, in alphabetical order."""
    query = select(m.tags.c.tag).distinct().order_by(m.tags.c.tag)
    return list(connection.execute(query).scalars())


def have_one_of(tags: Collection[str]) -> Any:
    """Return the condition on runs that they, or a grid that they are in, have one of these."""
    tagged = select(m.tags.c.target).where(m.tags.c.tag.in_(tags))
    of_grids = select(m.grid_runs.c.run_id).where(m.grid_runs.c.grid_id.in_(tagged))
    return or_(m.runs.c.run_id.in_(tagged), m.runs.c.run_id.in_(of_grids))
