"""Keep a workspace going without anybody at a terminal.

The same pass as every command's, again and again.
"""

import fcntl
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime

from ...jobs.atomic_files import open_file
from ...jobs.errors import LedgerUnreachable, VtjobsError
from .context import Context
from .tick import Report, tick

# A ledger or a workspace that is away is asked again after this long, doubled each time up to the
# last.
BACK_OFF_S = (5.0, 300.0)


@contextmanager
def alone(context: Context) -> Iterator[None]:
    """Be the only supervisor of this workspace on this host.

    Two would do no harm, and no good either.

    Raises:
        VtjobsError: there is one already.
    """
    path = context.workspace.root / f"supervise-{socket.gethostname()}.lock"
    handle = open_file(path, os.O_RDWR)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise VtjobsError(
            f"another `vtjobs supervise` is running on this host (lock {path})"
        ) from None
    try:
        yield
    finally:
        os.close(handle)


def supervise(
    context: Context, stop: threading.Event, say: Callable[[str], None], *, every_s: float
) -> None:
    """Make passes until told to stop; nothing that goes wrong outside ends it."""
    context.be_patient()
    wait_s, last = every_s, ""
    while not stop.is_set():
        try:
            text = describe(tick(context))
            wait_s = every_s
        except (LedgerUnreachable, VtjobsError, OSError) as error:
            text = f"{type(error).__name__}: {error}"
            wait_s = min(BACK_OFF_S[1], max(BACK_OFF_S[0], wait_s * 2))
        if text and text != last:
            say(f"{datetime.now():%Y-%m-%d %H:%M:%S} {text}")
        last = text
        stop.wait(wait_s)


def describe(report: Report) -> str:
    """Say what a pass did, or "" where that was nothing."""
    counts = {
        "started": report.launched,
        "resubmitted": report.resubmitted,
        "ended without an end record": report.ended,
    }
    parts = [f"{number} {what}" for what, number in counts.items() if number]
    parts += report.away
    return "; ".join(parts + report.problems)
