"""What a ledger has lost of its workspace, and how it gets all of it back.

An empty database (a new one, a file that a power cut left without a byte) is no new workspace: its
runs would be started again.
"""

import tempfile
import time
from pathlib import Path

from sqlalchemy import Connection, delete, insert, select

from ..jobs.errors import VtjobsError
from ..jobs.workspace.paths import Workspace
from ..jobs.workspace.stored_grid import grid_ids, read_grid
from . import models as m
from .engine import reading, writing
from .ledger import Ledger
from .rebuild import Progress, make_ledger

# Rows that are copied at a time.
CHUNK = 5000


class ForgetfulLedger(VtjobsError):
    """The ledger knows fewer runs than its workspace."""


def require_whole(ledger: Ledger, workspace: Workspace, *, may_fill: bool, where: str = "") -> None:
    """Fill an empty ledger from its workspace; refuse one that has lost grids.

    Args:
        ledger: that was opened.
        workspace: whose ledger it is.
        may_fill: whether this user may write the ledger.
        where: what a printed command ends with, see `Config.where`.

    Raises:
        ForgetfulLedger: with the command that mends it.
    """
    stored = grid_ids(workspace)
    with reading(ledger.engine) as connection:
        known = set(connection.execute(select(m.grids.c.grid_id)).scalars())
    unknown = [grid_id for grid_id in stored if grid_id not in known]
    if not unknown:
        return
    if may_fill and not known:
        refill(ledger, workspace)
        return
    lost = unknown if not known else _with_lost_runs(ledger, workspace, unknown)
    if lost:
        name = ledger.engine.url.render_as_string(hide_password=True)
        command = f"vtjobs ledger rebuild{where}"
        who = "Run" if may_fill else f"{workspace.owner()}, whose workspace it is, has to run"
        raise ForgetfulLedger(
            f"the ledger {name} does not know grid {lost[0]}, which has runs in the workspace"
            f" {workspace.root}. {who}: {command}"
        )


def _with_lost_runs(ledger: Ledger, workspace: Workspace, unknown: list[str]) -> list[str]:
    """Return those of the grids that have had runs handed to a scheduler.

    The submission of another one was cut off before the ledger knew of it.
    """
    found: list[str] = []
    for grid_id in unknown:
        frozen = read_grid(workspace, grid_id)
        mine = [run[0] for run in frozen.runs] if frozen is not None else []
        known = ledger.known(mine)
        if any(workspace.run(run_id).path.is_dir() for run_id in mine if run_id not in known):
            found.append(grid_id)
    return found


def refill(
    ledger: Ledger,
    workspace: Workspace,
    *,
    replace: bool = False,
    progress: Progress = lambda what, count: None,
) -> dict[str, int]:
    """Put everything that the workspace tells into a ledger, in one transaction.

    It is gathered in a file of its own first: nobody sees half of it, and a process that is killed
    leaves the ledger as it was.

    Args:
        ledger: whose tables are there.
        workspace: that it indexes.
        replace: whether the rows that it has make room; else one that has grids is left alone.
        progress: told what has been read so far.

    Returns:
        How much was found.
    """
    identity = workspace.check()["id"]
    with tempfile.TemporaryDirectory(prefix="vtjobs-ledger-") as folder:
        path = Path(folder) / "ledger.sqlite"
        found = make_ledger(
            path, workspace, workspace_id=identity, clock=ledger.clock, progress=progress
        )
        source = Ledger.open(str(path), workspace_id=identity)
        try:
            with reading(source.engine) as old, writing(ledger.engine) as new:
                # Somebody else may have been faster.
                if replace or new.execute(select(m.grids.c.grid_id).limit(1)).first() is None:
                    _empty(new)
                    _copy(old, new)
        finally:
            source.engine.dispose()
    return found


def keep_copy(ledger: Ledger, folder: Path, *, workspace_id: str) -> Path:
    """Copy a ledger into a SQLite file in this folder; return its path."""
    path = folder / f"{workspace_id}.{time.strftime('%Y%m%d-%H%M%S')}.sqlite"
    copy = Ledger.open(str(path), workspace_id=workspace_id, create=True)
    try:
        with reading(ledger.engine) as old, writing(copy.engine) as new:
            _empty(new)
            _copy(old, new)
    finally:
        copy.engine.dispose()
    return path


def _empty(connection: Connection) -> None:
    for table in reversed(m.metadata.sorted_tables):
        connection.execute(delete(table))


def _copy(old: Connection, new: Connection) -> None:
    for table in m.metadata.sorted_tables:
        # A number that the database gives: it goes on counting from there.
        given = table.autoincrement_column if table is m.events else None
        columns = [column for column in table.columns if column is not given]
        rows = old.execute(select(*columns).order_by(*table.primary_key.columns))
        for part in rows.partitions(CHUNK):
            new.execute(insert(table), [row._asdict() for row in part])
