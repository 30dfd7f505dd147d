"""PostgreSQL: a server or a pooler before one, what a connection leads to, what errors mean."""

import shlex
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL

from ..jobs.errors import LedgerUnreachable
from .closing import closed_at_exit

CONNECT_TIMEOUT_S = 5

# What errors are known by (SQLSTATE): their texts are in the server's language.
READ_ONLY = "25006"
LOCK_TIMEOUT = "55P03"
NO_TABLE = "42P01"
NO_PERMISSION = "42501"

STANDBY = "its server is a standby in recovery"
SET_READ_ONLY = "default_transaction_read_only is on"
_REMEDIES = {
    STANDBY: "set VTJOBS_LEDGER to the URL of the primary server",
    SET_READ_ONLY: "have the server's administrator turn that off",
}


class ReadOnlyLedger(LedgerUnreachable):
    """The server takes no changes."""


class WrongEncoding(LedgerUnreachable):
    """The database cannot hold every text."""


def make_engine(url: URL, *, busy_s: float) -> Engine:
    """Make the engine of a PostgreSQL database.

    Args:
        url: of the database, or of a pooler before it.
        busy_s: how long a statement waits for a lock, in seconds.
    """
    # Settings are made below and not in `options`: pgbouncer refuses connections with them. We send
    # UTF-8 whatever PGCLIENTENCODING says.
    arguments = {"connect_timeout": CONNECT_TIMEOUT_S, "client_encoding": "utf8"}
    engine = create_engine(url, pool_pre_ping=True, connect_args=arguments)
    wait = f"{busy_s * 1000:.0f}"

    def prepare(raw: Any, record: Any) -> None:
        record.info |= _ask(raw, wait)
        if record.info["encoding"] != "UTF8":
            raise WrongEncoding(_refusal(url, record.info["encoding"]))
        if record.info["pooled"]:
            # The process that knows a prepared statement may serve somebody else next.
            raw.prepare_threshold = None

    def begin(connection: Connection) -> None:
        if connection.info["pooled"]:
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = {wait}")

    event.listen(engine, "connect", prepare)
    event.listen(engine, "begin", begin)
    return closed_at_exit(engine)


def _ask(raw: Any, wait: str) -> dict[str, Any]:
    """Return what a new connection leads to; set how long it waits for locks, in milliseconds.

    A pooler gives another process id than that of the server's process, which changes with each
    transaction and keeps what is set for a session, whoever comes next. So the setting is made
    once where there is no pooler, and for each transaction where there is one: there that costs
    as much as a short read, and doing without prepared statements half of a long write.
    """
    # Not in a transaction, whose end might take the setting back.
    raw.autocommit = True
    with raw.cursor() as cursor:
        cursor.execute(
            "SELECT current_setting('server_encoding'), pg_is_in_recovery(),"
            " current_setting('transaction_read_only') = 'on', CASE WHEN pg_backend_pid() = %s"
            " THEN set_config('lock_timeout', %s, false) END",
            (raw.info.backend_pid, wait),
        )
        encoding, in_recovery, is_read_only, is_set = cursor.fetchone()
    raw.autocommit = False
    read_only = STANDBY if in_recovery else SET_READ_ONLY if is_read_only else ""
    return {"encoding": encoding, "read_only": read_only, "pooled": is_set is None}


def read_only_error(url: URL, why: str) -> ReadOnlyLedger:
    """Return the error of a command that has to write."""
    where = url.render_as_string(hide_password=True)
    return ReadOnlyLedger(
        f"ledger {where} is read-only: {why}. Reading commands work. To change something,"
        f" {_REMEDIES[why]}"
    )


def _refusal(url: URL, encoding: str) -> str:
    """Say that a database cannot be used, and how to make one that can.

    SQL_ASCII counts bytes as characters, the others lack characters that error messages have.
    """
    options = [("-h", url.host), ("-p", url.port), ("-U", url.username)]
    address = [word for name, value in options if value for word in (name, str(value))]
    name = f"{url.database or url.username}_utf8"
    command = ["createdb", *address, "-E", "UTF8", "-T", "template0", "--locale=C", name]
    where = url.render_as_string(hide_password=True)
    return (
        f"ledger {where} has the encoding {encoding}, and not every text fits into that. Make a"
        f" database with UTF8, and name it in VTJOBS_LEDGER: {shlex.join(command)}"
    )
