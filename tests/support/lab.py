"""A workspace driven from the test's own process.

Its queue, agents, templates and ranks are real.
"""

import dataclasses
import hashlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import func, select

from vtjobs.db import models as m
from vtjobs.db.engine import reading
from vtjobs.jobs.atomic_files import to_json, write_new
from vtjobs.jobs.config.config import load_config
from vtjobs.jobs.run.states import RunState
from vtjobs.jobs.values import changed
from vtjobs.jobs.workspace.allocation import HANG_S, Allocation, Shape, Task
from vtjobs.jobs.workspace.lineage import AttemptRecord, read_attempt
from vtjobs.orchestrator.backends.base import Room
from vtjobs.orchestrator.backends.local.backend import LocalBackend
from vtjobs.orchestrator.loop.context import Context, open_context
from vtjobs.orchestrator.loop.plan import pack
from vtjobs.orchestrator.loop.tick import tick
from vtjobs.orchestrator.requests.submit import Prepared, prepare, submit
from vtjobs.workers.agent.attempt import HostedRun
from vtjobs.workers.agent.lanes import Lane
from vtjobs.workers.agent.template_client import Forge

from .grids import write_grid

PATIENCE_S = 90.0


class SleepingBackend(LocalBackend):
    """The queue of this machine on a day when nobody serves it: entries stay where they are."""

    def wake(self) -> None:
        return


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead_s


@dataclasses.dataclass
class Lab:
    """A folder with a workspace, its ledger and, if wanted, a queue that nobody serves."""

    folder: Path
    asleep: bool = False
    clock: Clock = dataclasses.field(default_factory=Clock)
    _context: Context | None = None

    @property
    def root(self) -> Path:
        return self.folder / "runs"

    @property
    def context(self) -> Context:
        if self._context is None:
            self._context = self.open()
        return self._context

    def open(self) -> Context:
        """Open the workspace as another process would: with a ledger connection of its own."""
        config = load_config(
            {},
            environ={"HOME": str(self.folder), "VTJOBS_WORKSPACE": str(self.root)},
            folder=self.folder,
        )
        context = open_context(config, create=True, clock=self.clock)
        if self.asleep:
            context._backends["local"] = SleepingBackend(context.workspace)
        return context

    def lose_ledger(self) -> None:
        """Remove the ledger's files, and open the workspace anew."""
        self.context.ledger.engine.dispose()
        for path in self.root.glob("ledger.sqlite*"):
            path.unlink()
        self._context = self.open()

    def prepare(self, text: str) -> Prepared:
        path = self.folder / "grid.yaml"
        write_grid(path, text)
        return prepare(self.context.config, str(path), changes={}, max_runs=1000, at=time.time())

    def submit(self, text: str) -> list[str]:
        """Store a grid; return its runs in order. Nothing starts before a tick."""
        prepared = self.prepare(text)
        submit(self.context, prepared)
        return [run[0] for run in prepared.frozen.runs]

    def tick(self, *, start: bool = True) -> None:
        tick(self.context, start=start)

    def allocate(
        self, run_ids: Sequence[str], *, lanes: int = 1, hang_s: float = HANG_S, clean: bool = False,
        argv: tuple[str, ...] = (), paths: dict[str, str] | None = None, **shape: Any,
    ) -> Allocation:  # fmt: skip
        """Put runs into an allocation of this shape and write it down, as a submitter does.

        Nobody serves it yet.
        """
        number = (
            select(func.max(m.attempts.c.number))
            .where(m.attempts.c.run_id == m.runs.c.run_id)
            .scalar_subquery()
        )
        query = select(m.runs, number.label("last"))
        with reading(self.context.ledger.engine) as connection:
            rows = {
                row.run_id: row
                for row in connection.execute(query.where(m.runs.c.run_id.in_(run_ids)))
            }
        candidates = [
            Task(run_id=run_id, grid_id=row.grid_id, clean=clean, attempt=self._next_number(row))
            for run_id, row in ((run_id, rows[run_id]) for run_id in run_ids)
        ]
        (made,) = pack(
            candidates, Shape(**{"backend": "local"} | shape), Room(lanes=lanes, tasks=64), at=time.time(),
            data_root=str(self.folder / "data"), paths=paths or {},
        )  # fmt: skip
        made = changed(made, hang_s=hang_s, argv=argv)
        opened = self.context.ledger.open_attempts(made, launching_s=60)
        assert opened is not None, "no run was pending"
        write_new(self.context.workspace.allocation(made.token), to_json(opened.to_dict()))
        self.context.ledger.accepted(made.token, made.token, source="local")
        return opened

    def _next_number(self, row: Any) -> int:
        folder = self.run(row.run_id)
        return max(folder.highest_claim(), folder.highest_cancel(), row.last or 0) + 1

    def host(
        self, allocation: Allocation, forge: Forge, *, position: int = 0, lane: int | None = None
    ) -> HostedRun:
        """Start one attempt of an allocation in the hands of this process, in a lane of its own or
        in this one.
        """
        hosted = HostedRun(
            self.context.workspace,
            allocation,
            allocation.tasks[0][position],
            Lane(index=position if lane is None else lane),
            forge,
        )
        hosted.start()
        return hosted

    # What happened --------------------------------------------------------------------------------

    def run(self, run_id: str) -> Any:
        return self.context.workspace.run(run_id)

    def record(self, run_id: str, attempt: int) -> AttemptRecord:
        return read_attempt(self.run(run_id), attempt)

    def state(self, run_id: str) -> str:
        with reading(self.context.ledger.engine) as connection:
            return str(
                connection.execute(
                    select(m.runs.c.state).where(m.runs.c.run_id == run_id)
                ).scalar_one()
            )

    def states(self) -> dict[str, str]:
        with reading(self.context.ledger.engine) as connection:
            return {
                row.run_id: row.state
                for row in connection.execute(select(m.runs.c.run_id, m.runs.c.state))
            }

    def attempts(self, run_id: str) -> list[Any]:
        """Return the attempts of a run as the ledger has them."""
        query = (
            select(m.attempts).where(m.attempts.c.run_id == run_id).order_by(m.attempts.c.number)
        )
        with reading(self.context.ledger.engine) as connection:
            return list(connection.execute(query))

    def finish(self, *, seconds: float = PATIENCE_S) -> dict[str, str]:
        """Tick until every run is settled; return the states."""
        self.wait(
            lambda: (
                self.tick(),
                all(RunState(state).is_settled for state in self.states().values()),
            )[1],
            seconds,
        )
        return self.states()

    def wait(self, until: Callable[[], Any], seconds: float = PATIENCE_S) -> Any:
        """Wait until something is true."""
        return wait_for(until, seconds)

    def weights(self, run_id: str) -> str:
        """Return the hash of a completed run's final weights."""
        return weights_of(self.root, run_id)


def weights_of(root: Path, run_id: str) -> str:
    """Return the hash of the last published weights of a run."""
    found = sorted(
        (root / run_id[:2] / run_id / "attempts").glob("*/checkpoints/step-*/model.safetensors")
    )
    assert found, f"run {run_id} has no weights"
    newest = max(found, key=lambda path: (int(path.parent.name[5:]), path.parts[-4]))
    return hashlib.sha256(newest.read_bytes()).hexdigest()


def wait_for(until: Callable[[], Any], seconds: float = PATIENCE_S) -> Any:
    """Poll until something is true; return it."""
    deadline = time.monotonic() + seconds
    while True:
        began = time.monotonic()
        if found := until():
            return found
        took = time.monotonic() - began
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s"
        # A look that starts a process leaves the machine to the others for as long.
        time.sleep(min(1.0, max(0.05, took)))


def serve(
    forge: Forge,
    *hosted: HostedRun,
    until: Callable[[], Any] | None = None,
    seconds: float = PATIENCE_S,
) -> None:
    """Do what an agent does.

    Listen and tick, until all attempts have ended or something is true.
    """

    def step() -> bool:
        forge.hear()
        forge.dismiss()
        for one in hosted:
            if one.ended is None:
                one.tick()
        return bool(until() if until is not None else all(one.ended is not None for one in hosted))

    wait_for(step, seconds)


@contextmanager
def a_template() -> Iterator[Forge]:
    """A warm template of the test's own."""
    forge = Forge(threads=1, log=os.open(os.devnull, os.O_WRONLY))
    try:
        wait_for(lambda: (forge.hear(), forge.ready)[1])
        yield forge
    finally:
        forge.close()


def templates(pid: int) -> list[int]:
    """Return the templates of an agent: before them it may ask its scheduler, by other children."""
    found = []
    for child in children(pid):
        try:
            words = Path(f"/proc/{child}/cmdline").read_bytes()
        except OSError:
            continue
        if b"vtjobs.workers.ranks.template" in words:
            found.append(child)
    return found


def children(pid: int) -> list[int]:
    """Return the processes that a process started and that still live."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid and fields[0] != "Z":
            found.append(int(entry.name))
    return sorted(found)


def parent_of(pid: int) -> int:
    """Return the process that started a process, or that has adopted it."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def is_running(pid: int) -> bool:
    """Whether a process lives, zombies not counted."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
