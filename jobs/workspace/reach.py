"""Whether a compute node reached its scheduler, as last seen: `reach-<backend>.json`.

Agents write it, and `vtjobs doctor --probe`. Only where it does can jobs retry and hand on.
"""

from datetime import datetime

from ..atomic_files import read_cache, to_json, write_over
from ..documents import Document, Unfit, from_plain, to_plain
from .paths import Workspace


class Reach(Document, frozen=True, kw_only=True, omit_defaults=False):
    """What one node saw."""

    at: float
    """When, in seconds since 1970."""
    host: str
    """The scheduler's name of the node."""
    reason: str
    """Why the scheduler did not answer there; empty if it did."""

    @property
    def answers(self) -> bool:
        """Whether the scheduler answered."""
        return not self.reason

    def __str__(self) -> str:
        when = datetime.fromtimestamp(self.at).strftime("%Y-%m-%d %H:%M")
        return ": ".join(filter(None, [f"{self.host}, {when}", self.reason]))


def read_reach(workspace: Workspace, backend: str) -> Reach | None:
    """Return what was seen last; None where nobody has looked yet, or the file is damaged."""
    try:
        return from_plain(read_cache(workspace.reach(backend)), Reach)
    except Unfit:
        return None


def note_reach(workspace: Workspace, backend: str, seen: Reach) -> None:
    """Write down what was seen."""
    write_over(workspace.reach(backend), to_json(to_plain(seen)))
