"""The markers of a grid that keep its runs from starting: dispatch and queued agents obey them alike.

<grid>/hold.json      {"runs": [...]}                    the user holds these runs
<grid>/canary.json    {"runs": [...], "passed": bool}    only these may start until each has passed its first epoch
<grid>/breaker.json   {"class", "signature", "runs"}     the same deterministic failure came too often
"""

from collections.abc import Callable
from typing import Any

from ..atomic_files import read_json
from .paths import Workspace

Closed = Callable[[str], str]


def closed(workspace: Workspace, grid_id: str) -> Closed:
    """Read a grid's markers once; the returned function says why a run must not start, or "" where it may."""
    hold = _marker(workspace, grid_id, "hold")
    canary = _marker(workspace, grid_id, "canary")
    breaker = _marker(workspace, grid_id, "breaker")
    held, first = frozenset(hold.get("runs", ())), frozenset(canary.get("runs", ()))
    waits = bool(first) and not canary.get("passed")

    def why(run_id: str) -> str:
        if run_id in held:
            return "held"
        if breaker:
            return f"circuit breaker: {breaker.get('signature', '')}"
        return "waits for the canary" if waits and run_id not in first else ""

    return why


def _marker(workspace: Workspace, grid_id: str, name: str) -> dict[str, Any]:
    return read_json(workspace.marker(grid_id, name)) or {}
