"""Its scheduler: each allocation is a process, and a file that says which."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from vtjobs.jobs.atomic_files import make_folder
from vtjobs.jobs.config.config import Config
from vtjobs.jobs.config.environment import job_environment, named_variables
from vtjobs.jobs.errors import BadInput, Problem
from vtjobs.jobs.workspace.allocation import Allocation, Shape
from vtjobs.jobs.workspace.grid_settings import GridSettings
from vtjobs.orchestrator.backends.base import (
    JobState,
    JobView,
    Key,
    Place,
    Room,
    Submission,
    SubmitOutcome,
    Waiting,
)
from vtjobs.orchestrator.backends.local.entries import (
    ProcessIdentity,
    process_identity,
    read,
    write,
)


class NohupBackend:
    """Processes of this machine."""

    name = "nohup"
    poll_s = 0.0
    look_s = 0.0
    chains = False
    hands_on = False
    shown_words: Mapping[str, str] = MappingProxyType({})
    explains_by_word = True
    queue_settings: tuple[str, ...] = ()
    when_full = "it waits for this machine"
    goes_on = "The runs go on without this terminal."
    one_machine = True
    nodes_change = False

    def __init__(self, config: Config) -> None:
        self.workspace = config.workspace
        self.folder = self.workspace.root / "nohup"

    def cluster(self, site: Mapping[str, Any]) -> str:
        return ""

    def by_cluster(self, places: Sequence[Place]) -> dict[str, list[Place]]:
        return {"": list(places)}

    def room(self, shape: Shape, settings: GridSettings) -> Room:
        if shape.gpus:
            raise BadInput(Problem(key="gpus_per_node", message="this backend has no GPUs"))
        live = sum(
            entry.is_alive
            for path in self.folder.glob("*.json")
            if (entry := read(path, ProcessIdentity))
        )
        return Room(
            lanes=1,
            tasks=1,
            free={"limit": max(0, settings.site["limit"] - live)},
            site=settings.site,
        )

    def rehearse(self, shape: Shape, room: Room) -> None:
        return

    def default_gpus(self, settings: GridSettings) -> int:
        return 0

    def default_walltime(self, settings: GridSettings) -> int | None:
        return None

    def argv(self, allocation: Allocation) -> tuple[str, ...]:
        return ()

    def submit(self, allocation: Allocation) -> Submission:
        command = [sys.executable, "-m", "vtjobs.workers.agent"]
        command += ["--workspace", str(self.workspace.root.resolve()), "--token", allocation.token]
        log = make_folder(self.folder) / f"{allocation.token}.log"
        with log.open("ab") as stream:
            started = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                start_new_session=True,
                env=job_environment(named_variables(allocation.site)),
            )
        entry = process_identity(started.pid) or ProcessIdentity(pid=0, started="", boot="")
        write(self.folder / f"{allocation.token}.json", entry)
        return Submission(outcome=SubmitOutcome.ACCEPTED, job_id=str(started.pid))

    def observe(self, places: Sequence[Place]) -> dict[Key, JobView]:
        return {place.key: self._view(place.token) for place in places}

    def _view(self, token: str) -> JobView:
        entry = read(self.folder / f"{token}.json", ProcessIdentity)
        if entry is None:
            return JobView(state=JobState.ABSENT)
        state = JobState.RUNNING if entry.is_alive else JobState.ENDED
        return JobView(state=state, job_id=str(entry.pid), raw=f"pid {entry.pid}")

    def cancel(self, places: Sequence[Place]) -> None:
        self._signal(places, signal.SIGTERM)

    def avoid(self, places: Sequence[Place], nodes: Sequence[str]) -> None:
        return

    def nudge(self, places: Sequence[Place]) -> None:
        self._signal(places, signal.SIGUSR1)

    def _signal(self, places: Sequence[Place], number: int) -> None:
        for place in places:
            entry = read(self.folder / f"{place.token}.json", ProcessIdentity)
            if entry is not None and entry.is_alive:
                os.kill(entry.pid, number)

    def explain(self, word: str, *, job: str = "", token: str = "") -> Waiting | None:
        return None

    def wake(self) -> None:
        return

    def is_asleep(self) -> bool:
        return False


def make(config: Config, *, clock: Callable[[], float] = time.time) -> NohupBackend:
    return NohupBackend(config)
