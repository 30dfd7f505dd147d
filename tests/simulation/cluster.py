"""SLURM as it was measured.

Array jobs, lost replies, late accounting, zombies, preemption, walltime.

Its face is text: what squeue, sacct, sinfo and scontrol would print. So all of the backend but the
calls themselves is the product's own.
"""

from __future__ import annotations

import os
import pwd
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vtjobs.jobs.atomic_files import read_json
from vtjobs.jobs.errors import SchedulerSlow, SchedulerUnreachable
from vtjobs.jobs.workspace.allocation import Allocation
from vtjobs.jobs.workspace.paths import Workspace
from vtjobs.orchestrator.backends.slurm.shell import CommandFailed, NoAccounting

from .books import Books, ranges
from .profile import Profile
from .world import World

if TYPE_CHECKING:
    from .agent import Agent
    from .watch import Watch

LIVE = ("PENDING", "RUNNING", "SUSPENDED", "COMPLETING")
KILL_WAIT_S = 30.0
# A job that was put back begins so long after it at the earliest.
PUT_BACK_S = 120.0
WORDS = {"cancelled": "CANCELLED", "preempted": "PREEMPTED", "timeout": "TIMEOUT"}


@dataclass(slots=True, eq=False)
class Element:
    """One element of an array, or a job that is none."""

    job: Job
    index: int
    state: str = "PENDING"
    node: str = ""
    ended_at: float | None = None
    cause: str = ""
    """Why it was told to end, as scontrol would explain it."""
    cut_off: bool = False
    """SLURM has lost its node: its processes are out of reach."""
    agent: Agent | None = None
    restarts: int = 0
    """How often somebody has put it back into the queue."""
    begins_at: float = 0.0
    is_held: bool = False

    @property
    def is_live(self) -> bool:
        return self.state in LIVE


@dataclass(slots=True, eq=False)
class Job:
    """A job of the queue."""

    id: int
    token: str
    submitted_at: float
    is_array: bool
    after: list[str]
    excluded: set[str]
    by_pass: bool
    """Whether a pass submitted it, and not an agent that handed on."""
    elements: list[Element] = field(default_factory=list)


class Cluster:
    """The controller and its nodes."""

    def __init__(self, world: World, profile: Profile, workspace: Workspace) -> None:
        self.world = world
        self.profile = profile
        self.workspace = workspace
        self.books = Books(world, profile)
        self.jobs: dict[int, Job] = {}
        # Ended ones as well, until they are forgotten.
        self.all_jobs: list[Job] = []
        self.pending: list[Element] = []
        self.holes = {f"gpu{number}" for number in range(profile.black_holes)}
        self.free = profile.nodes
        self.is_up = True
        self.calm = False
        # No more faults.
        self.held_back: list[tuple[Any, ...]] = []
        # What clients sent while the controller stood still.
        self.watch: Watch
        self._numbers = 100
        self._scheduling = False

    # Asked by the product -------------------------------------------------------------------------

    def ask(self, command: Sequence[str]) -> str:
        """Answer a command of SLURM's."""
        name = command[0]
        if name == "sacct":
            return self._sacct(command)
        if name == "sacctmgr":
            return self._sacctmgr(command)
        self._controller_answers(command)
        return self._answer(command)

    def _sacctmgr(self, command: Sequence[str]) -> str:
        if not self.profile.accounting or not self.books.is_up:
            raise SchedulerUnreachable("sacctmgr: Connection refused")
        return "lab||normal|normal\n" if "associations" in command else "normal||||\n"

    def _controller_answers(self, command: Sequence[str]) -> None:
        """Wait as a client does whose controller is away; it may come back in time."""
        if self.is_up:
            return
        name = command[0]
        self.world.run_until(self.world.now + 9.5)
        is_end = name == "scancel" and not command[2].startswith("--signal")
        if is_end and self.world.chance(0.5):
            # The controller gets to it once it goes on, though the client has given up.
            self.held_back.append((self.scancel, command[2:]))
        if self.is_up:
            return
        # Whether it is gone or stands still.
        if int(self.world.now) % 2:
            raise SchedulerSlow(f"{name}: Socket timed out on send/recv operation")
        raise SchedulerUnreachable(f"{name}: Unable to contact slurm controller (connect failure)")

    def _answer(self, command: Sequence[str]) -> str:
        name = command[0]
        match name:
            case "squeue" if "--states=PENDING" in command:
                return "\n".join(self._exclusions())
            case "squeue":
                return "\n".join(line for job in self.jobs.values() for line in self._lines(job))
            case "scancel":
                self._scancel(command[2:])
                return ""
            case "sdiag":
                return f"\tDBD Agent queue size: {self.books.unsent()}\n"
            case "sinfo":
                return (
                    f"gpu*|up|1-00:00:00|NO|{self.profile.nodes}|32|1|0|(null)|gpu:v100:8(S:0-1)\n"
                )
            case "scontrol":
                return self._scontrol(command)
        raise AssertionError(f"not expected: {command}")

    def _exclusions(self) -> list[str]:
        """List what waits with the nodes that it does not go to."""
        return [
            f"{job.id}|{','.join(sorted(job.excluded))}|{job.token}"
            for job in self.jobs.values()
            if any(element.state == "PENDING" for element in job.elements)
        ]

    def _exclude(self, command: Sequence[str]) -> str:
        wanted = dict(word.split("=", 1) for word in command[2:])
        job = self.jobs.get(int(wanted["JobId"]))
        if job is None or all(element.state != "PENDING" for element in job.elements):
            said = "Job is no longer pending execution"
            raise CommandFailed(f"scontrol: {said}", said)
        job.excluded = set(wanted["ExcNodeList"].split(","))
        self.world.note(f"{job.id} kept off {wanted['ExcNodeList']}")
        return ""

    def _scontrol(self, command: Sequence[str]) -> str:
        if "update" in command:
            return self._exclude(command)
        if "assoc_mgr" in command:
            user = pwd.getpwuid(os.getuid()).pw_name
            most = "N" if self.profile.max_jobs is None else self.profile.max_jobs
            return (
                f"ClusterName=dev Account=lab UserName={user}({os.getuid()}) Partition= Priority=0\n"
                "    ParentAccount= Lft=3 DefAssoc=Yes\n"
                f"    MaxJobs= MaxJobsAccrue= MaxSubmitJobs={most}({self.count()}) MaxWallPJ=\n"
            )
        if "partition" in command:
            return "PartitionName=gpu AllowGroups=ALL QoS=N/A State=UP\n"
        enforced = "associations,limits" if self.profile.accounting else "none"
        return (
            f"MaxArraySize            = {self.profile.array_size}\n"
            "MaxJobCount             = 100000\n"
            f"AccountingStorageEnforce = {enforced}\nBOOT_TIME               = 1\n"
        )

    def _sacct(self, command: Sequence[str]) -> str:
        if not self.profile.accounting:
            raise NoAccounting("Slurm accounting storage is disabled")
        if not self.books.is_up:
            raise SchedulerUnreachable(
                "sacct: error: Problem talking to the database: Connection refused"
            )
        names = next(
            (part.partition("=")[2] for part in command if part.startswith("--name=")), None
        )
        return self.books.text(None if names is None else set(names.split(",")))

    def _lines(self, job: Job) -> list[str]:
        found = []
        waiting: dict[str, set[int]] = defaultdict(set)
        for element in job.elements:
            if element.state == "PENDING":
                waiting["JobHeldAdmin" if element.is_held else "Priority"].add(element.index)
        for reason, indices in waiting.items():
            place = ranges(indices) if job.is_array else "N/A"
            found.append(f"{job.id}|{place}|PENDING|{reason}||N/A|N/A|{job.token}")
        for element in job.elements:
            if element.state == "PENDING":
                continue
            place = str(element.index) if job.is_array else "N/A"
            end = "N/A" if element.ended_at is None else f"{element.ended_at:.0f}"
            where = f"{element.state}|None|{element.node}"
            found.append(f"{job.id}|{place}|{where}|{end}|N/A|{job.token}")
        return found

    def _scancel(self, arguments: Sequence[str]) -> None:
        if arguments[0].startswith("--signal"):
            # A nudge: agents look at claims and cancels within seconds anyway.
            return
        # With a name, as scancel has it: of the jobs that are listed, those that are called so.
        token = next(
            (word.removeprefix("--name=") for word in arguments if word.startswith("--name=")), None
        )
        self.scancel([word for word in arguments if not word.startswith("--")], token=token)
        if not self.calm and self.world.chance(self.profile.lost_reply / 4):
            raise SchedulerUnreachable("scancel: Socket timed out on send/recv operation")

    # Submission -----------------------------------------------------------------------------------

    def sbatch(
        self,
        token: str,
        *,
        places: int,
        after: Sequence[str] = (),
        exclude: Sequence[str] = (),
        by_pass: bool = False,
    ) -> Job:
        """Take in a job."""
        self._numbers += 1
        job = Job(
            id=self._numbers,
            token=token,
            submitted_at=self.world.now,
            is_array=places > 1,
            after=list(after),
            excluded=set(exclude),
            by_pass=by_pass,
        )
        job.elements = [Element(job, index) for index in range(places)]
        self.jobs[job.id] = job
        self.all_jobs.append(job)
        self.pending += job.elements
        self.books.opened(job)
        self.world.note(f"sbatch {token} -> {job.id} x{places}")
        self.schedule_soon()
        return job

    def count(self) -> int:
        """Return the elements that count against the user's limit."""
        return sum(element.is_live for job in self.jobs.values() for element in job.elements)

    def continue_(self) -> None:
        """Go on after an outage, with what clients sent meanwhile."""
        self.is_up = True
        waiting, self.held_back = self.held_back, []
        for action, *arguments in waiting:
            action(*arguments)
        self.world.note("controller up")
        self.schedule_soon()

    # Scheduling -----------------------------------------------------------------------------------

    def schedule_soon(self) -> None:
        if not self._scheduling:
            self._scheduling = True
            self.world.after(self.world.between(0.5, 3.0), self._schedule)

    def _schedule(self) -> None:
        self._scheduling = False
        if not self.is_up:
            return
        waiting: list[Element] = []
        for element in self.pending:
            if element.state != "PENDING":
                continue
            waits = element.is_held or element.begins_at > self.world.now
            waits |= any(self._is_waited_for(name) for name in element.job.after)
            if self.free <= 0 or waits:
                waiting.append(element)
                continue
            self._start(element)
        self.pending = waiting

    def _is_waited_for(self, name: str) -> bool:
        number, _, index = name.partition("_")
        job = self.jobs.get(int(number))
        elements = job.elements if job else []
        return any(
            element.is_live for element in elements if not index or element.index == int(index)
        )

    def _start(self, element: Element) -> None:
        self.free -= 1
        element.state = "RUNNING"
        element.node = self._node(element.job)
        self.workspace.agent_log(element.job.token, element.index, 0).touch()
        self.books.changed(element, "RUNNING")
        is_hole = element.node in self.holes
        if is_hole:
            self.watch.taken_by_hole(element)
        fate = "never_started" if is_hole else self._fate()
        if fate == "never_started":
            self.world.note(f"{element.job.id}_{element.index} never started on {element.node}")
            self.world.after(self.world.between(0.1, 2.0), self.end, element, "FAILED")
            return
        self.world.after(self.world.between(0.3, 2.0), self._boot, element, fate)

    def _node(self, job: Job) -> str:
        """Choose a node. Those where every job ends at once are free more often than others."""
        open_holes = sorted(self.holes - job.excluded)
        if open_holes and self.world.chance(0.5):
            return self.world.random.choice(open_holes)
        return f"gpu{self.world.random.randrange(len(self.holes), self.profile.nodes)}"

    def _fate(self) -> str | None:
        if self.calm or not self.world.chance(self.profile.fault):
            return None
        fates = self.profile.fates
        return self.world.random.choices(list(fates), list(fates.values()))[0]

    def _boot(self, element: Element, fate: str | None) -> None:
        from .agent import Agent

        if element.state != "RUNNING":
            return
        data = read_json(self.workspace.allocation(element.job.token))
        if data is None:
            self.end(element, "FAILED")
            return
        content = Allocation.from_dict(data)
        element.agent = Agent(self, element, content)
        shape = content.shape
        if shape.walltime_s:
            agent, late = element.agent, self.world.between(0, 17)
            self.world.after(shape.walltime_s - shape.lead_s, self._warn, element, agent)
            self.world.after(shape.walltime_s + late, self._time_out, element, agent)
        if fate is not None:
            usual = self.profile.epochs * 45.0
            late = self.world.between(0.0, 1.1 * usual)
            self.world.after(late, self._befall, element, fate, element.agent)
        element.agent.start()

    def _warn(self, element: Element, agent: Agent) -> None:
        if element.state == "RUNNING" and not element.cut_off and element.agent is agent:
            agent.usr2()

    def _time_out(self, element: Element, agent: Agent) -> None:
        if element.cut_off or element.agent is not agent:
            return
        if element.state == "SUSPENDED":
            # Its clock stands still.
            self.world.after(60.0, self._time_out, element, agent)
        elif element.state == "RUNNING":
            self.terminate(element, "timeout", KILL_WAIT_S)

    # Faults ---------------------------------------------------------------------------------------

    def _befall(self, element: Element, fate: str, agent: Agent) -> None:
        is_over = element.agent is not agent or not agent.is_alive
        if element.state != "RUNNING" or is_over or self.calm:
            return
        self.world.note(f"{element.job.id}_{element.index} {fate}")
        detected = self.world.between(20.0, 320.0)
        match fate:
            case "node_dead":
                element.cut_off = True
                agent.kill()
                self.world.after(detected, self._lose_node, element)
            case "node_zombie":
                element.cut_off = True
                self.world.after(detected, self._lose_node, element)
                if self.world.chance(0.5):
                    # slurmd comes back, and ends what is not its any more.
                    self.world.after(detected + self.world.between(0.0, 400.0), agent.kill)
            case "admin_down":
                agent.kill()
                self.end(element, "NODE_FAIL")
            case "preempted":
                self.terminate(element, "preempted", self.world.between(8.0, 60.0))
            case "preempted_at_once":
                self.terminate(element, "preempted", 0.0)
            case "stalled":
                agent.freeze(self.world.between(20.0, 900.0))
            case _:
                agent.kill()
                word = {
                    "agent_killed": "FAILED",
                    "no_record": "COMPLETED",
                    "out_of_memory": "OUT_OF_MEMORY",
                }[fate]
                self.end(element, word)

    def _lose_node(self, element: Element) -> None:
        if element.is_live:
            self._finish(element, "NODE_FAIL")

    # Administrators -------------------------------------------------------------------------------

    def administrate(self) -> None:
        """Hold a job that waits, or suspend or requeue one that runs."""
        live = [element for job in self.jobs.values() for element in job.elements]
        waiting = [e for e in live if e.state == "PENDING" and not e.is_held]
        running = [e for e in live if e.state == "RUNNING" and e.agent and e.agent.is_alive]
        running = [e for e in running if not e.cut_off]
        deed = self.world.random.choice(["hold", "suspend", "requeue", "requeue and hold"])
        if not (chosen := waiting if deed == "hold" else running) or not self.is_up:
            return
        element, seconds = self.world.random.choice(chosen), self.world.between(60.0, 900.0)
        self.world.note(f"an administrator: {deed} {element.job.id}_{element.index}")
        if deed == "suspend":
            self._suspend(element, seconds)
        elif deed == "requeue":
            self.terminate(element, "requeued", KILL_WAIT_S)
        else:
            element.is_held = True
            self.world.after(seconds, self._release, element)
            if deed == "requeue and hold":
                self.terminate(element, "requeued", KILL_WAIT_S)

    def come_to_rest(self) -> None:
        """No more faults, and those that last are mended."""
        self.calm = True
        self.holes = set()

    def _suspend(self, element: Element, seconds: float) -> None:
        assert element.agent is not None
        element.state = "SUSPENDED"
        element.agent.freeze(seconds)
        self.world.after(seconds, self._resume, element)

    def _resume(self, element: Element) -> None:
        if element.state == "SUSPENDED":
            element.state = "RUNNING"

    def _release(self, element: Element) -> None:
        element.is_held = False
        self.schedule_soon()

    def _put_back(self, element: Element) -> None:
        """Requeue a job whose processes are gone: it begins again under the same id."""
        self.free += 1
        element.state, element.node, element.cause, element.agent = "PENDING", "", "", None
        element.restarts += 1
        element.begins_at = self.world.now + PUT_BACK_S
        self.pending.append(element)
        self.books.put_back(element)
        self.world.note(f"{element.job.id}_{element.index} put back")
        self.world.after(PUT_BACK_S, self.schedule_soon)

    # Ends -----------------------------------------------------------------------------------------

    def scancel(self, names: Sequence[str], *, token: str | None = None) -> None:
        """Cancel jobs and elements by id; with a token, only those of that name."""
        for name in names:
            number, _, index = name.partition("_")
            job = self.jobs.get(int(number))
            if job is None or token not in (None, job.token):
                continue
            for element in list(job.elements):
                if not index or element.index == int(index):
                    self.cancel(element)

    def cancel(self, element: Element) -> None:
        if element.state == "PENDING" and element.restarts:
            self._finish(element, "CANCELLED")
        elif element.state == "PENDING":
            element.state, element.ended_at = "VANISHED", self.world.now
            self.books.vanished(element)
            self.world.note(f"{element.job.id}_{element.index} vanished")
            self._forget(element)
        elif element.is_live and element.cut_off:
            # SLURM takes it for ended at once; what runs there runs on.
            self._finish(element, "CANCELLED")
        elif element.state in ("RUNNING", "SUSPENDED"):
            self.terminate(element, "cancelled", KILL_WAIT_S)

    def terminate(self, element: Element, cause: str, grace_s: float) -> None:
        """TERM now, KILL after the grace period."""
        element.state, element.cause = "COMPLETING", cause
        self.world.note(f"{element.job.id}_{element.index} TERM {cause}")
        if element.agent is not None:
            element.agent.term()
        self.world.after(grace_s, self._kill, element)

    def _kill(self, element: Element) -> None:
        if element.ended_at is None:
            if element.agent is not None:
                element.agent.kill()
            self._leave(element)

    def exited(self, element: Element, code: int) -> None:
        """The agent ended by itself."""
        if element.cut_off or element.ended_at is not None:
            return
        if element.cause == "requeued":
            self._leave(element)
            return
        self.end(element, WORDS.get(element.cause) or ("COMPLETED" if code == 0 else "FAILED"))

    def _leave(self, element: Element) -> None:
        """Processes that were told to end are gone."""
        if element.cause == "requeued":
            self._put_back(element)
        elif element.cause:
            self._finish(element, WORDS[element.cause])

    def end(self, element: Element, word: str) -> None:
        if element.ended_at is None:
            element.state = "COMPLETING"
            self.world.after(self.world.between(0.0, 3.0), self._finish, element, word)

    def _finish(self, element: Element, word: str) -> None:
        if element.ended_at is not None:
            return
        element.state, element.ended_at = word, self.world.now
        self.books.changed(element, "CANCELLED by 1000" if word == "CANCELLED" else word)
        self.world.note(f"{element.job.id}_{element.index} {word}")
        # A job that waited had no node.
        self.free += bool(element.node)
        self.schedule_soon()
        self.world.after(self.profile.min_job_age_s, self._forget, element)

    def _forget(self, element: Element) -> None:
        """MinJobAge is over; an array goes element by element."""
        element.job.elements.remove(element)
        if not element.job.elements:
            self.jobs.pop(element.job.id, None)
