"""One message of many notices."""

from collections import Counter
from collections.abc import Sequence

from ...jobs.documents import Document
from ...jobs.units import plural
from .outbox import Notice

# As many notices are written out.
MOST_LINES = 20


class Message(Document, frozen=True, kw_only=True):
    """What an address is told; a command gets it as JSON."""

    schema_version: int = 1
    title: str
    body: str
    notices: list[Notice]


def message_of(notices: Sequence[Notice]) -> Message:
    """Return one message; of many notices the first are written out."""
    lines = [notice.text for notice in notices[:MOST_LINES]]
    if more := len(notices) - MOST_LINES:
        lines += [f"… and {more} more"] if more > 0 else []
    return Message(title=_title(notices), body="\n".join(lines), notices=list(notices))


def _title(notices: Sequence[Notice]) -> str:
    grids = list(dict.fromkeys(notice.grid_id for notice in notices))
    name = grids[0] if len(grids) == 1 else plural(len(grids), "grid")
    counts = Counter(notice.kind for notice in notices)
    words = {
        "finish": "ended",
        "breaker": "stopped by the breaker",
        "stall": "stalled",
        "fail": f"{plural(counts['fail'], 'run')} failed",
        "test": "test",
    }
    told = ", ".join(word for kind, word in words.items() if counts[kind])
    return f"vtjobs: {name}: {told}"
