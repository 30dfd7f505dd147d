"""What an agent must know of the scheduler that started it on a node."""

import os
import signal
import socket
from collections.abc import Sequence

from ..run.states import AttemptState
from ..values import Value
from ..workspace.paths import Workspace
from .backends import part


class Ruling(Value, frozen=True, kw_only=True):
    """What a stop is called, and whether the scheduler said so."""

    state: AttemptState
    explained: bool = True
    """Whether the scheduler named the cause. If not, it may be the user's wish to end the run, and
    nothing is handed on.
    """
    signature: str = ""


class Queued(Value, frozen=True, kw_only=True):
    """An allocation that the scheduler has."""

    token: str
    waits: bool
    """Whether it waits for what the agent that asks has; if not, it is at work."""


UNEXPLAINED = Ruling(state=AttemptState.PREEMPTED, explained=False)


class OnNode:
    """A scheduler as an agent on one of its nodes sees it.

    This one starts agents and sends them TERM to end them. A scheduler that does more has a
    subclass, named `ON_NODE` in the module `on_node` of its package.
    """

    job = ""
    """The scheduler's id of the job that this process belongs to."""
    restarts = 0
    """How often the scheduler has started this job before."""
    signals_walltime = False
    """Whether it sends USR2 before the walltime ends; if not, the agent keeps the time itself."""
    explains_stops = False
    """Whether `why_stopped` may learn more of a TERM than that it came."""
    waits: bool = False
    """Whether an agent waits for the end of a retry's back-off. If not, somebody else starts it."""
    delays: bool = False
    """Whether it can be asked to start a job only after some time."""
    avoids: bool = False
    """Whether it can keep a job away from a node."""
    one_machine: bool = False
    """Whether all runs are on this machine: what is missing here is missing for every run."""
    term_grace_s: float | None = None
    """Seconds between its TERM and its KILL; None where it sends no KILL."""

    keeps_order: bool = False
    """Whether it starts jobs in the order in which they were submitted."""

    def index(self) -> int:
        """Return which element of the job's array this is, from 0."""
        return 0

    def node(self) -> int:
        """Return which node of the allocation this is, from 0."""
        return 0

    def host(self) -> str:
        """Return the scheduler's name of this node, by which it can be told to avoid it."""
        return os.environ.get("VTJOBS_NODE") or socket.gethostname()

    def why_stopped(self) -> Ruling | None:
        """Return why a TERM came; None while that is still being asked.

        Called again and again from the agent's loop, so it never waits.
        """
        return UNEXPLAINED

    def submits(self) -> bool:
        """Whether a successor can be submitted from here."""
        return True

    def question(self) -> list[str]:
        """Return the command that shows whether the scheduler answers on this node.

        It succeeds if it does. Empty where that is no question.
        """
        return []

    def successor(
        self,
        argv: Sequence[str],
        token: str,
        *,
        exclude: Sequence[str] = (),
        waits: bool = True,
        delay_s: float = 0.0,
    ) -> list[str]:
        """Return the command that submits a successor.

        Args:
            argv: the allocation's own; see Allocation.argv.
            token: the successor's.
            exclude: nodes that it shall not run on. What the successor's file says of them holds as
                well.
            waits: whether it starts only after this job has ended.
            delay_s: how long it waits at least, in seconds, where the scheduler `delays`.
        """
        return [part.replace("{token}", token).replace("{job}", self.job) for part in argv]

    def handed_on(self, reply: str, argv: Sequence[str]) -> None:
        """Tell the scheduler that another job goes on with what this one served.

        Args:
            reply: to the command that submitted that job.
            argv: the allocation's own; see Allocation.argv.
        """

    def may_start_again(self) -> bool:
        """Whether the scheduler can be asked to put this job back into its queue."""
        return False

    def start_again(self) -> bool:
        """Put this job back into the queue; return whether the scheduler does so.

        It ends this process soon after, or before this returns.
        """
        return False

    def start_no_more(self) -> None:
        """Have the scheduler not start this job again by itself, now that it has done so."""

    def queue(self, workspace: Workspace, token: str) -> list[Queued]:
        """Return the workspace's allocations that wait for what an agent has, or are at work.

        Nothing where the scheduler itself sees to it that everybody gets a turn, or cannot be
        asked.

        Args:
            workspace: where the allocations lie.
            token: the allocation of the agent that asks.
        """
        return []

    def environment(self) -> dict[str, str]:
        """Return what the command that submits a successor needs beside `clean_environment()`."""
        return {}


def ignore_signals() -> None:
    """Let a command outlive the signals of its job (as its preexec_fn).

    Schedulers send TERM to every process of a job, some of them twice.
    """
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)


def on_node(backend: str) -> OnNode:
    """Return what a backend's agents know of it here.

    Raises:
        BadInput: there is no such backend.
    """
    module = part(backend, "on_node")
    found: OnNode = OnNode() if module is None else module.ON_NODE()
    return found
