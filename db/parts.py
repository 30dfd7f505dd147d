"""Lists of ids in SQL: cut to what one statement may hold, or handed over as one value."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sqlalchemy import JSON, Connection, and_, cast, false, func, literal, or_, select

from . import models as m

# SQLite's limit on variables is 32,766; PostgreSQL's is 65,535.
MOST_IDS = 5000


def in_parts(ids: Iterable[str], size: int = MOST_IDS) -> Iterator[list[str]]:
    """Yield the ids in lists of at most `size`."""
    whole = list(ids)
    for start in range(0, len(whole), size):
        yield whole[start : start + size]


def is_among(connection: Connection, runs: Mapping[str, Iterable[str]]) -> Any:
    """Return the condition that a run is one of these: grid -> its runs.

    However many they are, the database gets one value for each grid, a JSON list, and looks each
    run up in it. It counts them without a row for each.
    """
    of_grids = [
        and_(m.runs.c.grid_id == grid_id, m.runs.c.run_id.in_(_listed(connection, run_ids)))
        for grid_id, run_ids in runs.items()
    ]
    return or_(false(), *of_grids)


def _listed(connection: Connection, run_ids: Iterable[str]) -> Any:
    text = literal(json.dumps(list(run_ids)))
    if connection.dialect.name == "postgresql":
        rows = func.json_array_elements_text(cast(text, JSON)).table_valued("value")
    else:
        rows = func.json_each(text).table_valued("value")
    return select(rows.c.value)
