"""A private SLURM cluster and what can go wrong on it: one seed, one schedule of faults."""

import contextlib
import getpass
import os
import random
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[1] / "deploy" / "slurm-dev"
# SLURM's commands that a slow controller keeps waiting.
COMMANDS = ("sbatch", "squeue", "sacct", "scontrol", "scancel", "sinfo")
SLOW_S = 3
# Who asked before the controller was back may say for so long that it is gone.
TOLD_S = 20.0
# Jobs that a user may have in the queue while an administrator limits them.
FEW_JOBS = 4
# Seconds between two faults.
APART_S = (3.0, 9.0)
# How often each fault is drawn, compared with the others.
WEIGHTS = {
    "kill a rank": 3,
    "kill an agent": 3,
    "kill a node's daemon": 2,
    "kill a node": 2,
    "pause slurmctld": 2,
    "kill slurmctld": 2,
    "stop slurmdbd": 2,
    "set a node down": 2,
    "scancel": 2,
    "requeue": 2,
    "requeue and hold": 2,
    "hold": 2,
    "suspend": 2,
    "black hole": 2,
    "submit limit": 2,
    "slow SLURM": 2,
    "preempt": 3,
    "kill the user's command": 4,
}
# Those that need accounting.
ACCOUNTED = frozenset(("stop slurmdbd", "submit limit"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault of the schedule."""

    at_s: float
    name: str
    lasts_s: float
    draw: int
    """What decides whom it hits among those that are there."""


def schedule(seed: int, seconds: float, *, accounting: bool) -> list[Fault]:
    """Return the faults of a test: the same for the same seed, whoever is under test."""
    rng = random.Random(seed)
    weights = {
        name: weight for name, weight in WEIGHTS.items() if accounting or name not in ACCOUNTED
    }
    found, at_s = [], rng.uniform(8, 12)
    while at_s < seconds:
        name = rng.choices(list(weights), list(weights.values()))[0]
        found.append(
            Fault(at_s=at_s, name=name, lasts_s=rng.uniform(2, 30), draw=rng.getrandbits(32))
        )
        at_s += rng.uniform(*APART_S)
    return found


@dataclass
class Site:
    """A cluster, and who works on it.

    How its tasks' processes are found, and what a scancel of one means to them.
    """

    folder: Path
    profile: str = "default"
    """The shape of the cluster, see deploy/slurm-dev/profiles.py."""
    workers: Callable[[], list[int]] = lambda: []
    """Returns the pids of the working processes that a fault may hit."""
    leaders: Callable[[], list[int]] = lambda: []
    """Returns the pids of the leading processes that a fault may hit."""
    kill_user: Callable[[], None] = lambda: None
    cancelled: Callable[[str, str], None] = lambda job, name: None
    """Told of each element of a job that was cancelled: its array's id, its index and its name."""
    log: Callable[[str], None] = lambda text: None
    mends: list[tuple[float, Callable[[], object]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("SLURM", "SBATCH_"))
        }
        self.env = {**kept, "SLURM_CONF": f"{self.folder}/slurm.conf"}
        self.bin = self.folder.parent / "bin"
        self.slow = self.folder.parent / "slow"
        self.limit: int | None = None
        """Jobs that the user may have in the queue at this moment; None without a limit."""
        self.gone_until = 0.0
        """Until when somebody may say that there is no controller."""

    @property
    def accounting(self) -> bool:
        return self.profile != "no-accounting"

    @property
    def user_env(self) -> dict[str, str]:
        """The environment of who works here: SLURM's commands answer slowly while a file exists."""
        return {**self.env, "PATH": f"{self.bin}:{self.env['PATH']}"}

    def make(self) -> None:
        """Start the cluster for the first time, and look at what it is."""
        self.up("--fast", f"--profile={self.profile}")
        self.nodes = self.run("sinfo", "-h", "-N", "-p", "gpu", "-o", "%N").split()
        self.limit = self.own_limit = self._limit_of_association() if self.accounting else None
        self.bin.mkdir()
        for name in COMMANDS:
            real = shlex.quote(str(shutil.which(name)))
            wrapper = self.bin / name
            slow = f"[ -e {shlex.quote(str(self.slow))} ] && sleep {SLOW_S}"
            wrapper.write_text(f'#!/bin/bash\n{slow}\nexec {real} "$@"\n')
            wrapper.chmod(0o755)

    def hole(self, node: str) -> Path:
        """Return the file that makes a node a black hole: its jobs fail in their set-up."""
        return self.folder.parent / f"hole-{node}"

    @property
    def set_up(self) -> str:
        """The line of shell that every job of the user begins with."""
        return f"test ! -e {self.hole('')}$SLURMD_NODENAME || exit 127"

    def up(self, *options: str) -> None:
        """Start what is not running.

        A start that is cut short by the next fault is tried again later.
        """
        command = [str(SCRIPTS / "up"), str(self.folder), *options]
        done = subprocess.run(command, capture_output=True, text=True)
        if options and done.returncode:
            raise SystemExit(done.stderr)

    def down(self) -> None:
        subprocess.run([SCRIPTS / "down", self.folder], check=True)

    def run(self, *argv: str) -> str:
        """Run one of SLURM's commands; what it cannot do at this moment is not done."""
        try:
            done = subprocess.run(argv, env=self.env, capture_output=True, text=True, timeout=15)
        except subprocess.TimeoutExpired:
            return ""
        return done.stdout

    def break_(self, *words: str) -> None:
        subprocess.run([SCRIPTS / "fault", self.folder, *words], check=False)

    def mend(self, *, now: float) -> None:
        """Undo the faults whose time is over."""
        for due in [mend for mend in self.mends if mend[0] <= now]:
            self.mends.remove(due)
            due[1]()

    def mend_all(self) -> None:
        """Undo everything: all daemons run, all nodes take jobs."""
        self.mend(now=float("inf"))
        self.up()
        for node in self.nodes:
            self.give_back(node)
        # What a controller that was away did not hear.
        for line in self.run("squeue", "-h", "-r", "-o", "%i|%T|%r").splitlines():
            job, state, reason = line.split("|")
            if reason.startswith("JobHeld") or reason.startswith("job requeued in held"):
                self.run("scontrol", "release", job)
            if state == "SUSPENDED":
                self.run("scontrol", "resume", job)
        if self.accounting:
            self._set_limit(self.own_limit)

    def give_back(self, node: str) -> None:
        state = self.run("sinfo", "-h", "-p", "gpu", "-n", node, "-o", "%t").strip()
        if state.startswith(("down", "drain", "drng")):
            self.run("scontrol", "update", f"nodename={node}", "state=resume")

    # Faults ---------------------------------------------------------------------------------------

    def strike(self, fault: Fault) -> None:
        """Make one fault happen; it is mended after its time."""
        rng = random.Random(fault.draw)
        undo = {
            "kill a rank": self._kill_worker,
            "kill an agent": self._kill_leader,
            "kill a node's daemon": self._kill_daemon,
            "kill a node": self._kill_node,
            "pause slurmctld": self._pause_controller,
            "kill slurmctld": self._kill_controller,
            "stop slurmdbd": self._stop_accounting,
            "set a node down": self._set_down,
            "scancel": self._scancel,
            "requeue": self._requeue,
            "requeue and hold": self._requeue_and_hold,
            "hold": self._hold,
            "suspend": self._suspend,
            "black hole": self._black_hole,
            "submit limit": self._few_jobs,
            "slow SLURM": self._slow,
            "preempt": self._preempt,
            "kill the user's command": self._kill_user,
        }[fault.name](rng)
        if undo is not None:
            # A controller that is away for longer than a job's start says nothing new.
            is_long = "node" in fault.name or "dbd" in fault.name
            lasts_s = fault.lasts_s if is_long else fault.lasts_s / 2
            self.mends.append((time.monotonic() + lasts_s, undo))

    def _kill_one(self, pids: list[int], rng: random.Random) -> None:
        if pids:
            pid = rng.choice(sorted(pids))
            self.log(f"kill -9 {pid}")
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _kill_worker(self, rng: random.Random) -> None:
        self._kill_one(self.workers(), rng)

    def _kill_leader(self, rng: random.Random) -> None:
        self._kill_one(self.leaders(), rng)

    def _kill_daemon(self, rng: random.Random) -> Callable[[], None]:
        node = self._node(rng)
        self.break_("kill", node)
        return lambda: (self.up(), self.give_back(node))[0]

    def _kill_node(self, rng: random.Random) -> Callable[[], None]:
        node = self._node(rng)
        self.break_("kill", node, "--steps")
        return lambda: (self.up(), self.give_back(node))[0]

    def _set_down(self, rng: random.Random) -> Callable[[], None]:
        node = self._node(rng)
        self.run("scontrol", "update", f"nodename={node}", "state=down", "reason=chaos")
        return lambda: self.give_back(node)

    def _node(self, rng: random.Random) -> str:
        """Return a node, rather one where somebody is at work."""
        busy = self.run("squeue", "-h", "-t", "running", "-o", "%B").split()
        node = rng.choice(sorted(set(busy)) or self.nodes)
        self.log(node)
        return node

    def _pause_controller(self, rng: random.Random) -> Callable[[], None]:
        self.break_("pause", "slurmctld")
        return lambda: self.break_("resume", "slurmctld")

    def _kill_controller(self, rng: random.Random) -> Callable[[], None]:
        self.gone_until = float("inf")
        self.break_("kill", "slurmctld")
        return self._bring_back

    def _bring_back(self) -> None:
        self.up()
        self.gone_until = time.monotonic() + TOLD_S

    def _stop_accounting(self, rng: random.Random) -> Callable[[], None]:
        self.break_("kill", "slurmdbd")
        return self.up

    def _element(self, rng: random.Random, *states: str) -> tuple[str, str] | None:
        """Return a job of the user, or an element of an array, and its name."""
        listed = self.run("squeue", "-h", "-r", "-t", ",".join(states), "-o", "%F %K %j")
        found = [
            line.split()
            for line in listed.splitlines()
            if "stranger" not in line and "N/A" not in line.split()[0]
        ]
        if not found:
            return None
        job, index, name = rng.choice(sorted(found))
        element = job if index == "N/A" else f"{job}_{index}"
        self.log(f"{element} {name}")
        return element, name

    def _scancel(self, rng: random.Random) -> None:
        """Cancel a job behind its owner's back."""
        if (found := self._element(rng, "running", "pending")) is not None:
            self.cancelled(*found)
            # With a filter, scancel takes one waiting element for all that wait.
            self.run("scancel", found[0])

    def _requeue(self, rng: random.Random) -> None:
        """Requeue a running job, as an administrator can whatever its owner asked for."""
        if (found := self._element(rng, "running")) is not None:
            self.run("scontrol", "update", f"jobid={found[0]}", "requeue=1")
            self.run("scontrol", "requeue", found[0])

    def _requeue_and_hold(self, rng: random.Random) -> Callable[[], object] | None:
        if (found := self._element(rng, "running")) is None:
            return None
        self.run("scontrol", "update", f"jobid={found[0]}", "requeue=1")
        self.run("scontrol", "requeuehold", found[0])
        return lambda: self.run("scontrol", "release", found[0])

    def _hold(self, rng: random.Random) -> Callable[[], object] | None:
        # One that has started goes on, and is held where it comes back to the queue.
        if (found := self._element(rng, "running", "pending")) is None:
            return None
        self.run("scontrol", "hold", found[0])
        return lambda: self.run("scontrol", "release", found[0])

    def _suspend(self, rng: random.Random) -> Callable[[], object] | None:
        if (found := self._element(rng, "running")) is None:
            return None
        self.run("scontrol", "suspend", found[0])
        return lambda: self.run("scontrol", "resume", found[0])

    def _black_hole(self, rng: random.Random) -> Callable[[], object]:
        hole = self.hole(self._node(rng))
        hole.touch()
        return lambda: hole.unlink(missing_ok=True)

    def _few_jobs(self, rng: random.Random) -> Callable[[], object]:
        self._set_limit(FEW_JOBS)
        return lambda: self._set_limit(self.own_limit)

    def _slow(self, rng: random.Random) -> Callable[[], object]:
        self.slow.touch()
        return lambda: self.slow.unlink(missing_ok=True)

    def _set_limit(self, jobs: int | None) -> None:
        limit = f"MaxSubmitJobs={-1 if jobs is None else jobs}"
        self.run("sacctmgr", "-i", "modify", "user", getpass.getuser(), "set", limit)
        self.limit = jobs

    def _limit_of_association(self) -> int | None:
        user = f"user={getpass.getuser()}"
        said = self.run(
            "sacctmgr", "-nP", "show", "assoc", user, "account=lab", "format=MaxSubmitJobs"
        ).strip()
        return int(said) if said else None

    def _preempt(self, rng: random.Random) -> None:
        options = [
            "--job-name=stranger",
            "--partition=high",
            "--exclusive",
            "--gpus-per-node=1",
            "--output=/dev/null",
        ]
        nodes, seconds = rng.randint(1, 2), rng.randint(3, 10)
        self.run("sbatch", *options, f"--nodes={nodes}", f"--wrap=sleep {seconds}")

    def _kill_user(self, rng: random.Random) -> None:
        self.kill_user()


def play(
    site: Site, faults: list[Fault], each: Callable[[], None], say: Callable[[str], None]
) -> None:
    """Let the faults happen at their times, then mend everything."""
    began = time.monotonic()
    for fault in faults:
        while time.monotonic() < began + fault.at_s:
            site.mend(now=time.monotonic())
            each()
            time.sleep(0.2)
        told: list[str] = []
        site.log = told.append
        site.strike(fault)
        say(f"{time.monotonic() - began:6.1f} s  {fault.name} {' '.join(told)}")
    site.mend_all()


def descendants(pid: int) -> Iterator[int]:
    """Yield the processes that a process started, and theirs."""
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(fields[1]) == pid and fields[0] != "Z":
                yield int(entry.name)
                yield from descendants(int(entry.name))


def processes_with(*words: str) -> list[int]:
    """Return the Python processes whose command line holds all these words."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            line = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            if "python" in line[0] and all(any(word in part for part in line) for word in words):
                found.append(int(entry.name))
    return found
