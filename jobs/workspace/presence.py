"""Whether a workspace is still the one that a process began to serve.

Who starts over removes the folder, often while something runs there. A process of the old workspace
would go on for ever, on files that nobody sees, and would serve the new one beside its own.
"""

import errno
import os
import time

from ..atomic_files import read_json
from ..errors import DamagedFile
from .paths import Workspace, WorkspaceUnreadable

# Seconds between two looks, each of which asks the file system once.
LOOK_S = 5.0


class WorkspaceGone(WorkspaceUnreadable):
    """The workspace was deleted, or another one lies in its place."""


class Presence:
    """Watches a workspace's identity file, which it keeps open.

    Args:
        workspace: of the process.
        every_s: seconds between two looks.

    Raises:
        OSError: there is no identity file, or it cannot be read.
    """

    def __init__(self, workspace: Workspace, *, every_s: float = LOOK_S) -> None:
        self.workspace = workspace
        self.every_s = every_s
        self._held = os.open(workspace.identity, os.O_RDONLY | os.O_CLOEXEC)
        self._id = _id(workspace)
        self._next_at = 0.0
        self._gone = False

    def is_gone(self) -> bool:
        """Whether the workspace was deleted, or another one lies in its place.

        A file system that does not answer, or is not mounted, says neither.
        """
        now = time.monotonic()
        if not self._gone and now >= self._next_at:
            self._next_at = now + self.every_s
            self._gone = self._look()
        return self._gone

    def require(self) -> None:
        """Refuse to go on without the workspace.

        Raises:
            WorkspaceGone: it is gone.
        """
        if self.is_gone():
            raise WorkspaceGone(f"workspace {self.workspace.root} was deleted or replaced")

    def _look(self) -> bool:
        try:
            if os.path.samestat(os.stat(self.workspace.identity), os.fstat(self._held)):
                return False
        except FileNotFoundError:
            return self._is_deleted() and not self.workspace.identity_copy.exists()
        except OSError:
            return False
        # A file that was restored from its copy is as good as the first one.
        found = _id(self.workspace)
        return found is not None and found != self._id

    def _is_deleted(self) -> bool:
        # Where it was only moved, or its file system unmounted, the open file keeps its name.
        try:
            return os.fstat(self._held).st_nlink == 0
        except OSError as error:
            return error.errno == errno.ESTALE


def _id(workspace: Workspace) -> str | None:
    try:
        identity = read_json(workspace.identity)
    except (OSError, DamagedFile):
        return None
    return str(identity["id"]) if isinstance(identity, dict) and "id" in identity else None
