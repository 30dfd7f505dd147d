"""vtjobs: from a grid of vision trainings to a table that says what the seeds allow.

`vtjobs.load("my-grid")` reads results; see `vtjobs.notebook`. Nothing is imported before that.
"""

from typing import Any

__all__ = ["load"]


def __getattr__(name: str) -> Any:
    if name == "load":
        from .notebook import load

        return load
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
