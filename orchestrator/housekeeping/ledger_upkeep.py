"""Looking after ledger and settings."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...db.engine import open_engine, parse_url
from ...db.ledger import Ledger
from ...db.rebuild import make_ledger, rebuild
from ...db.upgrade import upgrade
from ...jobs.config.config import Config
from ...jobs.errors import BadInput
from ..loop.context import ledger_url, require_ours


def upgrade_ledger(config: Config) -> str:
    """Apply missing migrations; return a line that says what was done.

    Raises:
        BadInput: the workspace is somebody else's.
    """
    identity = config.workspace.check()
    require_ours(config)
    engine = open_engine(parse_url(ledger_url(config, identity)))
    before, after = upgrade(engine)
    return (
        f"schema {after}, nothing to do"
        if before == after
        else f"schema {before or 'none'} -> {after}"
    )


def rebuild_ledger(config: Config, *, progress: Callable[[str, int], None]) -> dict[str, int]:
    """Set the ledger aside and make it anew; return how much was found.

    Raises:
        BadInput: the workspace is somebody else's; or a PostgreSQL ledger is not empty: that one is
            its owner's to drop.
    """
    identity = config.workspace.check()
    require_ours(config)
    url = parse_url(ledger_url(config, identity))
    if url.drivername == "sqlite":
        path = Path(str(url.database))
        _set_aside(path)
        return make_ledger(path, config.workspace, workspace_id=identity["id"], progress=progress)
    if _holds_runs(config, identity["id"]):
        raise BadInput(
            "the PostgreSQL ledger is not empty; drop its tables or name another database, then"
            " repeat"
        )
    ledger = Ledger.open(
        url.render_as_string(hide_password=False), workspace_id=identity["id"], create=True
    )
    return rebuild(ledger, config.workspace, progress)


def _set_aside(path: Path) -> None:
    stamp = time.strftime("%Y%m%d-%H%M%S")
    # The write-ahead log belongs to its database: they move together, the database last.
    for suffix in ("-wal", "-shm", ""):
        old = Path(f"{path}{suffix}")
        if old.exists():
            os.replace(old, f"{path}.{stamp}{suffix}")


def _holds_runs(config: Config, workspace_id: str) -> bool:
    from ...db import lookups
    from ...db.engine import reading

    url = ledger_url(config, config.workspace.check())
    ledger = Ledger.open(url, workspace_id=workspace_id, create=True)
    with reading(ledger.engine) as connection:
        return lookups.holds_runs(connection)


def shown_settings(config: Config) -> dict[str, dict[str, Any]]:
    """Return each setting with its origin; a password in the ledger's URL is masked."""
    found = {
        name: {"value": setting.value, "origin": setting.origin}
        for name, setting in config.settings.items()
    }
    if found["ledger"]["value"]:
        found["ledger"]["value"] = parse_url(str(found["ledger"]["value"])).render_as_string(
            hide_password=True
        )
    return found
