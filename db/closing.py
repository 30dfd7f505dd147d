"""Connections that are closed before a process ends."""

import atexit
import signal
import weakref

from sqlalchemy import Engine

_open: "weakref.WeakSet[Engine]" = weakref.WeakSet()


def closed_at_exit(engine: Engine) -> Engine:
    """Return the engine, whose idle connections are closed when the process ends.

    The last process that closes a SQLite file writes its log back. Commands leave the interpreter
    no time to find connections among its garbage.
    """
    _open.add(engine)
    return engine


@atexit.register
def _close() -> None:
    # A Ctrl-C at this moment could only leave a log beside its file.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for engine in list(_open):
        engine.dispose()
