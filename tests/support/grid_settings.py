"""Settings of a stored grid, from the few that a test is about."""

from typing import Any

from vtjobs.jobs.workspace.grid_settings import GridSettings, ResourceSettings


def grid_settings(**fields: Any) -> GridSettings:
    """Return settings; `resources` is given as a dict."""
    plain: dict[str, Any] = {
        "grid_id": "g-1",
        "name": "g",
        "submitted_at": 1000.0,
        "retries": 3,
        "checkpoint_every_s": 600,
        "evaluate_every": 1,
        "backend": "local",
    }
    resources = ResourceSettings(**fields.pop("resources", {}))
    return GridSettings(**{**plain, **fields}, resources=resources)
