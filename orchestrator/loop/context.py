"""A workspace, its ledger and its backends, opened together."""

import os
import shlex
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...db.engine import (
    file_system_of,
    is_network,
    open_engine,
    parse_url,
    require_writable,
    why_read_only,
)
from ...db.ledger import Ledger
from ...db.refill import require_whole
from ...jobs.atomic_files import make_private_folder
from ...jobs.config.backends import part
from ...jobs.config.config import Config
from ...jobs.errors import BadInput, LedgerUnreachable, Problem
from ...jobs.workspace.paths import Workspace, WorkspaceUnreadable
from ...jobs.workspace.stored_grid import grid_ids
from ..backends.base import Backend

# How long a scheduler's answer is waited for where nobody is waiting for ours.
PATIENCE_S = 30.0

Clock = Callable[[], float]


@dataclass(slots=True)
class Context:
    """What every operation works on."""

    config: Config
    workspace: Workspace
    ledger: Ledger
    clock: Clock = time.time
    patient: bool = False
    workspace_id: str = ""
    """As it was when this was opened."""
    is_owner: bool = True
    """Whether the workspace is this user's and may be written now; if not, it is only read."""
    keeps_ledger: bool = True
    """Whether the ledger is this user's to write, and can be written."""
    read_only: str = ""
    """Why the ledger's server takes no changes, or ""."""
    _backends: dict[str, Backend] = field(default_factory=dict)

    @property
    def where(self) -> str:
        """What a command that is printed ends with, see `Config.where`."""
        return self.config.where

    def backend(self, name: str) -> Backend:
        """Return a backend by its name."""
        if name not in self._backends:
            self._backends[name] = make_backend(name, self.config, clock=self.clock)
            if self.patient:
                self._backends[name].look_s = PATIENCE_S
        return self._backends[name]

    def part(self, name: str, site: Mapping[str, Any]) -> str:
        """Return what can be away by itself: a backend, or the cluster of it that a site names."""
        return part_name(name, self.backend(name).cluster(site))

    def be_patient(self) -> None:
        """Wait longer for schedulers' answers: nobody sits at the terminal for this one."""
        self.patient = True
        for backend in self._backends.values():
            backend.look_s = PATIENCE_S


def part_name(backend: str, cluster: str) -> str:
    """Return how a cluster of a backend is called; or the backend, where it has no several."""
    return f"{backend} at {cluster}" if cluster else backend


def require_workspace(context: Context) -> None:
    """Refuse to go on where the workspace is no longer the one that was opened.

    Unmounted, or replaced.

    Raises:
        WorkspaceUnreadable: states are unknown, nothing was changed.
    """
    found = context.workspace.check()["id"]
    if found != context.workspace_id:
        raise WorkspaceUnreadable(
            f"{context.workspace.root} is now a different workspace ({found}); nothing was changed"
        )


def ledger_url(config: Config, identity: dict[str, str]) -> str:
    """Return where the ledger of a workspace is.

    Raises:
        BadInput: the default ledger lives on another host.
    """
    if config.get("ledger"):
        return str(config.get("ledger"))
    root = config.workspace.root
    if not is_network(file_system_of(root)):
        return str(root / "ledger.sqlite")
    if identity["ledger_host"] != socket.gethostname():
        raise BadInput(
            f"the ledger of {root} is on host {identity['ledger_host']}. Work there, or keep the"
            " ledger in PostgreSQL and set VTJOBS_LEDGER to its URL on every host"
        )
    return str(state_folder() / f"{identity['id']}.sqlite")


def state_folder() -> Path:
    """Return this user's folder on this machine for ledgers that no workspace can hold."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return make_private_folder(Path(state) / "vtjobs")


def make_backend(name: str, config: Config, *, clock: Clock = time.time) -> Backend:
    """Make the backend of this name.

    Raises:
        BadInput: there is no such backend.
    """
    module = part(name, "backend")
    if module is None:
        raise BadInput(f"backend {name}: its package has no module named backend")
    made: Backend = module.make(config, clock=clock)
    return made


def open_context(
    config: Config, *, create: bool = False, to_read: bool = False, clock: Clock = time.time
) -> Context:
    """Open what the configuration names.

    Args:
        config: the settings.
        create: make workspace and ledger where there are none.
        to_read: whether nothing is to be changed, so that a workspace of somebody else will do.
        clock: gives the time.

    Raises:
        WorkspaceUnreadable, BadInput, LedgerUnreachable: see Workspace.check, require_ours and
            Ledger.open; also where nobody may write the ledger, and `to_read` is not set.
    """
    workspace = config.workspace
    if config.get("ledger"):
        parse_url(str(config.get("ledger")))
    if create:
        _require_server(config)
        workspace.create(group=config.get("group"))
    identity = workspace.check()
    is_owner = workspace.is_ours()
    if not to_read:
        require_ours(config)
    url = ledger_url(config, identity)
    if "://" not in url and not Path(url).exists():
        if to_read and not is_owner and Path(url).parent == workspace.root:
            raise LedgerUnreachable(
                f"the ledger {url} is not there. {workspace.owner()}, whose workspace it is, makes"
                " it with: vtjobs ledger rebuild"
            )
        from ...db.rebuild import make_ledger

        # A lost ledger is made anew from the workspace, which is the truth.
        make_ledger(Path(url), workspace, workspace_id=identity["id"], clock=clock)
    keeps_ledger = is_owner or _is_mine(url)
    # One without tables is a lost one where the workspace has grids.
    is_lost = keeps_ledger and bool(grid_ids(workspace))
    ledger = Ledger.open(
        url,
        workspace_id=identity["id"],
        create=create or is_lost,
        read_only=to_read and not keeps_ledger,
        where=config.where,
        clock=clock,
    )
    if not to_read:
        require_writable(ledger.engine)
    read_only = why_read_only(ledger.engine)
    # A standby may be behind its primary, and cannot be filled.
    if not read_only:
        require_whole(ledger, workspace, may_fill=keeps_ledger, where=config.where)
    return Context(
        config,
        workspace,
        ledger,
        clock,
        workspace_id=identity["id"],
        is_owner=is_owner,
        keeps_ledger=keeps_ledger and not read_only,
        read_only=read_only,
    )


def _require_server(config: Config) -> None:
    """Refuse to begin a workspace whose ledger's server is away or takes nothing."""
    url = str(config.get("ledger") or "")
    if "://" not in url or config.workspace.identity.exists():
        return
    engine = open_engine(parse_url(url))
    try:
        require_writable(engine)
    finally:
        engine.dispose()


def require_ours(config: Config) -> None:
    """Refuse to change a workspace of somebody else, or one that is not shared as configured.

    Raises:
        WorkspaceReadOnly: it is this user's, and cannot be written.
        BadInput: with what to do.
    """
    workspace = config.workspace
    if workspace.is_owned():
        workspace.require_writable()
    # A group's members could write. They read: the agents and the ledger are the owner's.
    elif workspace.is_shared() or not os.access(workspace.root, os.W_OK):
        raise BadInput(
            f"workspace {workspace.root} belongs to {workspace.owner()}, and you may not write"
            " there. Choose a workspace of your own with --workspace"
        )
    group = config.get("group")
    if group is not None and not workspace.is_shared(group):
        root = shlex.quote(str(workspace.root.resolve()))
        fix = (
            f"Share it: chgrp -R {shlex.quote(group)} {root}"
            f" && find {root} -type d -exec chmod 2770 {{}} +"
            f" && find {root} -type f -exec chmod 660 {{}} +"
        )
        message = f"the workspace {workspace.root} is not shared with {group!r} yet"
        origin = config.settings["group"].origin
        raise BadInput(Problem(file=origin, key="group", message=message, fix=fix))


def _is_mine(url: str) -> bool:
    """Whether a ledger is a file of this user's, where it may write."""
    if "://" in url:
        return False
    path = Path(url)
    return path.stat().st_uid == os.geteuid() and os.access(path.parent, os.W_OK)
