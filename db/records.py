"""The records that the reading side returns."""

from ..jobs.run.settings import CellSettings
from ..jobs.run.spec import Axes, CellSpec
from ..jobs.values import Value
from ..jobs.workspace.events import Usage
from ..jobs.workspace.imported import IMPORTED


class Standing(Value, frozen=True, kw_only=True):
    """What the word follows from by which a run is shown."""

    grid_id: str
    """Whose settings and markers hold: the newest submission."""
    state: str
    cancelled_through: int
    attempt: int | None
    """Number of the latest one; a number may be left out."""
    attempt_state: str | None
    started_at: float | None
    heartbeat_at: float | None
    word: str | None
    """What the scheduler last said of its latest attempt."""
    backend: str | None
    """Where that attempt went."""


class AlikeRow(Standing, frozen=True, kw_only=True):
    """Runs that stand alike, counted."""

    of_grid: str | None
    """The grid that has them; None: they are not counted by grid."""
    is_held: bool
    """Whether the user holds them."""
    runs: int


class RunRow(Standing, frozen=True, kw_only=True):
    """A run with its cell's labels and its latest attempt."""

    run_id: str
    cell_id: str
    backbone: str
    dataset: str
    head: str
    recipe: str
    stage: str
    axes: Axes
    seed: int
    """Or the place in the design, where streams vary apart."""
    streams: dict[str, int] | None
    reason: str
    parent: str | None
    tries: int
    tries_from: int
    clean_next: bool
    micro_split: int
    not_before: float
    attempts: int
    """How many there were."""
    epoch: int | None
    step: int | None
    steps: int | None
    host: str | None
    ended_at: float | None
    failure: str | None
    signature: str | None
    token: str | None

    @property
    def is_imported(self) -> bool:
        """Whether it was trained elsewhere."""
        return self.token == IMPORTED


class CellRow(Value, frozen=True, kw_only=True):
    """A cell as the ledger has it."""

    cell_id: str
    match_id: str
    """Shared with the cells that differ in the head alone."""
    stage: str
    backbone: str
    dataset: str
    head: str
    recipe: str
    axes: Axes
    is_baseline: bool
    """Whether its head is the supervised one."""
    spec: str
    """JSON of jobs.run.spec.CellSpec."""

    @property
    def settings(self) -> CellSettings | None:
        """All that is set for its runs; None: they were imported, and nobody knows."""
        spec = CellSpec.stored(self.spec)
        return None if spec is None else spec.settings


class ResultRow(Value, frozen=True, kw_only=True):
    """One metric of one run on one set."""

    run_id: str
    set_name: str
    metric: str
    cell_id: str
    last: float
    """At the last epoch."""
    last_epoch: int
    best: float
    """At the best epoch on this very set."""
    best_epoch: int


class AttemptRow(Value, frozen=True, kw_only=True):
    """One attempt at a run. Times are UTC seconds since 1970."""

    run_id: str
    number: int
    token: str
    """Of its allocation."""
    array_index: int
    state: str
    failure: str | None
    signature: str
    """The error, the same for one cause."""
    error: str
    exit_code: int | None
    word: str
    """What the scheduler last said of it."""
    submitted_at: float
    started_at: float | None
    ended_at: float | None
    heartbeat_at: float | None
    host: str | None
    world_size: int | None
    gpus: int
    per_gpu: int
    """Runs that shared each of them."""
    resumed_attempt: int | None
    resumed_step: int | None
    exact: bool | None
    """Whether the resume equals an uninterrupted run bit for bit."""
    checkpoint_step: int | None
    epoch: int | None
    step: int | None
    steps: int | None
    usage: Usage | None
    """As its journal last said."""
    trained_s: float | None
    """Seconds from its first step to `step`."""
    starts_at: float | None
    """When the scheduler expects it to start."""
    software: dict[str, str] | None
    """Package -> version; also python, and numerics of vtjobs itself. Null before it has begun, and
    of attempts that an older ledger had.
    """


class JobRow(Value, frozen=True, kw_only=True):
    """Where the scheduler has an attempt."""

    backend: str
    job: str
    """The scheduler's id, with the element of its array."""
    token: str


class EventRow(Value, frozen=True, kw_only=True):
    """One change of an attempt's state."""

    attempt: int
    at: float
    source: str
    """Who said so: journal, local, squeue, sacct, ray, user or vtjobs."""
    before: str | None
    after: str
    raw: str
    """The scheduler's own word."""


class CheckpointRow(Value, frozen=True, kw_only=True):
    """A checkpoint that was announced."""

    attempt: int
    step: int
    epoch: int
    bytes: int
    at: float
