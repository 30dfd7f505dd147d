"""The allocation file: what one grant of the scheduler hosts, and how its agents are started."""

from pathlib import Path
from typing import Any

from ..atomic_files import read_json
from ..documents import Unfit, from_plain, to_plain
from ..errors import DamagedFile
from ..run.settings import OwnFunction
from ..values import Value, asdict, field

SCHEMA = 1
HANG_S = 300.0
DECODED_GIB = 50.0


# Runs that may share a GPU.
MOST_PER_GPU = 16


class Task(Value, frozen=True, kw_only=True):
    """One attempt that an allocation hosts."""

    run_id: str
    attempt: int
    grid_id: str
    clean: bool = False
    """Start from nothing, whatever checkpoints there are."""
    micro_split: int = 1
    """Parts that each virtual rank's share is cut into, to save memory."""
    parent: str | None = None
    is_claimed: bool = False
    """Whether whoever wrote this down has claimed the run for it already."""


class Place(Value, frozen=True, kw_only=True):
    """One element of an allocation's array."""

    token: str
    index: int


class Shape(Value, frozen=True, kw_only=True):
    """What the runs of an allocation have in common; runs of one shape can share an allocation."""

    backend: str
    nodes: int = 1
    ranks: int = 1
    """DDP ranks of one run on one node."""
    gpus: int = 0
    """GPUs of one run on one node: one per rank, or none."""
    gpu: str | None = None
    """The kind of GPU."""
    per_gpu: int = 1
    """Runs that share one GPU; more than one only where `gpus` is 1."""
    threads: int = 1
    walltime_s: int | None = None
    lead_s: int = 120
    """How long before the walltime the agent is told to stop: enough to finish a step and save."""
    checkpoint_every_s: int = 600
    evaluate_every: int = 1
    record_depth: bool = False
    """Whether evaluations record what each block adds to its input."""
    sets: tuple[str, ...] = ()
    """Scored beside test and val."""
    metrics: tuple[OwnFunction, ...] = ()
    """Of the lab, beside those of vtjobs."""

    @property
    def world_size(self) -> int:
        return self.nodes * self.ranks

    def gpus_of(self, lanes: int) -> int:
        """Return the GPUs that so many runs at a time take of one node."""
        return -(-self.gpus * lanes // self.per_gpu)

    def lanes_on(self, gpus: int) -> int:
        """Return how many runs train at a time on so many GPUs of one node."""
        return gpus // self.gpus * self.per_gpu


class Allocation(Value, frozen=True, kw_only=True):
    """The content of `allocations/<token>.json`."""

    token: str
    created_at: float
    shape: Shape
    lanes: int
    """Runs at a time."""
    tasks: tuple[tuple[Task, ...], ...]
    """Per array index, in order."""
    data_root: str
    paths: dict[str, str] = field(default_factory=dict)
    """Where datasets and weights lie, by fingerprint."""
    hang_s: float = HANG_S
    """How long ranks may be silent before they are killed, in seconds."""
    decoded_gib: float = DECODED_GIB
    """What the workspace's decoded sets of images may take."""
    argv: tuple[str, ...] = ()
    """The command that submits a successor; `{token}` is replaced, and `{job}` by the job that it
    must outlive.
    """
    after: tuple[str, ...] = ()
    """The scheduler's jobs that must end first: those of the parent stage."""
    exclude: tuple[str, ...] = ()
    """Nodes that failed these runs before."""
    site: dict[str, Any] = field(default_factory=dict)
    """The site's settings as they held when this was submitted."""
    unstarted: int = 0
    """Jobs in a row whose walltime ended before any of these runs could start."""
    handed_on: bool = False
    """Whether an agent wrote this down for runs that it no longer serves."""
    inside: Place | None = None
    """Where another allocation's agent took these runs on; None: it is submitted by itself."""
    tell_from: str = ""
    """The folder whose vtjobs.yaml says who is told what; empty: agents tell nobody."""
    schema_version: int = SCHEMA

    @property
    def all_tasks(self) -> list[Task]:
        return [task for part in self.tasks for task in part]

    def to_dict(self) -> dict[str, Any]:
        tasks = [[asdict(task) for task in part] for part in self.tasks]
        inside = None if self.inside is None else asdict(self.inside)
        return asdict(self) | {"shape": to_plain(self.shape), "tasks": tasks, "inside": inside}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "Allocation":
        """Read the file's content.

        Raises:
            Unfit: the content is not an allocation of this version.
        """
        try:
            return cls._read(data)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise Unfit(f"no allocation of this version of vtjobs ({error!r})") from None

    @classmethod
    def _read(cls, data: dict[str, Any]) -> "Allocation":
        shape = from_plain(data["shape"], Shape)
        tasks = tuple(tuple(Task(**task) for task in part) for part in data["tasks"])
        lists = {name: tuple(data.get(name, ())) for name in ("argv", "after", "exclude")}
        inside = Place(**data["inside"]) if data.get("inside") else None
        return cls(**{**data, "shape": shape, "tasks": tasks, **lists, "inside": inside})


def read_allocation(path: Path) -> Allocation | None:
    """Return the allocation in a file, or None where there is no such file.

    Raises:
        DamagedFile: it is cut short, or of a newer version of vtjobs.
    """
    data = read_json(path)
    try:
        return None if data is None else Allocation.from_dict(data)
    except Unfit as error:
        raise DamagedFile(f"{path} is damaged: {error}") from None
