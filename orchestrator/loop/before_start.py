"""What a job said that ended before its agent began: the set-up on its node failed."""

import os
from pathlib import Path

from ..backends.base import JobView

# So much of the end of a log is kept.
MOST_BYTES = 4000


def words_before_start(log: Path, view: JobView) -> str:
    """Return what such a job printed, its last line first: that is what tables show of it.

    Args:
        log: of the job.
        view: its end, with the node that is to blame.
    """
    said = [line.strip() for line in _end_of(log).splitlines() if line.strip()]
    if not said:
        # A node that cannot write the log has no other way to say so.
        said = [f"nothing was printed. Is {log.parent} there? ({view.raw})"]
    return "\n".join([f"before vtjobs started on {view.node}: {said[-1]}", *said])


def _end_of(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - MOST_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""
