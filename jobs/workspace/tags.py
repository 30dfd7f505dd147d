"""Words that people put on grids and runs, to select by: `tag=paper`. They change no identity.

<workspace>/tags.jsonl    one change a line; what holds is what all lines together say
"""

import contextlib
import json

from ..atomic_files import append_line, to_json
from ..documents import Document, Unfit, from_plain, to_plain
from .paths import Workspace

Tags = dict[str, frozenset[str]]
"""Id of a grid or a run -> its tags."""


class Tagging(Document, frozen=True, kw_only=True):
    """One change."""

    at: str
    """When; ISO 8601, UTC."""
    by: str
    """user@host."""
    targets: list[str]
    """Ids of grids and runs."""
    add: tuple[str, ...] = ()
    """Tags that they have from now on."""
    remove: tuple[str, ...] = ()
    """Tags that they no longer have."""


def record(workspace: Workspace, tagging: Tagging) -> None:
    """Write a change down.

    Raises:
        OSError: it cannot be written.
    """
    append_line(workspace.tags, to_json(to_plain(tagging)))


def tags_of(workspace: Workspace) -> Tags:
    """Return the tags that hold; a line that is no change is left out.

    Raises:
        OSError: the file is there and cannot be read, which does not mean that there are no tags.
    """
    try:
        lines = workspace.tags.read_bytes().splitlines()
    except FileNotFoundError:
        return {}
    found: dict[str, set[str]] = {}
    for line in lines:
        with contextlib.suppress(Unfit, ValueError):
            change = from_plain(json.loads(line), Tagging)
            for target in change.targets:
                tags = found.setdefault(target, set())
                tags |= set(change.add)
                tags -= set(change.remove)
    return {target: frozenset(tags) for target, tags in found.items() if tags}
