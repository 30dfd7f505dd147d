"""What people write about grids and runs. It is part of no identity, and changes no result.

<grid>/notes.jsonl, <run>/notes.jsonl    one note a line, the oldest first
<grid>/archived.json                     {"at", "by"}: `status` leaves the grid out
"""

import contextlib
import json
from pathlib import Path

from ..atomic_files import append_line, to_json, write_over
from ..documents import Document, Unfit, from_plain, to_plain
from .paths import Workspace

FILE = "notes.jsonl"
# Whoever has more to say writes a file.
MOST_CHARACTERS = 2000


class Note(Document, frozen=True, kw_only=True):
    """What somebody wrote."""

    at: str
    """When; ISO 8601, UTC."""
    by: str
    """user@host."""
    text: str
    """What they wrote."""


def notes_of(folder: Path) -> list[Note]:
    """Return the notes in the folder of a grid or a run; a line that cannot be read is left out."""
    try:
        lines = (folder / FILE).read_bytes().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        with contextlib.suppress(Unfit, ValueError):
            found.append(from_plain(json.loads(line), Note))
    return found


def add_note(folder: Path, note: Note) -> None:
    """Write a note down: one write, so that two people at once lose none.

    Raises:
        OSError: it cannot be written.
    """
    append_line(folder / FILE, to_json(to_plain(note)))


def is_archived(workspace: Workspace, grid_id: str) -> bool:
    """Return whether somebody put a grid away."""
    return workspace.marker(grid_id, "archived").exists()


def archive(workspace: Workspace, grid_id: str, *, at: str, by: str) -> None:
    """Put a grid away.

    Raises:
        OSError: it cannot be written.
    """
    write_over(workspace.marker(grid_id, "archived"), to_json({"at": at, "by": by}))


def bring_back(workspace: Workspace, grid_id: str) -> None:
    """Undo `archive`.

    Raises:
        OSError: it cannot be written.
    """
    workspace.marker(grid_id, "archived").unlink(missing_ok=True)
