"""What the lines of a journal say: one type for each kind of event."""

from typing import ClassVar

from ..documents import Document, from_plain
from ..run.states import AttemptState, FailureClass
from ..values import field

# Name -> value. Words are no metrics and reach no table; whole numbers stay whole.
Metrics = dict[str, int | float | str | None]


class Usage(Document, frozen=True, kw_only=True, omit_defaults=False):
    """What an attempt uses, over all of it so far. A figure that nobody could take is null."""

    images_per_s: float | None = None
    """Images that all ranks trained on per second of training, without the evaluations."""
    data_wait: float | None = None
    """Share of that time, 0 to 1, in which rank 0 waited for its batches."""
    parameters: int | None = None
    """Of the backbone with its classifier: what finished weights have."""
    peak_memory_bytes: int | None = None
    """The most that PyTorch had allocated on rank 0's GPU."""
    step_s: float | None = None
    """Seconds of an optimizer step with its batch, mean over the attempt's steps after the first
    ten, from ten of them on. Evaluations and checkpoints do not count.
    """
    step_std_s: float | None = None
    """Standard deviation of these steps. A GPU works behind the process that queues its work: this
    is how far apart that process saw the steps.
    """
    gpu_utilisation: float | None = None
    """Share of the time, 0 to 1, in which a kernel ran: mean over node 0's GPUs and looks every
    30 s, by NVML. Runs that share a card have the card's.
    """
    gpu_used_bytes: int | None = None
    """The most memory in use on one of these GPUs at a look, by whatever process."""
    cpu_cores: float | None = None
    """CPU time of the ranks on node 0 and of what they started, per second of the attempt."""
    host_memory_bytes: int | None = None
    """The most memory of node 0 that these processes had at a look (PSS): a page that several
    processes share counts for each of them in part.
    """


class Event(Document, frozen=True, kw_only=True):
    """What every event has."""

    kind: ClassVar[str]
    seq: int
    """Its number in the journal, from 1."""
    at: float
    """UTC seconds since 1970."""


class Start(Event, frozen=True, kw_only=True):
    """An attempt began on a node."""

    kind: ClassVar = "start"
    attempt: int
    host: str | None = None
    """The scheduler's name of the node."""
    gpus: list[str] = field(default_factory=list)
    """The run's GPUs on it."""
    resumed_attempt: int | None = None
    """The attempt whose checkpoint it goes on from."""
    resumed_step: int | None = None
    """The step of that checkpoint."""
    world_size: int | None = None
    """Ranks of all nodes."""
    exact: bool | None = None
    """Whether the resume equals an uninterrupted run bit for bit."""
    software: dict[str, str] = field(default_factory=dict)
    """Package -> version."""
    steps: int | None = None
    """Of the whole run."""


class LoadedWeights(Document, frozen=True, kw_only=True, omit_defaults=False):
    """What a run took of the weights that it starts from."""

    loaded: int
    """Number of tensors."""
    drawn: list[str]
    """The model's tensors that were not there: they start as drawn."""
    unused: list[str]
    """Tensors that the model does not have."""


class Fingerprints(Event, frozen=True, kw_only=True):
    """What a run starts from: what the streams of randomness decided, and its weights."""

    kind: ClassVar = "fingerprints"
    streams: dict[str, str | None]
    """Stream -> hash; None where it decides nothing in this run."""
    weights: LoadedWeights | None = None
    """None: all weights are drawn."""


class Progress(Event, frozen=True, kw_only=True):
    """How far training has come, now and then."""

    kind: ClassVar = "progress"
    epoch: int | None = None
    step: int | None = None
    steps: int | None = None
    """Of the whole run."""
    trained_s: float | None = None
    """Seconds from this attempt's first step to `step`, evaluations included."""


class Epoch(Event, frozen=True, kw_only=True):
    """An epoch of training ended."""

    kind: ClassVar = "epoch"
    epoch: int
    step: int
    metrics: Metrics
    """Of training: loss, learning rate…"""
    usage: Usage | None = None
    trained_s: float | None = None
    """Seconds from this attempt's first step to `step`, evaluations included."""


class Evaluation(Event, frozen=True, kw_only=True):
    """A set was scored."""

    kind: ClassVar = "evaluation"
    epoch: int
    step: int
    set: str
    metrics: Metrics


class Checkpoint(Event, frozen=True, kw_only=True):
    """A checkpoint is on disk."""

    kind: ClassVar = "checkpoint"
    epoch: int
    step: int
    bytes: int
    usage: Usage | None = None
    trained_s: float | None = None
    """Seconds from this attempt's first step to `step`, evaluations included."""


class RejectedCheckpoint(Event, frozen=True, kw_only=True):
    """A checkpoint did not verify, and another one was looked for."""

    kind: ClassVar = "rejected"
    attempt: int
    step: int
    reason: str


class Heartbeat(Event, frozen=True, kw_only=True):
    """A sign of life."""

    kind: ClassVar = "heartbeat"


class End(Event, frozen=True, kw_only=True):
    """An attempt ended on a node."""

    kind: ClassVar = "end"
    state: AttemptState
    failure: FailureClass | None = field(name="class", default=None)
    signature: str = ""
    """The error, the same for one cause."""
    error: str = ""
    """The end of the traceback."""
    exit_code: int | None = None
    """The agent's, if this run was its only one."""
    rank: int | None = None
    """That of the error."""
    epoch: int | None = None
    step: int | None = None
    host: str = ""
    """Where the cause lay, if not on node 0."""
    explained: bool = True
    """False where nobody could say why the scheduler stopped the attempt: the end is then left to
    the scheduler's own word.
    """
    usage: Usage | None = None


TYPES: dict[str, type[Event]] = {
    kind.kind: kind
    for kind in (
        Start,
        Fingerprints,
        Progress,
        Epoch,
        Evaluation,
        Checkpoint,
        RejectedCheckpoint,
        Heartbeat,
        End,
    )
}


def typed(line: dict[str, object]) -> Event | None:
    """Return a journal's line as its event; None for a kind of a newer version.

    Raises:
        ValueError: a key is missing or of another type.
    """
    kind = TYPES.get(str(line.get("kind")))
    return None if kind is None else from_plain(line, kind)
