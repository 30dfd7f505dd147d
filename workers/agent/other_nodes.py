"""What the agents of the other nodes of an attempt write in their journals, read as it comes."""

from collections.abc import Iterable

from ...jobs.errors import DamagedJournal
from ...jobs.run.states import AttemptState
from ...jobs.workspace.events import End, Start, typed
from ...jobs.workspace.journal import HEARTBEAT_S, read_from
from ...jobs.workspace.paths import RunFolder
from .hang_watch import SUSPENDED_S

LOOK_S = 1.0
# Three heartbeats, and what a network file system may hold back.
SILENT_S = 3 * HEARTBEAT_S + 15.0
# A node that ended so has nothing to say against the others: they stopped or finished together.
_PEACEFUL = (AttemptState.COMPLETED, AttemptState.TIMEOUT, AttemptState.PREEMPTED)


class OtherNodes:
    """The journals of the other nodes; without any, every question is answered at once."""

    def __init__(self, folder: RunFolder, attempt: int, nodes: Iterable[int]) -> None:
        self._paths = {node: folder.journal(attempt, node) for node in nodes}
        self._offsets = dict.fromkeys(self._paths, 0)
        self._heard_at: dict[int, float] = {}
        self._look_at = 0.0
        self.starts: dict[int, Start] = {}
        self.ends: dict[int, End] = {}

    @property
    def missing(self) -> list[int]:
        """The nodes that have not said how it ended for them."""
        return [node for node in self._paths if node not in self.ends]

    def look(self, now: float, *, at_once: bool = False) -> str:
        """Read what is new, once a second; return why this node's ranks cannot go on, or ""."""
        if not self._paths or (now < self._look_at and not at_once):
            return ""
        if self._look_at and (missed := now - self._look_at) > SUSPENDED_S:
            self._heard_at = {node: at + missed for node, at in self._heard_at.items()}
        self._look_at = now + LOOK_S
        for node in self.missing:
            self._read(node, now)
        for node, end in sorted(self.ends.items()):
            if end.state not in _PEACEFUL:
                return f"node {node}: {end.signature or end.state}"
        for node, heard_at in sorted(self._heard_at.items()):
            if node not in self.ends and now - heard_at > SILENT_S:
                return f"node {node} stopped responding"
        return ""

    def _read(self, node: int, now: float) -> None:
        try:
            chunk = read_from(self._paths[node], self._offsets[node])
        except (OSError, DamagedJournal):
            # Not there yet, or not to be read now: that says nothing about the node.
            return
        if chunk.offset > self._offsets[node]:
            self._offsets[node], self._heard_at[node] = chunk.offset, now
        for event in map(typed, chunk.events):
            if isinstance(event, Start):
                self.starts[node] = event
            elif isinstance(event, End):
                self.ends[node] = event

    def host(self, node: int) -> str:
        """Return the name of a node's host, as far as it has said so."""
        return (self.starts[node].host if node in self.starts else None) or ""
