"""The markers of a grid that keep its runs from starting.

Dispatch and queued agents obey them alike.

<grid>/hold.json      {"runs": [...]}                    the user holds these runs
<grid>/canary.json    {"runs": [...], "passed": bool}    only these may start until each has passed
its first epoch <grid>/breaker.json   {"class", "signature", "message", "runs"}     the same
deterministic failure came too often
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum, auto
from functools import cache
from typing import Any

from ..atomic_files import read_json
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


@dataclass(frozen=True, slots=True)
class Closed:
    """Why a run must not start, for programs and for people."""

    marker: Marker
    text: str


def closed(workspace: Workspace, grid_id: str) -> Callable[[str], Closed | None]:
    """Read a grid's markers once; return the function that says why a run must not start.

    That function returns None for a run that may start.
    """
    hold = _marker(workspace, grid_id, "hold")
    canary = _marker(workspace, grid_id, "canary")
    breaker = _marker(workspace, grid_id, "breaker")
    held, first = frozenset(hold.get("runs", ())), frozenset(canary.get("runs", ()))

    @cache
    def waits() -> bool:
        # Nobody may have made a pass since the canary's first epochs.
        return bool(first) and not canary.get("passed") and not _have_trained(workspace, first)

    def why(run_id: str) -> Closed | None:
        if run_id in held:
            return Closed(Marker.HOLD, "held")
        if breaker:
            cause = breaker.get("message") or breaker.get("signature", "")
            return Closed(Marker.BREAKER, f"circuit breaker: {cause}")
        if run_id not in first and waits():
            return Closed(Marker.CANARY, "waits for the canary")
        return None

    return why


def held_runs(workspace: Workspace, grid_ids: Iterable[str]) -> set[str]:
    """Return the runs that the hold markers of these grids name."""
    found: set[str] = set()
    for grid_id in grid_ids:
        found |= set(_marker(workspace, grid_id, "hold").get("runs", ()))
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


def _marker(workspace: Workspace, grid_id: str, name: str) -> dict[str, Any]:
    return read_json(workspace.marker(grid_id, name)) or {}
