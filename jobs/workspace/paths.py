"""Every path of a workspace, and the claims and cancels that fence the attempts of a run."""

import contextlib
import grp
import os
import pwd
import re
import shlex
import socket
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..atomic_files import (
    is_shared,
    make_folder,
    open_file,
    read_cache,
    read_json,
    share_folder,
    to_json,
    touch_new,
    write_new,
)
from ..errors import BadInput, DamagedFile, VtjobsError
from ..values import Value

VERSION = 1
# A cancel or a granted try: the number of an attempt, and `-clean` where it starts from nothing.
_MARK = re.compile(r"([0-9]+)(-clean)?\Z")


class WorkspaceUnreadable(VtjobsError):
    """The workspace cannot be read: states are unknown and nothing was changed."""

    exit_code = 5


class NoWorkspace(WorkspaceUnreadable):
    """The folder is no workspace."""


class WorkspaceReadOnly(WorkspaceUnreadable):
    """The workspace is this user's and cannot be written: nothing was changed."""


class RunFolder(Value, frozen=True):
    """The paths of one run.

    Each is joined in one step: a look at a grid asks for thousands.
    """

    path: Path

    @property
    def spec(self) -> Path:
        return self.path / "spec.json"

    @property
    def workspace(self) -> "Workspace":
        return Workspace(self.path.parent.parent)

    @property
    def claims(self) -> Path:
        return self.path / "claims"

    @property
    def cancels(self) -> Path:
        return self.path / "cancels"

    @property
    def grants(self) -> Path:
        """Tries that the user granted.

        `0003` (attempts up to 3 no longer count) or `0003-clean`.
        """
        return self.path / "grants"

    @property
    def evaluations(self) -> Path:
        return self.path / "evaluations"

    def attempt(self, number: int) -> Path:
        return self.path / f"attempts/{number:04d}"

    def checkpoints(self, number: int) -> Path:
        return self.attempt(number) / "checkpoints"

    def checkpoint(self, number: int, step: int) -> Path:
        return self.checkpoints(number) / f"step-{step:09d}"

    def logs(self, number: int) -> Path:
        return self.attempt(number) / "logs"

    def journal(self, number: int, node: int) -> Path:
        return self.path / f"attempts/{number:04d}/journal-{node}.jsonl"

    def order(self, number: int) -> Path:
        """What node 0 lets the other nodes of an attempt know, so that they start their ranks."""
        return self.attempt(number) / "order.json"

    def key(self, number: int) -> Path:
        """What an attempt's ranks show each other to be let in."""
        return self.attempt(number) / "key"

    def highest_claim(self) -> int:
        """Return the highest attempt that ever started here, or 0."""
        return _highest(self.claims)

    def highest_cancel(self) -> int:
        """Return the highest attempt that was cancelled here, or 0."""
        return _highest(self.cancels)

    def claim(self, number: int) -> bool:
        """Take the run for this attempt; False where it or a higher one has been here."""
        make_folder(self.claims)
        # There from the start: a shared file system remembers for a while that a folder is missing.
        make_folder(self.cancels)
        if self.highest_claim() >= number:
            return False
        if not touch_new(self.claims / f"{number:04d}") or self.highest_claim() != number:
            return False
        self.withdraw()
        return True

    def offer(self) -> None:
        """Tell agents that look for work of a run that was submitted before: a try was granted, or
        one did not start. It holds until the next claim or cancel.

        So they need not look at every run of a grid. A hint alone: a pass needs none.
        """
        with contextlib.suppress(OSError, WorkspaceUnreadable):
            if not self._offer.parent.is_dir():
                # Where the file system is away, folders would be made at its path.
                self.workspace.check()
                make_folder(self._offer.parent)
            os.close(open_file(self._offer, os.O_WRONLY))

    def withdraw(self) -> None:
        """Take back what `offer` told."""
        with contextlib.suppress(OSError):
            self._offer.unlink(missing_ok=True)

    @property
    def _offer(self) -> Path:
        return self.workspace.offers / self.path.name

    def cancel(self, number: int) -> None:
        """Forbid every attempt up to this one to start or to go on."""
        touch_new(make_folder(self.cancels) / f"{number:04d}")
        self.withdraw()

    def all_grants(self) -> list[tuple[int, bool]]:
        """Return, oldest first, up to which attempt ends no longer count, and whether to start from
        nothing then.
        """
        # Of two at one number the one from nothing holds: going on would ignore what was asked for.
        return sorted((number, clean) for number, clean, _ in marks(self.grants))

    def attempts(self) -> list[int]:
        """Return the numbers of the attempts that left a folder."""
        return _numbers(self.path / "attempts")


def _is_identity(found: Any) -> bool:
    """Return whether what was read of an identity file is one."""
    names = {"id": str, "version": int, "ledger_host": str}
    return isinstance(found, dict) and all(
        isinstance(found.get(name), kind) for name, kind in names.items()
    )


def user_name(uid: int) -> str:
    """Return a user's name, or their number where the machine knows none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def marks(folder: Path) -> list[tuple[int, bool, Path]]:
    """Return the attempts that a folder has a mark of, whether it is `-clean`, and its path.

    What somebody's editor or NFS has left there is no mark.
    """
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    found = ((_MARK.match(name), name) for name in names)
    return [(int(match[1]), bool(match[2]), folder / name) for match, name in found if match]


def _numbers(folder: Path) -> list[int]:
    try:
        return sorted(int(name) for name in os.listdir(folder) if name.isascii() and name.isdigit())
    except FileNotFoundError:
        return []


def _highest(folder: Path) -> int:
    return max(_numbers(folder), default=0)


class Workspace(Value, frozen=True):
    """The folder that is the truth."""

    root: Path

    @property
    def identity(self) -> Path:
        return self.root / "workspace.json"

    @property
    def identity_copy(self) -> Path:
        """What the identity is restored from where it was removed."""
        return self.root / "workspace.copy.json"

    @property
    def grids(self) -> Path:
        return self.root / "grids"

    @property
    def allocations(self) -> Path:
        return self.root / "allocations"

    @property
    def offers(self) -> Path:
        """A file for each run that may be taken on though a scheduler was given it before."""
        return self.root / "offers"

    def offered(self) -> set[str]:
        """Return the runs that may be taken on though a scheduler was given them before."""
        try:
            return set(os.listdir(self.offers))
        except OSError:
            return set()

    @property
    def tags(self) -> Path:
        """What people put on grids and runs to select by, see jobs/workspace/tags.py."""
        return self.root / "tags.jsonl"

    @property
    def decoded(self) -> Path:
        """Decoded sets of images, which runs share."""
        return self.root / "decoded"

    def grid(self, grid_id: str) -> Path:
        return self.grids / grid_id

    def marker(self, grid_id: str, name: str) -> Path:
        return self.grid(grid_id) / f"{name}.json"

    def allocation(self, token: str) -> Path:
        return self.allocations / f"{token}.json"

    def unsent(self, token: str) -> Path:
        """What an agent could not submit: the command for it."""
        return self.allocations / f"{token}.unsent"

    def reach(self, backend: str) -> Path:
        """Whether a node reached its scheduler, as last seen."""
        return self.root / f"reach-{backend}.json"

    def agent_log(self, token: str, index: int, node: int) -> Path:
        return self.allocations / f"{token}-{index}-{node}.log"

    def local_queue(self) -> Path:
        return self.root / "local" / socket.gethostname()

    def run(self, run_id: str) -> RunFolder:
        return RunFolder(self.root / f"{run_id[:2]}/{run_id}")

    def run_ids(self) -> Iterator[str]:
        """Yield the ids of all runs that have a folder."""
        for shard in sorted(self.root.iterdir()):
            if len(shard.name) == 2 and shard.is_dir():
                yield from sorted(entry.name for entry in shard.iterdir() if len(entry.name) == 16)

    def create(self, *, group: str | None = None) -> "Workspace":
        """Make the workspace where there is none yet.

        Args:
            group: that shares a new one; None: its files are made as the umask says.

        Raises:
            BadInput: there is none, and the folder cannot be written.
            WorkspaceReadOnly: there is one, which cannot be written.
            WorkspaceUnreadable: its identity is lost.
        """
        try:
            # Not make_folder: a folder above it that a group shares does not share it by itself.
            self.root.mkdir(parents=True, exist_ok=True)
            if not self.identity.exists():
                if group is not None:
                    share_folder(self.root, group)
                self._write_identity()
            for folder in (self.grids, self.allocations):
                make_folder(folder)
            identity = self.check()
            if not self.identity_copy.exists() and self.is_owned():
                write_new(self.identity_copy, to_json(identity))
        except OSError as error:
            kind = WorkspaceReadOnly if self.identity.exists() else BadInput
            raise kind(
                f"workspace {self.root} is not writable: {error.strerror or error}"
            ) from None
        return self

    def _write_identity(self) -> None:
        """Give the folder an identity: the one that it had, or a new one.

        Raises:
            WorkspaceUnreadable: it had one that is lost. Its ledger would not know a new one.
        """
        had = read_cache(self.identity_copy)
        if not had and self.grids.is_dir() and any(self.grids.iterdir()):
            raise WorkspaceUnreadable(
                f"{self.root} holds grids but neither {self.identity.name} nor its copy"
                f" {self.identity_copy.name}. Restore one of them from a backup"
            )
        new = {
            "id": uuid.uuid4().hex,
            "version": VERSION,
            "ledger_host": socket.gethostname(),
        }
        write_new(self.identity, to_json(had or new))

    def is_shared(self, group: str | None = None) -> bool:
        """Whether a group shares the workspace: this one, or any."""
        if not is_shared(self.root):
            return False
        return group is None or self.root.stat().st_gid == grp.getgrnam(group).gr_gid

    def is_owned(self) -> bool:
        """Whether this user made the workspace."""
        return self.identity.stat().st_uid == os.geteuid()

    def is_ours(self) -> bool:
        """Whether this user made the workspace and may write it now."""
        return self.is_owned() and os.access(self.root, os.W_OK)

    def require_writable(self) -> None:
        """Refuse to go on where this user's own workspace cannot be written.

        Raises:
            WorkspaceReadOnly: with what to do.
        """
        if os.access(self.root, os.W_OK):
            return
        if os.statvfs(self.root).f_flag & os.ST_RDONLY:
            why = "its file system is mounted read-only. Commands that only read still work"
        else:
            why = f"its mode forbids it. Allow it with: chmod u+rwx {shlex.quote(str(self.root))}"
        raise WorkspaceReadOnly(f"workspace {self.root} cannot be written: {why}")

    def owner(self) -> str:
        """Return the name of the user who made the workspace."""
        return user_name(self.identity.stat().st_uid)

    def check(self) -> dict[str, str]:
        """Return the workspace's identity.

        Raises:
            NoWorkspace: there is no identity file.
            WorkspaceUnreadable: it cannot be read.
            BadInput: the workspace was written by a newer vtjobs.
        """
        try:
            identity = read_json(self.identity)
        except OSError as error:
            raise WorkspaceUnreadable(f"workspace {self.root} cannot be read: {error}") from None
        except DamagedFile:
            identity = ""
        if not _is_identity(identity) and self.identity_copy.exists():
            command = shlex.join(["cp", str(self.identity_copy), str(self.identity)])
            raise WorkspaceUnreadable(
                f"{self.identity} is missing or damaged. Restore it from its copy: {command}"
            )
        if identity is None:
            raise NoWorkspace(
                f"{self.root} is not a vtjobs workspace (no workspace.json). Is the file system "
                "mounted? Set VTJOBS_WORKSPACE or --workspace to use another one"
            )
        if not _is_identity(identity):
            raise WorkspaceUnreadable(
                f"workspace {self.root} cannot be read: {self.identity.name} is damaged"
            )
        if identity["version"] > VERSION:
            raise BadInput(f"workspace {self.root} was written by a newer vtjobs; upgrade vtjobs")
        return dict(identity)
