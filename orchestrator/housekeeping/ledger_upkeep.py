"""Looking after ledger and settings."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...db.engine import open_engine, parse_url, reading, require_writable
from ...db.ledger import Ledger
from ...db.lookups import holds_runs
from ...db.rebuild import make_ledger
from ...db.refill import keep_copy, refill
from ...db.upgrade import upgrade
from ...jobs.config.config import Config
from ...jobs.config.notices import shown
from ...jobs.values import Value
from ..loop.context import ledger_url, require_ours, state_folder


def upgrade_ledger(config: Config) -> str:
    """Apply missing migrations; return a line that says what was done.

    Raises:
        BadInput: the workspace is somebody else's.
    """
    identity = config.workspace.check()
    require_ours(config)
    engine = open_engine(parse_url(ledger_url(config, identity)))
    before, after = upgrade(engine, config.workspace)
    return (
        f"schema {after}, nothing to do"
        if before == after
        else f"schema {before or 'none'} -> {after}"
    )


class Rebuilt(Value, frozen=True, kw_only=True):
    """What a rebuild found, and where the old ledger is now."""

    found: dict[str, int]
    kept: Path | None
    """None: there was none, or it was empty."""


def rebuild_ledger(config: Config, *, progress: Callable[[str, int], None]) -> Rebuilt:
    """Set the ledger aside and make it anew.

    A SQLite file is renamed. The rows of a PostgreSQL ledger are copied into a SQLite file in this
    user's state folder, and replaced in one transaction.

    Raises:
        BadInput: the workspace is somebody else's.
    """
    identity = config.workspace.check()
    require_ours(config)
    url = parse_url(ledger_url(config, identity))
    if url.drivername == "sqlite":
        path = Path(str(url.database))
        kept = _set_aside(path)
        found = make_ledger(path, config.workspace, workspace_id=identity["id"], progress=progress)
        return Rebuilt(found=found, kept=kept)
    address = url.render_as_string(hide_password=False)
    ledger = Ledger.open(address, workspace_id=identity["id"], create=True)
    require_writable(ledger.engine)
    with reading(ledger.engine) as connection:
        is_empty = not holds_runs(connection)
    kept = None if is_empty else keep_copy(ledger, state_folder(), workspace_id=identity["id"])
    found = refill(ledger, config.workspace, replace=True, progress=progress)
    return Rebuilt(found=found, kept=kept)


def _set_aside(path: Path) -> Path | None:
    """Rename a ledger; return its new name, or None where there is none."""
    kept = Path(f"{path}.{time.strftime('%Y%m%d-%H%M%S')}")
    # The write-ahead log belongs to its database: they move together, the database last.
    for suffix in ("-wal", "-shm", ""):
        old = Path(f"{path}{suffix}")
        if old.exists():
            os.replace(old, f"{kept}{suffix}")
    return kept if kept.exists() else None


def shown_settings(config: Config) -> dict[str, dict[str, Any]]:
    """Return each setting with its origin, without passwords in the ledger's and other URLs."""
    found = {
        name: {"value": setting.value, "origin": setting.origin}
        for name, setting in config.settings.items()
    }
    if found["ledger"]["value"]:
        found["ledger"]["value"] = parse_url(str(found["ledger"]["value"])).render_as_string(
            hide_password=True
        )
    found["notify"]["value"] = shown(found["notify"]["value"])
    return found
