"""This machine as a scheduler.

A queue on disk, kept going by a process of its own that outlives the terminal.

<workspace>/local/<host>/queue/<token>.json     waiting
                         running/<token>.json   pid, its start time and boot; GPUs, cores
                         ended/<token>.json     exit code, or null where nobody saw it
                         runner.lock            held by the one runner
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ....jobs.atomic_files import make_folder, open_file
from ....jobs.config.backends import elsewhere
from ....jobs.config.config import Config
from ....jobs.config.host import clean_environment, cpu_count, visible_gpus
from ....jobs.config.interpreter import module_command
from ....jobs.errors import BadInput, DamagedFile, Problem
from ....jobs.workspace.allocation import Allocation, Shape, read_allocation
from ....jobs.workspace.grid_settings import GridSettings
from ....jobs.workspace.journal import LEASE_S, SILENT_S
from ....jobs.workspace.paths import Workspace
from ..base import JobState, JobView, Key, Place, Room, Submission, SubmitOutcome, Waiting, WaitKind
from .entries import GONE, End, Need, Running, read, write
from .memory import memory_here
from .runner_lock import RunnerLock
from .secrets import hand_secrets, secrets

MOST_TASKS = 64
LOCK = "runner.lock"


class LocalBackend:
    """The queue of this machine."""

    name = "local"
    poll_s = 0.0
    look_s = 0.0
    chains = False
    hands_on = False
    shown_words: Mapping[str, str] = MappingProxyType({})
    explains_by_word = True
    goes_on = "The runs go on without this terminal, retries and later stages included."
    queue_settings: tuple[str, ...] = ()
    when_full = "it is taken on by its grid's agent as soon as that has a free place"
    one_machine = True
    nodes_change = False

    def __init__(self, workspace: Workspace, *, folder: Path | None = None) -> None:
        self.workspace = workspace
        self.queue = LocalQueue(workspace, folder=folder)

    def cluster(self, site: Mapping[str, Any]) -> str:
        return ""

    def by_cluster(self, places: Sequence[Place]) -> dict[str, list[Place]]:
        return {"": list(places)}

    def room(self, shape: Shape, settings: GridSettings) -> Room:
        slots = settings.site.get("slots")
        if shape.nodes > 1:
            message = f"{shape.nodes} nodes requested, this is one machine"
            raise BadInput(Problem(key="nodes", message=message))
        if shape.gpus:
            present = len(visible_gpus())
            if shape.gpus > present:
                message = f"{shape.gpus} requested, this machine has {present}"
                fix = (
                    "Set resources: {gpus_per_node: 0} to train on the CPU (on the command line: "
                    f"--set resources.gpus_per_node=0), or backend: {elsewhere()} for a cluster"
                )
                raise BadInput(Problem(key="gpus_per_node", message=message, fix=fix))
            most = shape.lanes_on(present)
            return self._room(min(slots or most, most), shape, settings)
        cores = shape.ranks * shape.threads
        if cores > cpu_count():
            need = f"{shape.ranks} ranks of {shape.threads} threads need {cores} cores"
            raise BadInput(
                Problem(key="cpu_ranks", message=f"{need}, this machine has {cpu_count()}")
            )
        return self._room(slots or max(1, cpu_count() // cores), shape, settings)

    def _room(self, lanes: int, shape: Shape, settings: GridSettings) -> Room:
        # An agent that has all lanes takes the grid's further runs on by itself: sooner than a new
        # one starts, which would have to wait for its end. A second one in the queue would be
        # another turn of its grid.
        is_taken = any(
            (one.lanes, one.shape) == (lanes, shape)
            and any(task.grid_id == settings.grid_id for task in one.all_tasks)
            for one in self.queue.turns()
        )
        named = settings.site.get("environment")
        site = {"environment": named} if named else {}
        free = {f"agent of {settings.grid_id}": 0 if is_taken else 1}
        return Room(
            lanes=lanes,
            tasks=MOST_TASKS,
            free=free,
            at_once=1,
            memory=memory_here(),
            site=site,
        )

    def rehearse(self, shape: Shape, room: Room) -> None:
        return

    def default_gpus(self, settings: GridSettings) -> int:
        return 1 if visible_gpus() else 0

    def default_walltime(self, settings: GridSettings) -> int | None:
        return None

    def argv(self, allocation: Allocation) -> tuple[str, ...]:
        module = "vtjobs.orchestrator.backends.local.queue_process"
        root = str(self.workspace.root.resolve())
        return (*module_command(module, "submit", "--workspace", root, "--token", "{token}"),)

    def submit(self, allocation: Allocation) -> Submission:
        self.queue.add(allocation)
        return Submission(outcome=SubmitOutcome.ACCEPTED, job_id=allocation.token)

    def observe(self, places: Sequence[Place]) -> dict[Key, JobView]:
        return {place.key: self.queue.view(place.token) for place in places}

    def cancel(self, places: Sequence[Place]) -> None:
        for place in places:
            self.queue.cancel(place.token)

    def nudge(self, places: Sequence[Place]) -> None:
        for place in places:
            self.queue.signal(place.token, signal.SIGUSR1)

    def avoid(self, places: Sequence[Place], nodes: Sequence[str]) -> None:
        # There is one node.
        return

    def explain(self, word: str, *, job: str = "", token: str = "") -> Waiting | None:
        if word != "queued":
            return None
        return Waiting(
            kind=WaitKind.WAIT,
            reason=word,
            sentence="it waits for free cores or GPUs on this machine",
        )

    def wake(self) -> None:
        self.queue.wake()

    def is_asleep(self) -> bool:
        return self.queue.is_asleep()


def make(config: Config, *, clock: Callable[[], float] = time.time) -> LocalBackend:
    """Make the backend that a configuration names."""
    return LocalBackend(config.workspace, folder=config.folder)


class LocalQueue:
    """The queue's files.

    Args:
        workspace: where they lie.
        folder: where the settings of whoever uses it are found, so that its process can make passes
            with them; None: it makes none.
    """

    def __init__(self, workspace: Workspace, *, folder: Path | None = None) -> None:
        self.workspace = workspace
        self.folder_of_settings = folder
        self.root = workspace.local_queue()

    def folder(self, name: str = "") -> Path:
        """Return a folder of the queue, made if need be.

        Raises:
            WorkspaceUnreadable: the workspace is away: what was made would stand in its way.
        """
        path = self.root / name
        if not path.is_dir():
            self.workspace.check()
        return make_folder(path)

    def entry(self, where: str, token: str) -> Path:
        return self.root / where / f"{token}.json"

    def add(self, allocation: Allocation) -> None:
        """Queue an allocation, unless the queue knows it already."""
        token = allocation.token
        if any(self.entry(where, token).exists() for where in ("running", "ended")):
            return
        write(self.folder("queue") / f"{token}.json", needs(allocation))

    def view(self, token: str) -> JobView:
        """Say where an allocation stands.

        The order of looking follows the order of moving, so none is missed.
        """
        if self.entry("ended", token).exists():
            return JobView(state=JobState.ENDED, job_id=token, raw=self._word(token))
        running = self._agent(self.entry("running", token))
        if running is not None:
            if running.is_alive:
                return JobView(
                    state=JobState.RUNNING,
                    job_id=token,
                    raw=f"pid {running.pid}",
                    starts_at=self._written_at("running", token),
                )
            return JobView(state=JobState.ENDED, job_id=token, raw=f"pid {running.pid} is gone")
        if self.entry("queue", token).exists():
            # With nothing before it, it starts at once.
            starts_at = None if self.running() else self._written_at("queue", token)
            return JobView(state=JobState.QUEUED, job_id=token, raw="queued", starts_at=starts_at)
        if self.entry("running", token).exists() or self.entry("ended", token).exists():
            return self.view(token)
        return self._view_elsewhere(token)

    def _word(self, token: str) -> str:
        """Return how an allocation ended, as far as its file says."""
        try:
            ended = read(self.entry("ended", token), End)
        except ValueError:
            return ""
        return ended.word if ended is not None else ""

    def _agent(self, path: Path) -> Running | None:
        """Return the agent that a file of the queue names, dead or alive."""
        try:
            return read(path, Running)
        except ValueError:
            return GONE

    def _need(self, path: Path) -> Need | None:
        """Return what a queued allocation needs; where its file is damaged, from the allocation."""
        try:
            return read(path, Need)
        except ValueError:
            pass
        try:
            allocation = read_allocation(self.workspace.allocation(path.stem))
        except DamagedFile:
            allocation = None
        # Without both its agent starts, finds no runs and says so.
        return Need(created_at=0.0, gpus=0, cores=1) if allocation is None else needs(allocation)

    def _written_at(self, where: str, token: str) -> float | None:
        try:
            return self.entry(where, token).stat().st_mtime
        except FileNotFoundError:
            return None

    def _view_elsewhere(self, token: str) -> JobView:
        """Look into the queues of the other hosts that share the workspace.

        Their processes cannot be seen from here.

        A queue whose runner has given no sign of life for a lease is given up, with all that it
        holds.
        """
        for folder in self.root.parent.glob("*"):
            if folder == self.root:
                continue
            where = [
                name
                for name in ("ended", "running", "queue")
                if (folder / name / f"{token}.json").exists()
            ]
            if not where or "ended" in where or not _is_served(folder):
                state = JobState.ENDED if where else JobState.ABSENT
            else:
                state = JobState.RUNNING if "running" in where else JobState.QUEUED
            if where:
                return JobView(state=state, job_id=token, raw=f"{where[0]} on {folder.name}")
        return JobView(state=JobState.ABSENT)

    def cancel(self, token: str) -> None:
        """End an allocation: out of the queue, or a TERM to its agent."""
        queued = self.entry("queue", token)
        if queued.exists() and not self.entry("running", token).exists():
            write(self.folder("ended") / queued.name, End(code=None, word="cancelled in the queue"))
            queued.unlink(missing_ok=True)
        self.signal(token, signal.SIGTERM)

    def signal(self, token: str, number: int) -> None:
        """Signal the agent of an allocation, if it is the process that we started."""
        running = self._agent(self.entry("running", token))
        if running is not None and running.is_alive:
            try:
                os.kill(running.pid, number)
            except ProcessLookupError:
                return

    def waiting(self) -> list[tuple[str, Need]]:
        """Return the queued allocations, oldest first."""
        found = []
        for path in (self.root / "queue").glob("vtj-*.json"):
            need = self._need(path)
            if need is not None:
                found.append((path.stem, need))
        return sorted(found, key=lambda item: (item[1].created_at, item[0]))

    def running(self) -> dict[str, Running]:
        """Return the allocations that have an agent, dead or alive."""
        paths = sorted((self.root / "running").glob("vtj-*.json"))
        return {path.stem: entry for path in paths if (entry := self._agent(path)) is not None}

    def turns(self) -> Iterator[Allocation]:
        """Yield the allocations that have an agent, and those that wait for their grid's next turn:
        they were handed on, or have as many runs as one may.
        """
        running = self.running()
        for token in dict.fromkeys([*running, *(token for token, _ in self.waiting())]):
            with contextlib.suppress(DamagedFile):
                one = read_allocation(self.workspace.allocation(token))
                if one is None:
                    continue
                if token in running or one.handed_on or len(one.all_tasks) >= MOST_TASKS:
                    yield one

    def wake(self) -> None:
        """Start a runner where there is work and nobody does it."""
        if not self.waiting() and not self.running():
            return
        with self.lock() as free:
            if not free:
                return
        log = open_file(self.root / "runner.log", os.O_WRONLY | os.O_APPEND)
        module = "vtjobs.orchestrator.backends.local.queue_process"
        command = module_command(module, "run", "--workspace", str(self.workspace.root.resolve()))
        if self.folder_of_settings is not None:
            command += ["--folder", str(self.folder_of_settings.resolve())]
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=clean_environment(),
                cwd="/",
            )
            hand_secrets(process, secrets())
        finally:
            os.close(log)

    def is_asleep(self) -> bool:
        """Whether there is work, and its runner has given no sign of life for some time."""
        if not self.waiting() and not self.running():
            return False
        return not _is_served(self.root, within_s=SILENT_S)

    def show_life(self) -> None:
        """Tell other hosts that this queue is served."""
        path = self.folder() / LOCK
        os.close(open_file(path, os.O_WRONLY))
        os.utime(path)

    def lock(self) -> RunnerLock:
        return RunnerLock(self.folder() / LOCK)


def needs(allocation: Allocation) -> Need:
    """Return what an allocation takes of this machine."""
    shape = allocation.shape
    return Need(
        created_at=allocation.created_at,
        gpus=shape.gpus_of(allocation.lanes),
        cores=min(cpu_count(), allocation.lanes * shape.ranks * shape.threads),
    )


def _is_served(folder: Path, *, within_s: float = LEASE_S) -> bool:
    try:
        return time.time() - (folder / LOCK).stat().st_mtime < within_s
    except FileNotFoundError:
        return False
