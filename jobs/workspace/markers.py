"""The markers of a grid that keep its runs from starting.

Dispatch and queued agents obey them alike.

<grid>/hold.json      {"runs": [...]}                    the user holds these runs
<grid>/canary.json    {"runs": [...], "passed": bool}    only these may start until each has passed
its first epoch <grid>/breaker.json   {"class", "signature", "message", "runs"}     the same
deterministic failure came too often
"""

import contextlib
from collections.abc import Callable, Iterable
from enum import Enum, auto
from functools import cache
from pathlib import Path
from typing import Any

from ..atomic_files import read_mapping, to_json, write_new
from ..errors import DamagedFile
from ..values import Value
from .lineage import read_attempt
from .paths import Workspace


class Marker(Enum):
    """What keeps a run of a grid from starting."""

    HOLD = auto()
    """The user holds the run."""
    BREAKER = auto()
    """Too many runs of the grid failed in the same deterministic way."""
    CANARY = auto()
    """The canary runs of the grid have not passed their first epoch yet."""


class Closed(Value, frozen=True):
    """Why a run must not start, for programs and for people."""

    marker: Marker
    text: str


class Markers:
    """A grid's markers, read once."""

    def __init__(
        self,
        *,
        held: Iterable[str] = (),
        shut: Closed | None = None,
        first: Iterable[str] = (),
        waits: Callable[[], bool] = lambda: False,
    ) -> None:
        """Take in what the markers say.

        Args:
            held: the runs that the user holds.
            shut: why none may start.
            first: the runs of the canary.
            waits: whether the others wait for these.
        """
        self.held = frozenset(held)
        self._shut, self._first, self._waits = shut, frozenset(first), cache(waits)

    @property
    def is_shut(self) -> bool:
        """Whether no run may start, of the canary neither."""
        return self._shut is not None

    @property
    def only(self) -> frozenset[str] | None:
        """The runs that alone may start, where they are not held; None: all."""
        if self._shut is not None:
            return frozenset()
        return self._first if self._waits() else None

    def __call__(self, run_id: str) -> Closed | None:
        """Return why a run must not start; None: it may."""
        if run_id in self.held:
            return Closed(Marker.HOLD, "held")
        if self._shut is not None:
            return self._shut
        if run_id not in self._first and self._waits():
            return Closed(Marker.CANARY, "waits for the canary")
        return None


def closed(workspace: Workspace, grid_id: str) -> Markers:
    """Read a grid's markers; return what says why one of its runs must not start."""
    try:
        hold = read_marker(workspace, grid_id, "hold")
        canary = read_marker(workspace, grid_id, "canary")
        breaker = read_marker(workspace, grid_id, "breaker")
    except DamagedFile as error:
        # Whatever it said, a release is the way to say otherwise.
        return Markers(shut=Closed(Marker.BREAKER, str(error)))
    first = frozenset(canary.get("runs", ()))
    shut = None
    if breaker:
        cause = breaker.get("message") or breaker.get("signature", "")
        shut = Closed(Marker.BREAKER, f"circuit breaker: {cause}")

    def waits() -> bool:
        # Nobody may have made a pass since the canary's first epochs.
        return bool(first) and not canary.get("passed") and not _have_trained(workspace, first)

    return Markers(held=hold.get("runs", ()), shut=shut, first=first, waits=waits)


def trip(
    workspace: Workspace,
    grid_id: str,
    *,
    failure: str,
    signature: str,
    message: str,
    runs: Iterable[str],
) -> None:
    """Let no further run of a grid start, because these failed alike; no change where none may."""
    content = {"class": failure, "signature": signature, "message": message, "runs": list(runs)}
    write_new(workspace.marker(grid_id, "breaker"), to_json(content))


def held_runs(workspace: Workspace, grid_ids: Iterable[str]) -> set[str]:
    """Return the runs that the hold markers of these grids name."""
    found: set[str] = set()
    for grid_id in grid_ids:
        with contextlib.suppress(DamagedFile):
            found |= set(read_marker(workspace, grid_id, "hold").get("runs", ()))
    return found


def _have_trained(workspace: Workspace, run_ids: Iterable[str]) -> bool:
    """Whether each of these runs has finished an epoch, as far as the journals can be read."""
    try:
        return all(
            any(read_attempt(folder, number).epochs for number in folder.attempts())
            for folder in map(workspace.run, run_ids)
        )
    except OSError:
        return False


def damaged_markers(workspace: Workspace, grid_id: str) -> list[Path]:
    """Return those of a grid's markers that cannot be read."""
    found: list[Path] = []
    for name in ("hold", "canary", "breaker"):
        try:
            read_marker(workspace, grid_id, name)
        except DamagedFile:
            found.append(workspace.marker(grid_id, name))
    return found


def read_marker(workspace: Workspace, grid_id: str, name: str) -> dict[str, Any]:
    """Return what a marker says; empty where there is none.

    Raises:
        DamagedFile: it cannot be read, or does not say which runs it concerns.
    """
    path = workspace.marker(grid_id, name)
    found = read_mapping(path)
    runs = found.get("runs", [])
    is_sound = isinstance(runs, list) and all(isinstance(run_id, str) for run_id in runs)
    if not is_sound or (path.exists() and "runs" not in found):
        raise DamagedFile(f"{path} is damaged: it names no runs")
    return found
