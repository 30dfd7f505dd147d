"""From a URL to a checked connection: pragmas, locks, network file systems, schema version."""

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

from sqlalchemy import Connection as Connection
from sqlalchemy import Engine, create_engine, event, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, OperationalError

from ..jobs.atomic_files import make_folder
from ..jobs.errors import BadInput, LedgerUnreachable, VtjobsError
from . import foreign_file, postgres
from .closing import closed_at_exit

# The newest file in migrations/versions; a test holds it against alembic's own head.
SCHEMA_VERSION = "0007"

BUSY_TIMEOUT_S = 30

# PostgreSQL's advisory lock that a writer holds until its transaction ends.
WRITER_LOCK = 7089301

# File systems that several hosts may share: SQLite's locks and shared memory do not work there.
NETWORK_FILE_SYSTEMS = frozenset(
    (
        "nfs",
        "nfs4",
        "lustre",
        "gpfs",
        "cifs",
        "smb2",
        "smb3",
        "smbfs",
        "beegfs",
        "ceph",
        "afs",
        "panfs",
        "fuseblk",
        "glusterfs",
        "9p",
        "wekafs",
        "orangefs",
        "pvfs2",
    )
)


class NewerLedger(VtjobsError):
    """The ledger was written by a newer vtjobs."""

    exit_code = 2


class OlderLedger(VtjobsError):
    """The ledger has an older schema."""

    exit_code = 2


def parse_url(text_: str) -> URL:
    """Read a ledger URL.

    `postgres://` and `postgresql://` mean psycopg 3, a bare path means SQLite.

    Raises:
        BadInput: it cannot be read. The message never holds the password.
    """
    if "://" not in text_:
        return URL.create("sqlite", database=os.path.abspath(os.path.expanduser(text_)))
    try:
        url = make_url(text_)
    except (ArgumentError, ValueError):
        raise BadInput(
            "ledger: cannot parse the URL; write postgresql://user@host/name or sqlite:////path"
        ) from None
    if url.drivername in ("postgres", "postgresql"):
        url = url.set(drivername="postgresql+psycopg")
    if url.drivername not in ("sqlite", "postgresql+psycopg"):
        raise BadInput(f"ledger: {url.drivername} is not supported; use sqlite or postgresql")
    return url


def file_system_of(path: Path) -> str:
    """Return the type of the file system that holds `path` or its nearest existing parent."""
    folder = path.absolute()
    while not folder.exists():
        folder = folder.parent
    folder = folder.resolve()
    best, kind = "", ""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as mounts:
        for line in mounts:
            left, _, right = line.partition(" - ")
            mount = left.split(" ")[4].replace("\\040", " ")
            if (folder == Path(mount) or Path(mount) in folder.parents) and len(mount) >= len(best):
                best, kind = mount, right.split(" ")[0]
    return kind


def is_network(kind: str) -> bool:
    """Whether a file system type may be shared between hosts."""
    return kind in NETWORK_FILE_SYSTEMS or kind.startswith("fuse.")


def refuse_network(path: Path, kind: str) -> None:
    """Refuse to keep SQLite on a file system that hosts share.

    Raises:
        BadInput: with the reason and the way out.
    """
    if is_network(kind):
        raise BadInput(
            f"ledger {path} is on {kind}: SQLite is unsafe there (its locks and shared memory need"
            " one host). Set VTJOBS_LEDGER to a path on a local disk or to a postgresql:// URL"
        )


def open_engine(url: URL, *, read_only: bool = False) -> Engine:
    """Make the engine of a ledger.

    Args:
        url: of the database.
        read_only: whether a SQLite file is opened so that nothing is written, not even beside it.

    Raises:
        BadInput: a SQLite file on a network file system.
    """
    if url.drivername == "sqlite":
        path = Path(str(url.database))
        refuse_network(path, file_system_of(path))
        if read_only:
            return foreign_file.make_engine(url, path, busy_s=BUSY_TIMEOUT_S)
        make_folder(path.parent)
        engine = create_engine(url, connect_args={"timeout": BUSY_TIMEOUT_S})
        event.listen(engine, "connect", _sqlite_connect)
        event.listen(engine, "begin", _sqlite_begin)
        return closed_at_exit(engine)
    return postgres.make_engine(url, busy_s=BUSY_TIMEOUT_S)


def _sqlite_connect(connection: object, _: object) -> None:
    # Transactions are begun by the hook below: sqlite3's own begin comes too late to be immediate.
    connection.isolation_level = None  # type: ignore[attr-defined]
    cursor = connection.cursor()  # type: ignore[attr-defined]
    _use_wal(cursor)
    # FULL: a transition that was acknowledged survives a power cut.
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.execute("PRAGMA temp_store=MEMORY")
    cursor.close()


def _use_wal(cursor: sqlite3.Cursor) -> None:
    """Switch the file to write-ahead logging, waiting for whoever does the same."""
    # SQLite does not wait for a lock in this one statement, whatever the time-out: two first
    # commands at once.
    deadline = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            cursor.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _sqlite_begin(connection: Connection) -> None:
    # A deferred transaction that reads and then writes fails at once when another writer was
    # faster.
    write = connection.get_execution_options().get("vtjobs_write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


@contextlib.contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """Give a connection for reading."""
    with translated(engine), engine.connect() as connection:
        yield connection


@contextlib.contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """Give a connection in one write transaction; it is committed when the block ends well.

    One writer at a time on both databases: what a state is derived from cannot change before the
    state is written, and no two writers can deadlock.
    """
    with (
        translated(engine),
        engine.connect().execution_options(vtjobs_write=True) as connection,
        connection.begin(),
    ):
        if engine.dialect.name == "postgresql":
            connection.execute(text(f"SELECT pg_advisory_xact_lock({WRITER_LOCK})"))
        yield connection


@contextlib.contextmanager
def translated(engine: Engine) -> Iterator[None]:
    """Turn a database that is away or busy into LedgerUnreachable."""
    try:
        yield
    except DBAPIError as error:
        if (known := _explained(engine, error)) is not None:
            raise known from None
        raise


def _where(engine: Engine) -> str:
    """Return what a command ends with that means the workspace of this ledger."""
    return str(engine.get_execution_options().get("vtjobs_where", ""))


def _explained(engine: Engine, error: DBAPIError) -> VtjobsError | None:
    """Say what a database's error means for the user, or None where it is a mistake of ours."""
    reason = str(error.orig).strip().split("\n")[0]
    where = engine.url.render_as_string(hide_password=True)
    code = getattr(error.orig, "sqlstate", None)
    if "malformed" in reason or "not a database" in reason:
        return VtjobsError(
            f"ledger {where} is damaged ({reason}). Rebuild it with:"
            f" vtjobs ledger rebuild{_where(engine)}"
        )
    if "locked" in reason or code == postgres.LOCK_TIMEOUT:
        holders = (
            _holders(Path(str(engine.url.database))) if engine.dialect.name == "sqlite" else ""
        )
        return LedgerUnreachable(
            f"ledger {where} is busy: locked for over {BUSY_TIMEOUT_S} s{holders}. Try again"
        )
    if "no such table" in reason or code == postgres.NO_TABLE:
        return VtjobsError(
            f"ledger {where} has no tables. Run: vtjobs ledger rebuild{_where(engine)}"
        )
    if code == postgres.READ_ONLY:
        return _read_only_error(engine)
    if (
        isinstance(error, OperationalError)
        or error.connection_invalidated
        or code == postgres.NO_PERMISSION
    ):
        return LedgerUnreachable(f"ledger unreachable at {where}: {reason}")
    return None


def _read_only_error(engine: Engine) -> LedgerUnreachable:
    # The next connection may lead to another server than those that were open.
    engine.dispose()
    try:
        require_writable(engine)
    except LedgerUnreachable as error:
        return error
    where = engine.url.render_as_string(hide_password=True)
    return LedgerUnreachable(f"ledger {where} was read-only a moment ago. Try again")


def why_read_only(engine: Engine) -> str:
    """Return why the server takes no changes at present, or ""."""
    if engine.dialect.name != "postgresql":
        return ""
    with reading(engine) as connection:
        return str(connection.info["read_only"])


def require_writable(engine: Engine) -> None:
    """Refuse to go on where nothing can be written.

    Raises:
        ReadOnlyLedger: with the reason and what to do.
    """
    if why := why_read_only(engine):
        raise postgres.read_only_error(engine.url, why)


def _holders(path: Path) -> str:
    """Name the processes that have the file open, where /proc tells."""
    found, real = [], os.path.realpath(path)
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if any(os.readlink(link) == real for link in (process / "fd").iterdir()):
                found.append(process.name)
        except OSError:
            continue
    mine = str(os.getpid())
    others = [pid for pid in found if pid != mine]
    return f" by process {', '.join(others)}" if others else ""


def schema_version(engine: Engine) -> str | None:
    """Return the ledger's schema version, or None where it is empty."""
    if engine.url.drivername == "sqlite" and not Path(str(engine.url.database)).exists():
        return None
    with translated(engine), engine.connect() as connection:
        if not engine.dialect.has_table(connection, "alembic_version"):
            return None
        found = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
        return str(found) if found else None


def check_schema(engine: Engine) -> bool:
    """Check that this vtjobs can use the ledger; return False where it is empty.

    Raises:
        OlderLedger, NewerLedger: with what to do.
    """
    found = schema_version(engine)
    if found is None:
        return False
    if found > SCHEMA_VERSION:
        raise NewerLedger(
            f"the ledger (schema {found}) was written by a newer vtjobs; upgrade vtjobs"
        )
    if found < SCHEMA_VERSION:
        needs = f"this vtjobs needs {SCHEMA_VERSION}. Run: vtjobs ledger upgrade{_where(engine)}"
        raise OlderLedger(f"the ledger has schema {found}, {needs}")
    return True


def wait_for(engine: Engine, seconds: float) -> None:
    """Wait until the database answers, at most so long."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            with reading(engine) as connection:
                connection.execute(text("SELECT 1"))
            return
        except LedgerUnreachable:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)
