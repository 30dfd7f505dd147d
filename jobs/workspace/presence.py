"""Whether a workspace is still the one that a process began to serve.

Whoever starts over deletes the folder or moves it away, often while something runs there. A process
of the old workspace would go on for ever, on files that nobody sees, and would serve the new one
beside its own.
"""

import errno
import os
import time
from pathlib import Path

from ..atomic_files import read_json
from ..errors import DamagedFile
from .paths import Workspace, WorkspaceUnreadable

# Seconds between two looks, each of which asks the file system once.
LOOK_S = 1.0
# For so many looks in a row the workspace must be deleted: a file server may be starting up.
PATIENCE = 3
# What the name of an open file begins with where a network or user file system deleted it.
DELETED = (".nfs", ".fuse_hidden")


class WorkspaceGone(WorkspaceUnreadable):
    """The workspace was deleted or moved, or another one lies in its place."""


class Presence:
    """Watches a workspace's identity file.

    It keeps the file open, to tell a file that was deleted or moved from one that cannot be seen.

    Args:
        workspace: of the process.
        every_s: seconds between two looks.

    Raises:
        WorkspaceGone: there is no identity file.
        WorkspaceUnreadable: it cannot be opened.
    """

    def __init__(self, workspace: Workspace, *, every_s: float = LOOK_S) -> None:
        self.workspace = workspace
        self.every_s = every_s
        try:
            self._held = os.open(workspace.identity, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise WorkspaceGone(f"workspace {workspace.root} was deleted") from None
        except OSError as error:
            message = f"workspace {workspace.root} cannot be read: {error}"
            raise WorkspaceUnreadable(message) from None
        self._id = _id(workspace)
        self._real_path = self._path()
        self._next_at = 0.0
        self._deleted_at: float | None = None
        """When it was first seen deleted or moved, and ever since."""
        self._gone = False

    def is_gone(self, *, at_once: bool = False) -> bool:
        """Whether the workspace was deleted or moved, or another one lies in its place.

        One whose file system does not answer, or is not mounted, counts as still there.

        Args:
            at_once: look now, however short ago the last look was.
        """
        now = time.monotonic()
        if not self._gone and (at_once or now >= self._next_at):
            self._next_at = now + self.every_s
            self._gone = self._look()
        return self._gone

    def is_there(self) -> bool:
        """Whether the workspace can be seen at its path: neither moved, nor unmounted, nor gone."""
        paths = (self.workspace.identity, self.workspace.identity_copy)
        try:
            return any(_stat(path) is not None for path in paths)
        except OSError:
            # The file system does not answer.
            return False

    def require(self, *, at_once: bool = False) -> None:
        """Refuse to go on without the workspace.

        Raises:
            WorkspaceGone: it is gone.
        """
        if self.is_gone(at_once=at_once):
            raise WorkspaceGone(f"workspace {self.workspace.root} was deleted, moved or replaced")

    def _look(self) -> bool:
        try:
            there = _stat(self.workspace.identity)
            if there is not None:
                self._deleted_at = None
                return self._is_another(there)
            if not self._is_deleted_or_moved():
                self._deleted_at = None
                return False
        except OSError:
            # The file system does not answer.
            return False
        now = time.monotonic()
        self._deleted_at = now if self._deleted_at is None else self._deleted_at
        return now - self._deleted_at >= PATIENCE * self.every_s

    def _is_another(self, there: os.stat_result) -> bool:
        held = self._held_stat()
        if held is not None and os.path.samestat(there, held):
            return False
        # A file that was restored from its copy is as good as the first one.
        found = _id(self.workspace)
        return found is not None and self._id is not None and found != self._id

    def _is_deleted_or_moved(self) -> bool:
        """Whether the open file was deleted or moved, and there is no copy to restore it from.

        Where only its file system was unmounted, it is at no other path.
        """
        if _stat(self.workspace.identity_copy) is not None:
            return False
        held, path = self._held_stat(), self._path()
        if held is None or held.st_nlink == 0 or path.name.startswith(DELETED):
            return True
        now = None if path == self._real_path else _stat(path)
        return now is not None and os.path.samestat(now, held)

    def _held_stat(self) -> os.stat_result | None:
        """Return what the file system knows of the open file; None: it no longer has it."""
        try:
            return os.fstat(self._held)
        except OSError as error:
            if error.errno != errno.ESTALE:
                raise
            return None

    def _path(self) -> Path:
        """Return where the open file is, as the kernel knows it."""
        return Path(os.readlink(f"/proc/self/fd/{self._held}"))


def _stat(path: Path) -> os.stat_result | None:
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None


def _id(workspace: Workspace) -> str | None:
    try:
        identity = read_json(workspace.identity)
    except (OSError, DamagedFile):
        return None
    return str(identity["id"]) if isinstance(identity, dict) and "id" in identity else None
