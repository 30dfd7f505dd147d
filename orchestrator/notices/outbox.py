"""The outbox: what somebody is to be told, and whom it has reached.

It lies in the workspace as files, so that no kill loses a notice:

- `notices/since/ADDRESS`: what happened before is not told to the address;
- `notices/new/NOTICE.json`: something that happened, made once, whoever sees it first;
- `notices/sent/ADDRESS/NOTICE`: it has reached the address;
- `notices/tried/ADDRESS.json`: the last try;
- `notices/sender`: who is sending now.

A sender that is killed after a message left and before that is put down sends it again: nothing is
lost, and at most one message is told twice.
"""

import hashlib
import math
import os
import socket
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from ...jobs.atomic_files import make_folder, read_cache, to_json, touch_new, write_new, write_over
from ...jobs.documents import Document, Unfit, from_plain, to_plain
from ...jobs.workspace.paths import Workspace

T = TypeVar("T")
# A claim that is older belongs to a sender that is gone: none takes that long.
CLAIM_S = 180.0
# Seconds until an address that could not be reached is tried again, doubled up to the last.
BACK_OFF_S = (60.0, 3600.0)


class Notice(Document, frozen=True, kw_only=True):
    """Something that happened, in a sentence."""

    key: str
    """The same for whoever sees it; a file's name."""
    kind: str
    """finish, fail, breaker or stall."""
    grid_id: str
    run_id: str | None = None
    at: float
    """Seconds since 1970."""
    text: str


class Tried(Document, frozen=True, kw_only=True):
    """The last try to reach an address."""

    at: float
    """Seconds since 1970."""
    failures: int = 0
    """In a row."""
    error: str = ""
    """Why it failed, without a secret."""
    host: str = ""


class Outbox:
    """The notices of a workspace."""

    def __init__(self, workspace: Workspace) -> None:
        self.folder = workspace.root / "notices"

    def begin(self, addresses: Iterable[str], now: float) -> float:
        """Note since when each address is told; return the earliest time."""
        make_folder(self.folder / "since")
        found = []
        for address in addresses:
            path = self.folder / "since" / _name(address)
            if not path.exists():
                write_new(path, to_json({"at": now}))
            if math.isinf(self._since(address)):
                # It is damaged: better from now on than never, or than everything anew.
                write_over(path, to_json({"at": now}))
            found.append(self._since(address))
        return min(found, default=now)

    def add(self, notices: Iterable[Notice]) -> None:
        """Put down what has happened; a notice that is there already stays as it is."""
        folder = make_folder(self.folder / "new")
        # One look for all: a pass brings every failure since the address was named.
        known = set(_listed(folder))
        for notice in notices:
            name = f"{notice.key}.json"
            if name not in known:
                write_new(folder / name, to_json(to_plain(notice)))

    def open_notices(self, address: str) -> list[Notice]:
        """Return what an address has not been told yet, the oldest first."""
        sent = set(_listed(self.folder / "sent" / _name(address)))
        found = [
            _read(self.folder / "new" / name, Notice)
            for name in _listed(self.folder / "new")
            if name.endswith(".json") and name.removesuffix(".json") not in sent
        ]
        since = self._since(address)
        fresh = (one for one in found if one is not None and one.at > since)
        return sorted(fresh, key=lambda one: (one.at, one.key))

    def put_down(self, address: str, notices: Iterable[Notice], tried: Tried) -> None:
        """Note the outcome of a try.

        Args:
            address: that was tried.
            notices: those that reached it.
            tried: how it went.
        """
        folder = make_folder(self.folder / "sent" / _name(address))
        for notice in notices:
            touch_new(folder / notice.key)
        write_over(
            make_folder(self.folder / "tried") / f"{_name(address)}.json", to_json(to_plain(tried))
        )

    def tried(self, address: str) -> Tried | None:
        """Return the last try to reach an address."""
        return _read(self.folder / "tried" / f"{_name(address)}.json", Tried)

    def is_due(self, address: str, now: float, every_s: float) -> bool:
        """Whether an address may be tried now: not too often, and later each time it fails."""
        last = self.tried(address)
        if last is None:
            return True
        wait = min(BACK_OFF_S[1], BACK_OFF_S[0] * 2 ** (last.failures - 1))
        return now >= last.at + (wait if last.failures else every_s)

    @contextmanager
    def claimed(self, now: float) -> Iterator[bool]:
        """Be the only sender; False where another one is at work."""
        path = make_folder(self.folder) / "sender"
        own = to_json({"host": socket.gethostname(), "pid": os.getpid(), "id": uuid.uuid4().hex})
        with suppress(FileNotFoundError):
            if now - path.stat().st_mtime > CLAIM_S:
                gone = path.with_name(f"sender-{uuid.uuid4().hex}")
                os.rename(path, gone)
                if now - gone.stat().st_mtime <= CLAIM_S:
                    # Another one was faster: what was moved is its own claim.
                    with suppress(FileExistsError):
                        os.link(gone, path)
                gone.unlink()
        if not write_new(path, own):
            yield False
            return
        try:
            yield True
        finally:
            with suppress(FileNotFoundError):
                if path.read_bytes() == own:
                    path.unlink()

    def _since(self, address: str) -> float:
        """Return since when an address is told: never, where that is not noted."""
        found = read_cache(self.folder / "since" / _name(address)).get("at")
        return float(found) if isinstance(found, int | float) else math.inf


def _name(address: str) -> str:
    """Return an address as a file's name, from which no secret can be read."""
    return hashlib.sha256(address.encode()).hexdigest()[:16]


def _read(path: Path, kind: type[T]) -> T | None:
    """Return what a file holds, or None where it is missing or damaged: no pass fails for it."""
    try:
        return from_plain(read_cache(path), kind)
    except Unfit:
        return None


def _listed(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []
