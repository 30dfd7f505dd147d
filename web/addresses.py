"""Where each page is, within a folder of files and on the server alike."""

import re
from enum import StrEnum

from ..jobs.names import NAME, RUN_ID
from ..jobs.values import Value


class Kind(StrEnum):
    """What a page is about; also the beginning of its address."""

    OVERVIEW = "index"
    ACTIVITY = "activity"
    FAILURES = "failures"
    USAGE = "usage"
    GRID = "grids"
    CELL = "cells"
    RUN = "runs"


# Kinds of which there are many, and what identifies one.
_MANY = {
    Kind.GRID: re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}\Z"),
    Kind.CELL: RUN_ID,
    Kind.RUN: RUN_ID,
}


class Address(Value, frozen=True):
    """One page."""

    kind: Kind
    name: str = ""
    """Id of the grid, cell or run."""

    @property
    def path(self) -> str:
        """Where it is below the root, without a suffix."""
        return f"{self.kind}/{self.name}" if self.name else str(self.kind)

    @property
    def up(self) -> str:
        """The way from its folder to the root."""
        return "../" if self.name else ""


def parse(path: str) -> Address | None:
    """Return the page of a path below the root; None: there is none of this form."""
    kind, _, name = (path or Kind.OVERVIEW).partition("/")
    try:
        found = Address(Kind(kind), name)
    except ValueError:
        return None
    if found.kind not in _MANY:
        return None if name else found
    return found if _MANY[found.kind].match(name) else None


def is_log_name(name: str) -> bool:
    """Return whether this can be the file name of a log."""
    return bool(NAME.match(name)) and ".log" in name
