"""Bring a ledger's schema up to date with Alembic."""

from pathlib import Path

from sqlalchemy import Engine

from ..jobs.atomic_files import touch_new
from ..jobs.workspace.paths import Workspace
from . import cell_names
from .engine import check_schema, schema_version, writing


def alembic_config() -> "object":
    """Return Alembic's settings for our migrations."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "vtjobs.db:migrations")
    config.set_main_option("path_separator", "os")
    return config


def upgrade(engine: Engine, workspace: Workspace | None = None) -> tuple[str | None, str]:
    """Apply the missing migrations in one transaction; return the version before and after.

    Args:
        engine: of the ledger.
        workspace: where new tables find what the ledger did not keep before; None: it is empty.

    Raises:
        NewerLedger: the ledger is ahead of this vtjobs.
    """
    from alembic import command

    from .engine import SCHEMA_VERSION, NewerLedger

    before = schema_version(engine)
    if before is not None and before > SCHEMA_VERSION:
        raise NewerLedger(
            f"the ledger (schema {before}) was written by a newer vtjobs; upgrade vtjobs"
        )
    if engine.url.drivername == "sqlite":
        # SQLite would make it with a mode of its own. Its companions get the mode of this one.
        touch_new(Path(str(engine.url.database)))
    config = alembic_config()
    # Two first commands at once: the second waits and then finds nothing to do.
    with writing(engine) as connection:
        config.attributes["connection"] = connection  # type: ignore[attr-defined]
        command.upgrade(config, "head")  # type: ignore[arg-type]
        if workspace is not None:
            cell_names.keep_all(connection, workspace)
    check_schema(engine)
    return before, SCHEMA_VERSION
