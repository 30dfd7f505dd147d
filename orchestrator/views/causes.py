"""What ended an attempt, as people are told it."""

from ...jobs.run.error_text import Place, is_traceback, message_of, place_of
from ...jobs.values import Value, changed
from ...jobs.workspace.paths import Workspace
from ...jobs.workspace.stored_grid import own_part_file


class Cause(Value, frozen=True, kw_only=True):
    """What ended an attempt."""

    message: str
    """The error's own line, in full."""
    place: Place | None
    """Where in the user's code it was raised."""
    was_raised: bool
    """Whether an exception of the run ended it, not somebody outside."""

    @property
    def where(self) -> str:
        """File and line of the user's code, or ""."""
        return str(self.place or "")

    def __str__(self) -> str:
        return f"{self.message} ({self.place})" if self.place else self.message


def cause_of(workspace: Workspace, grid_id: str, *, signature: str, error: str) -> Cause:
    """Return what ended an attempt.

    Args:
        workspace: its grids know the file of a lab's own part.
        grid_id: of the run.
        signature: of the attempt.
        error: what the attempt stored of it.
    """
    place = place_of(error)
    if place is not None and place.part:
        place = changed(place, file=own_part_file(workspace, grid_id, place.name))
    return Cause(message=message_of(error, signature), place=place, was_raised=is_traceback(error))
