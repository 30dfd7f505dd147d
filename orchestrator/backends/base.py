"""What the rest of vtjobs asks of a scheduler.

One module or package beside this one per scheduler.
"""

import math
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from ...jobs.run.states import AttemptState, FailureClass
from ...jobs.values import Value, field
from ...jobs.workspace.allocation import Allocation, Shape
from ...jobs.workspace.grid_settings import GridSettings

# So long after its last sign of life an attempt that a scheduler lacks is given up, even where not
# all that happened is ever known.
UNSETTLED_S = 3600.0


# How runs are shown that somebody changed in their scheduler.
CANCELLING, SUSPENDED, REQUEUED = "cancelling", "suspended", "requeued"


class JobState(StrEnum):
    """Where an allocation, or one element of its array, stands in its scheduler."""

    QUEUED = "queued"
    RUNNING = "running"
    ENDED = "ended"
    ABSENT = "absent"  # asked about the whole of it, and it is not there

    @property
    def is_live(self) -> bool:
        """Whether the scheduler still has it."""
        return self in (self.QUEUED, self.RUNNING)


class Place(Value, frozen=True, kw_only=True):
    """One element of an allocation's array, and what is known of it."""

    token: str
    index: int = 0
    job_id: str | None = None
    """None until the scheduler is known to have the allocation."""
    submitted_at: float = 0.0
    is_array: bool = False
    is_started: bool = False
    """Whether one of its runs has a start record."""

    @property
    def key(self) -> tuple[str, int]:
        return self.token, self.index


class JobView(Value, frozen=True, kw_only=True):
    """What the scheduler says about one place."""

    state: JobState
    job_id: str = ""
    raw: str = ""
    """The scheduler's own word."""
    reason: str = ""
    """Why it waits, in the scheduler's own word."""
    end: AttemptState | None = None
    """How an attempt that left no end record ended there; None where the scheduler does not know.
    """
    failure: FailureClass | None = None
    ended_at: float | None = None
    starts_at: float | None = None
    """When it has started, or the scheduler expects it to; None where it does not say."""
    node: str = ""
    """Of one that has ended: the node that may be to blame for that; nothing where none is."""
    source: str = ""
    """Which query said so, where a backend has several."""
    is_settled: bool = True
    """Whether all that has happened is known; if not, what is missing may still come."""
    patience_s: float = UNSETTLED_S
    """For how long after the attempt's last sign of life that is waited for."""


class WaitKind(StrEnum):
    """Whether waiting helps."""

    WAIT = "wait"
    ACT = "act"  # somebody has to do something
    NEVER = "never"  # as it was asked for, it can never start


class Waiting(Value, frozen=True, kw_only=True):
    """Why a job waits."""

    kind: WaitKind
    reason: str
    """The scheduler's own word."""
    sentence: str
    action: str = ""
    """What to do; `{run}` stands for the run in a command of vtjobs."""


Key = tuple[str, int]


class SubmitOutcome(StrEnum):
    """What a submission came to."""

    ACCEPTED = "accepted"
    REFUSED = "refused"  # a clear no
    LATER = "later"  # a limit of the site: no now, perhaps yes later
    UNCLEAR = "unclear"  # it may have been accepted all the same


class Submission(Value, frozen=True, kw_only=True):
    """The reply to a submission."""

    outcome: SubmitOutcome
    job_id: str = ""
    reason: str = ""
    is_slow: bool = False
    """Whether an unclear one got no reply in time."""


class HostMemory(Value, frozen=True, kw_only=True):
    """Memory of a host."""

    bytes: int
    fix: str
    """What to do where it is too little; `{runs}` stands for how many runs it suffices for."""


class Room(Value, frozen=True, kw_only=True):
    """How a backend wants runs put together."""

    lanes: int
    """Runs at a time on one place."""
    tasks: int
    """Most runs of one place."""
    places: int = 1
    """Most places of one allocation."""
    free: Mapping[str, int] = field(default_factory=dict)
    """Places that may be submitted now, by the name of the limit that leaves so many. Grids under
    one limit share them.
    """
    at_once: int | None = None
    """Places that can run at a time; None where nobody knows."""
    spread: int | None = None
    """Places that can run at a time, where runs are to be spread over these rather than to fill the
    first.
    """
    memory: HostMemory | None = None
    """What the lanes of one place share; None where nobody knows."""
    site: dict[str, Any] = field(default_factory=dict)
    """The site's settings as they hold for these runs."""


class Rehearsal(Value, frozen=True, kw_only=True):
    """What a scheduler says of a submission before it is one."""

    asks: tuple[str, ...] = ()
    """The options that say what one place asks for, in the scheduler's own words."""
    starts_at: float | None = None
    """When the scheduler expects the first place to start; None where it does not say."""


class Finding(NamedTuple):
    """The result of one check of `vtjobs doctor`."""

    name: str
    ok: bool
    text: str
    """What was found."""
    fix: str = ""
    """What to do about it."""


def late(name: str, took_s: float, look_s: float) -> list[Finding]:
    """Return what to set where a scheduler answers, and later than reading commands wait for."""
    if took_s <= look_s:
        return []
    text = f"answered after {took_s:.1f} s; commands that read wait {look_s:g} s (look_s)"
    fix = f"So that they do not show older states, set look_s: {math.ceil(2 * took_s)}"
    return [Finding(f"{name}_late", True, text, fix)]


class Backend(Protocol):
    """A scheduler.

    Every method may raise SchedulerUnreachable, which means "could not ask" and changes nothing.
    """

    name: str
    poll_s: float
    """The scheduler is asked about running work at most so often per workspace."""
    look_s: float
    """How long a command that only reads waits for an answer to that."""
    chains: bool
    """Whether it can start an allocation after another one has ended."""
    hands_on: bool
    """Whether its agents may take a while to hand on what they stopped."""
    shown_words: Mapping[str, str]
    """With what its word for a job begins -> how a run that has started there is shown."""
    explains_by_word: bool
    """Whether `explain` asks nobody: the scheduler's word says it all."""
    goes_on: str
    """How submitted runs go on when nobody looks, and what they need somebody for: a sentence."""
    queue_settings: tuple[str, ...]
    """The site's settings that choose a queue with limits of its own."""
    when_full: str
    """Why a run waits that it has no room for at this time: a sentence."""
    one_machine: bool
    """Whether all runs are on one machine: what is missing there is missing for every run."""
    nodes_change: bool
    """Whether its nodes may be others tomorrow. The GPUs of a run that asks for none in particular
    are then settled when its grid is submitted.
    """

    def cluster(self, site: Mapping[str, Any]) -> str:
        """Return to which of its clusters these settings lead; "" where it has no several.

        One that is away keeps nobody from another one.
        """
        ...

    def by_cluster(self, places: Sequence[Place]) -> dict[str, list[Place]]:
        """Return places by the cluster that they are with; each is observed by itself."""
        ...

    def room(self, shape: Shape, settings: GridSettings) -> Room:
        """Return how runs of this shape share an allocation.

        BadInput where the site can never run one.
        """
        ...

    def rehearse(self, shape: Shape, room: Room) -> Rehearsal | None:
        """Ask the scheduler whether it would ever start such a place, and what it says of one.

        BadInput with its reason where it would not.
        """
        ...

    def default_gpus(self, settings: GridSettings) -> int:
        """Return the GPUs per node of a grid that asks for none in particular."""
        ...

    def default_walltime(self, settings: GridSettings) -> int | None:
        """Return the time limit, in seconds, of a grid that asks for none; None: there is none."""
        ...

    def argv(self, allocation: Allocation) -> tuple[str, ...]:
        """Return the command that submits a successor; see Allocation.argv."""
        ...

    def submit(self, allocation: Allocation) -> Submission:
        """Hand an allocation to the scheduler."""
        ...

    def observe(self, places: Sequence[Place]) -> dict[Key, JobView]:
        """Return what the scheduler says about these places.

        One that cannot be judged yet is left out.
        """
        ...

    def cancel(self, places: Sequence[Place]) -> None:
        """End these places."""
        ...

    def nudge(self, places: Sequence[Place]) -> None:
        """Have the agents at these places look at claims and cancels at once, where that is
        possible.
        """
        ...

    def avoid(self, places: Sequence[Place], nodes: Sequence[str]) -> None:
        """Keep those of these places that still wait off these nodes, where that is possible."""
        ...

    def explain(self, word: str, *, job: str = "", token: str = "") -> Waiting | None:
        """Say why a job waits, from the raw word of its view.

        None where it does not wait or nothing is known.
        """
        ...

    def wake(self) -> None:
        """Keep the queue going, where it is ours to keep."""
        ...

    def is_asleep(self) -> bool:
        """Whether work lies in a queue of ours that nobody serves, as after a reboot."""
        ...
