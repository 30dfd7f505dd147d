"""The attempts at a run and their checkpoints, as documents."""

from collections.abc import Mapping, Sequence

from ...db.gpu_hours import GpuHours
from ...db.records import AttemptRow
from ...jobs.documents import Document
from ...jobs.units import iso
from ...jobs.values import asdict
from ...jobs.workspace.events import Usage
from ...jobs.workspace.paths import Workspace
from .causes import cause_of

_TIMES = ("submitted_at", "started_at", "ended_at", "heartbeat_at")


class AttemptView(Document, frozen=True, kw_only=True):
    """One attempt at a run."""

    number: int
    """From 1."""
    token: str
    """Of its allocation."""
    array_index: int
    """Its element of the job array."""
    state: str
    failure: str | None
    """The class of the failure."""
    signature: str
    """The error, the same for one cause."""
    message: str
    """The error's own line, in full and with its numbers."""
    place: str
    """File and line of your code where it was raised, such as `head.py:11`; or nothing."""
    error: str
    """The end of the traceback."""
    exit_code: int | None
    """The agent's."""
    word: str
    """What the scheduler last said of it."""
    submitted_at: str | None
    started_at: str | None
    ended_at: str | None
    heartbeat_at: str | None
    host: str | None
    world_size: int | None
    """Ranks of all nodes."""
    gpus: int
    """Of all nodes."""
    per_gpu: int
    """Runs that share each of them."""
    resumed_attempt: int | None
    """The attempt whose checkpoint it went on from."""
    resumed_step: int | None
    """The step of that checkpoint."""
    exact: bool | None
    """Whether the resume equals an uninterrupted run bit for bit."""
    checkpoint_step: int | None
    """Its newest checkpoint."""
    epoch: int | None
    step: int | None
    steps: int | None
    usage: Usage | None
    """What it used, as its journal last said; null if its journal does not say."""
    gpu_hours: GpuHours
    """What became of its GPU-hours, up to its last sign of life."""


class CheckpointView(Document, frozen=True, kw_only=True):
    """A checkpoint that was announced."""

    attempt: int
    epoch: int
    step: int
    bytes: int
    """Of all its files."""
    at: str | None
    on_disk: bool
    """Whether it is still there: older ones are removed."""


def attempt_views(
    workspace: Workspace,
    grid_id: str,
    rows: Sequence[AttemptRow],
    hours: Mapping[int, GpuHours],
) -> list[AttemptView]:
    """Return the attempts at one run.

    Args:
        workspace: its grids know the file of a lab's own head.
        grid_id: of the run.
        rows: as the ledger has them.
        hours: attempt -> what became of its GPU-hours.
    """
    return [_attempt(workspace, grid_id, row, hours[row.number]) for row in rows]


def _attempt(workspace: Workspace, grid_id: str, row: AttemptRow, hours: GpuHours) -> AttemptView:
    cause = cause_of(workspace, grid_id, signature=row.signature, error=row.error)
    facts = asdict(row) | {name: iso(getattr(row, name)) for name in _TIMES}
    facts |= {"message": cause.message, "place": cause.where, "gpu_hours": hours}
    return AttemptView(**{name: facts[name] for name in AttemptView.__struct_fields__})
