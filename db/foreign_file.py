"""SQLite files that belong to somebody else, and are only read."""

import contextlib
import fcntl
import os
import sqlite3
import struct
import time
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL

from .closing import closed_at_exit

# How long a reader waits for a log that is being opened.
OPENING_S = 2.0
# Offset and length of the bytes that SQLite locks while a file is read (its file format, os.h).
SHARED_BYTES = (0x40000002, 510)


def make_engine(url: URL, path: Path, *, busy_s: float) -> Engine:
    """Make the engine of a SQLite file that is only read.

    Args:
        url: of the database.
        path: of its file.
        busy_s: how long a statement waits for a lock, in seconds.
    """
    engine = create_engine(url, creator=lambda: Reader(str(path), busy_s))
    event.listen(engine, "begin", _begin_to_read)
    return closed_at_exit(engine)


def _begin_to_read(connection: Connection) -> None:
    """Begin, with the state that is going to be read.

    Its owner may be opening the file at this moment: the log is there before its index.
    """
    raw = connection.connection.dbapi_connection
    assert isinstance(raw, Reader)
    deadline = time.monotonic() + OPENING_S
    while time.monotonic() < deadline:
        try:
            raw.execute("BEGIN")
            # Nothing is read before the first statement.
            raw.execute("PRAGMA schema_version").fetchone()
            return
        except sqlite3.OperationalError:
            raw.rollback()
            time.sleep(0.01)
    connection.exec_driver_sql("BEGIN")


class Reader(sqlite3.Connection):
    """A connection that writes nothing, not even beside the file, where it might be allowed to.

    A log beside the file means that its owner has it open, or was killed: then only SQLite's own
    locks keep what is read whole. Without one nobody writes, and no companion may be created.
    """

    def __init__(self, path: str, busy_s: float) -> None:
        # SQLite's own shared lock, which lasts as long as this connection: who writes does not take
        # the log away between our look and SQLite's, which would make a new one.
        try:
            self._handle = os.open(path, os.O_RDONLY)
        except OSError as error:
            raise sqlite3.OperationalError(f"cannot be opened: {error.strerror}") from None
        lock = struct.pack("hhqqi", fcntl.F_RDLCK, os.SEEK_SET, *SHARED_BYTES, 0)
        # A file system without locks has none to hold: its readers take what they find.
        with contextlib.suppress(OSError):
            fcntl.fcntl(self._handle, fcntl.F_OFD_SETLKW, lock)
        mode = "mode=ro&readonly_shm=1" if Path(f"{path}-wal").exists() else "immutable=1"
        address = f"file:{quote(path)}?{mode}"
        # A pool hands it from thread to thread.
        super().__init__(
            address, uri=True, timeout=busy_s, isolation_level=None, check_same_thread=False
        )

    def close(self) -> None:
        try:
            super().close()
        finally:
            if self._handle >= 0:
                os.close(self._handle)
                self._handle = -1
