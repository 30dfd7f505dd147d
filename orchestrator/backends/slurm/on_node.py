"""SLURM as an agent on one of its nodes sees it: its job, its node's name, why a TERM came.

The walltime, a preemption or somebody's scancel look alike, and only the first two go on.
"""

import logging
import os
import random
import re
import shutil
import subprocess
import time
from collections.abc import Sequence

from ....jobs.config.node import UNEXPLAINED, OnNode, Ruling, ignore_signals
from ....jobs.run.states import AttemptState

logger = logging.getLogger("vtjobs.agent")

# A controller that does not answer in time is busy with the very event; ranks are saving meanwhile.
DEADLINE_S = 3.0
# A TERM that the controller cannot explain yet is asked about again.
AGAIN_S = 0.5
# A node must have let go of a job before it is given the same one again.
AGAIN_AFTER_S = 20
# What helps but is not needed may take so long: the walltime is near.
SOON_S = 3.0
CHAIN_TRIES = 4
_SUBMITTED = re.compile(r"Submitted batch job ([0-9]+)")
# A part of a job's dependency, such as `afterany:39_*(unfulfilled)`.
_WAITS = re.compile(r"after\w*:[0-9]+")
_FIELD = re.compile(r"(\w+)=(\S*)")
_NO_TIME = ("", "None", "N/A", "Unknown")


class SlurmNode(OnNode):
    """The SLURM job that this process belongs to; outside one it is a node like any other."""

    # SLURM kills KillWait after a TERM, by default 30 s.
    _grace_s = 25.0
    waits = True
    delays = True
    avoids = True

    def __init__(self) -> None:
        array, task = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
        self.job = f"{array}_{task}" if array and task else os.environ.get("SLURM_JOB_ID", "")
        self.restarts = int(os.environ.get("SLURM_RESTART_COUNT") or 0)
        self.signals_walltime = self.explains_stops = bool(self.job)
        self.term_grace_s = self._grace_s if self.job else None
        self._inquiry: Inquiry | None = None

    def index(self) -> int:
        return int(os.environ.get("SLURM_ARRAY_TASK_ID") or 0)

    def node(self) -> int:
        return int(os.environ.get("SLURM_NODEID") or 0)

    def host(self) -> str:
        return os.environ.get("SLURMD_NODENAME") or super().host()

    def successor(
        self,
        argv: Sequence[str],
        token: str,
        *,
        exclude: Sequence[str] = (),
        waits: bool = True,
        delay_s: float = 0.0,
    ) -> list[str]:
        found = super().successor(argv, token)
        if not waits:
            found = [part for part in found if not part.startswith("--dependency=")]
        if delay_s > 0:
            found.insert(1, f"--begin=now+{delay_s:.0f}")
        avoid = "--exclude="
        known = [part.removeprefix(avoid) for part in found if part.startswith(avoid)]
        names = dict.fromkeys(",".join([*known, *exclude]).split(","))
        rest = [part for part in found[1:] if not part.startswith(avoid)]
        more = [avoid + ",".join(filter(None, names))] if any(names) else []
        return [*found[:1], *more, *rest]

    def why_stopped(self) -> Ruling | None:
        self._inquiry = self._inquiry or Inquiry(self.job, self.restarts)
        return self._inquiry.look()

    def question(self) -> list[str]:
        # About one job, so that the answer costs the controller next to nothing.
        return ["squeue", "--noheader", f"--jobs={self.job}"] if self.job else []

    def submits(self) -> bool:
        return shutil.which("sbatch") is not None

    def handed_on(self, reply: str, argv: Sequence[str]) -> None:
        found = _SUBMITTED.search(reply)
        if found is None or not self.job:
            return
        self._lengthen_chains(found[1])
        mark = "--comment="
        own = [part.removeprefix(mark) for part in argv if part.startswith(mark)]
        text = "; ".join([*own, f"vtjobs: handed on to job {found[1]}"])
        _scontrol("update", f"JobId={self.job}", f"Comment={text}", timeout_s=SOON_S)

    def _lengthen_chains(self, successor: str) -> None:
        """Have the jobs that wait for this one, those of a later stage, wait for its successor too.

        Elements of an array end together, and each of them writes the whole dependency. So it is
        read again until it says what it should.
        """
        for _ in range(CHAIN_TRIES):
            short = [
                (job, words)
                for job, words in _dependencies()
                if _waits_for(words, self.job.partition("_")[0])
                and not _waits_for(words, successor)
                and job != successor
            ]
            if not short:
                return
            for job, words in short:
                chain = ",".join([*words, f"afterany:{successor}"])
                _scontrol("update", f"JobId={job}", f"Dependency={chain}", timeout_s=SOON_S)
            # Not all at the same moment again.
            time.sleep(random.uniform(0.2, 0.6))

    def may_start_again(self) -> bool:
        # Jobs are submitted with --no-requeue: after a fault it is vtjobs that decides.
        return bool(self.job) and _scontrol("update", f"JobId={self.job}", "Requeue=1")

    def start_again(self) -> bool:
        if not _scontrol("requeue", self.job):
            return False
        # By itself SLURM waits for two minutes. Where it does not take this, nothing is lost.
        _scontrol("update", f"JobId={self.job}", f"StartTime=now+{AGAIN_AFTER_S}")
        return True

    def start_no_more(self) -> None:
        # It would put the job back after a preemption or the death of a node, too.
        _scontrol("update", f"JobId={self.job}", "Requeue=0")


def _dependencies() -> list[tuple[str, list[str]]]:
    """Return this user's waiting jobs, each with what it waits for."""
    command = ["squeue", f"--user={os.getuid()}", "--noheader", "--states=PENDING"]
    try:
        done = subprocess.run(
            [*command, "--format=%F|%E"],
            check=True,
            timeout=SOON_S,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=ignore_signals,
        )
    except (OSError, subprocess.SubprocessError) as error:
        logger.warning("jobs of later stages may start too early: %s", error)
        return []
    rows = (line.split("|", 1) for line in done.stdout.splitlines())
    return [(job, _WAITS.findall(words)) for job, words in rows]


def _waits_for(words: Sequence[str], job: str) -> bool:
    return any(word.partition(":")[2] == job for word in words)


def _scontrol(*words: str, timeout_s: float = 30.0) -> bool:
    try:
        subprocess.run(
            ["scontrol", *words],
            check=True,
            timeout=timeout_s,
            stdin=subprocess.DEVNULL,
            preexec_fn=ignore_signals,
        )
    except (OSError, subprocess.SubprocessError) as error:
        logger.error("%s", error)
        return False
    return True


class Inquiry:
    """A question to the controller that is asked from the agent's loop and never holds it up."""

    def __init__(self, job: str, restarts: int) -> None:
        self._job = job
        self._restarts = restarts
        self._deadline = time.monotonic() + DEADLINE_S
        self._again_at = 0.0
        self._process: subprocess.Popen[str] | None = None

    def look(self) -> Ruling | None:
        """Return the ruling once there is one; UNEXPLAINED when the time is up."""
        if not self._job:
            # A scheduler that cannot be asked from here.
            return UNEXPLAINED
        now = time.monotonic()
        ruling = self._answer()
        if ruling is None and now < self._deadline:
            if self._process is None and now >= self._again_at:
                self._ask(now)
            return None
        self._close()
        return ruling or UNEXPLAINED

    def _ask(self, now: float) -> None:
        self._again_at = now + AGAIN_S
        command = ["scontrol", "-o", "show", "job", self._job]
        null = subprocess.DEVNULL
        try:
            self._process = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stdin=null,
                stderr=null,
                text=True,
                preexec_fn=ignore_signals,
            )
        except OSError:
            return

    def _answer(self) -> Ruling | None:
        if self._process is None or self._process.poll() is None:
            return None
        # One line about one job: it fits into the pipe, so a process that has ended has said it
        # all.
        text, _ = self._process.communicate()
        self._process = None
        return interpret(text, self._restarts)

    def _close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()


def interpret(text: str, restarts: int = 0) -> Ruling | None:
    """Return what one line of `scontrol -o show job` says about a TERM, or None where it says
    nothing (yet).

    While a job ends its state reads COMPLETING, whatever ended it; reason and PreemptTime tell the
    causes apart. A preempted job that has been granted time to save is still RUNNING.

    Args:
        text: the line.
        restarts: how often the job had been started before.
    """
    fields: dict[str, str] = {}
    for name, value in _FIELD.findall(text):
        # Free text, such as a comment, comes last in the line: it must not pass for a field.
        fields.setdefault(name, value)
    state, reason = fields.get("JobState", ""), fields.get("Reason", "")
    if state == "TIMEOUT" or reason == "TimeLimit":
        return Ruling(state=AttemptState.TIMEOUT)
    if state == "PREEMPTED" or fields.get("PreemptTime", "") not in _NO_TIME:
        return Ruling(state=AttemptState.PREEMPTED)
    if state == "NODE_FAIL" or reason == "NodeDown":
        return UNEXPLAINED
    # A job that somebody put back into the queue looks the same, but counts one restart more.
    is_again = fields.get("Restarts") != str(restarts)
    is_ended = state == "COMPLETING" and reason == "None" and not is_again
    if is_ended or state == "CANCELLED":
        return Ruling(state=AttemptState.CANCELLED, signature="cancelled in SLURM")
    return None


# What the registry of backends takes from here.
ON_NODE = SlurmNode
