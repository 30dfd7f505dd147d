"""Submissions that an agent leaves to others: `allocations/<token>.unsent`.

The scheduler did not take them, or they wait until an allocation to which they gave way has begun.
"""

import time
from pathlib import Path

from ..atomic_files import read_json
from ..documents import Document, from_plain
from ..errors import DamagedFile
from .allocation import read_allocation
from .paths import Workspace

# A scheduler takes what was freed for a job within seconds. One that has not by then has no use
# for it, and Ray gives the job up.
GIVEN_S = 900.0


class Unsent(Document, frozen=True, kw_only=True):
    """What such a file says."""

    backend: str
    command: list[str]
    """What submits it."""
    gives_way_to: str = ""
    """The allocation that is to begin first, or nothing."""


def read_unsent(path: Path) -> Unsent | None:
    """Return what a file says; None where it is gone or damaged."""
    try:
        data = read_json(path)
        return None if data is None else from_plain(data, Unsent)
    except (DamagedFile, ValueError):
        return None


def gives_way_to(workspace: Workspace, token: str) -> str | None:
    """Return the allocation that is to begin before this one is submitted; None: there is none."""
    path = workspace.unsent(token)
    try:
        since = path.stat().st_mtime
    except FileNotFoundError:
        return None
    content = read_unsent(path)
    if content is None or not content.gives_way_to or time.time() - since >= GIVEN_S:
        return None
    return content.gives_way_to if waits(workspace, content.gives_way_to) else None


def waits(workspace: Workspace, token: str) -> bool:
    """Return whether an allocation still has to begin: somebody wants it, and nothing of it runs.

    It has begun with the first of its runs that is claimed.
    """
    try:
        allocation = read_allocation(workspace.allocation(token))
    except DamagedFile:
        return False
    if allocation is None:
        return False
    folders = [(workspace.run(task.run_id), task.attempt) for task in allocation.all_tasks]
    if any(folder.highest_claim() >= number for folder, number in folders):
        return False
    return any(folder.highest_cancel() < number for folder, number in folders)
