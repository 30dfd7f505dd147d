"""What runs had of a host's memory."""

import json
from collections.abc import Collection

from sqlalchemy import Connection, select

from ..jobs.documents import from_plain
from ..jobs.workspace.events import Usage
from . import models as m
from .parts import in_parts

# So many attempts are looked at, the newest of them.
MOST_ATTEMPTS = 500


def most_host_memory(
    connection: Connection, backbones: Collection[str], datasets: Collection[str]
) -> int | None:
    """Return the most bytes of a host that an earlier attempt on such cells had.

    Args:
        connection: to the ledger.
        backbones: names, one of which a cell has.
        datasets: names, one of which a cell has.

    Returns:
        None where nothing is known.
    """
    found: list[int] = []
    for part in in_parts(backbones):
        query = (
            select(m.attempts.c.usage, m.cells.c.dataset)
            .join(m.runs, m.runs.c.run_id == m.attempts.c.run_id)
            .join(m.cells, m.cells.c.cell_id == m.runs.c.cell_id)
            .where(m.attempts.c.usage.is_not(None), m.cells.c.backbone.in_(part))
            .order_by(m.attempts.c.started_at.desc())
            .limit(MOST_ATTEMPTS)
        )
        for row in connection.execute(query):
            usage = from_plain(json.loads(row.usage), Usage)
            if row.dataset in datasets and usage.host_memory_bytes is not None:
                found.append(usage.host_memory_bytes)
    return max(found, default=None)
