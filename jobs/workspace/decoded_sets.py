"""The decoded sets of images that a workspace keeps: what they take, and which may go.

A set is a folder of `decoded/`; its time of modification is that of its last use.
"""

import contextlib
import errno
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from ..values import Value

# A set that was used since then may be mapped by a run: on a network file system its pages go with
# the file.
IN_USE_S = 2 * 86400.0
UNUSED_S = 7 * 86400.0


class DecodedSet(Value, frozen=True, kw_only=True):
    """One kept set."""

    path: Path
    bytes: int
    """It takes on disk."""
    used_at: float
    """When a run last used it, seconds since 1970."""


def decoded_sets(folder: Path) -> list[DecodedSet]:
    """Return the kept sets, the one that was used longest ago first."""
    return sorted(_sets(folder), key=lambda kept: kept.used_at)


def _sets(folder: Path) -> Iterator[DecodedSet]:
    if not folder.is_dir():
        return
    for path in folder.iterdir():
        # Others may remove it meanwhile.
        with contextlib.suppress(FileNotFoundError):
            size = sum(file.stat().st_size for file in path.iterdir())
            yield DecodedSet(path=path, bytes=size, used_at=path.stat().st_mtime)


def unused(folder: Path, *, since_s: float = UNUSED_S) -> list[DecodedSet]:
    """Return the sets that no run has used for so many seconds."""
    return [kept for kept in decoded_sets(folder) if time.time() - kept.used_at > since_s]


def make_room(folder: Path, size: int, limit: int) -> None:
    """Remove sets that nobody uses until one of this size fits, the longest unused first.

    Args:
        folder: of the sets.
        size: of the new one, bytes.
        limit: what all may take, bytes.

    Raises:
        OSError: ENOSPC; it does not fit.
    """
    taken = sum(kept.bytes for kept in decoded_sets(folder)) + size
    for kept in unused(folder, since_s=IN_USE_S):
        if taken <= limit:
            break
        shutil.rmtree(kept.path, ignore_errors=True)
        taken -= kept.bytes
    if taken > limit:
        raise OSError(errno.ENOSPC, f"the limit of decoded_gib is reached ({folder})")


def touch(path: Path) -> None:
    """Say that a set is used."""
    with contextlib.suppress(OSError):
        os.utime(path)
