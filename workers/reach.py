"""Ask from a node whether its scheduler answers there, without waiting for it."""

import contextlib
import subprocess
import time

from ..jobs.config.node import OnNode, ignore_signals
from ..jobs.workspace.paths import Workspace
from ..jobs.workspace.reach import Reach, note_reach, read_reach

# A controller may be busy; whoever waits for nothing can be patient.
DEADLINE_S = 15.0
# What was seen holds for a day: a thousand agents must not ask the same thing.
HOLDS_S = 86_400.0
REASON_CHARS = 200


class Inquiry:
    """One question to the scheduler, asked when this is made."""

    def __init__(self, scheduler: OnNode) -> None:
        self._host = scheduler.host()
        self._deadline = time.monotonic() + DEADLINE_S
        self._process: subprocess.Popen[str] | None = None
        self._reason = "" if scheduler.submits() else "no command to submit with"
        if not self._reason and (command := scheduler.question()):
            self._ask(command)

    def _ask(self, command: list[str]) -> None:
        null = subprocess.DEVNULL
        try:
            self._process = subprocess.Popen(
                command,
                stdin=null,
                stdout=null,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                preexec_fn=ignore_signals,
            )
        except OSError as error:
            self._reason = f"{command[0]}: {error.strerror}"

    def answer(self) -> Reach | None:
        """Return what was seen; None while there is no answer yet."""
        if self._process is not None:
            if self._process.poll() is None and time.monotonic() < self._deadline:
                return None
            self._reason = self._end(self._process)
            self._process = None
        return Reach(at=time.time(), host=self._host, reason=self._reason)

    def _end(self, process: "subprocess.Popen[str]") -> str:
        """Return why there was no answer, or "" if there was one."""
        if process.poll() is None:
            process.kill()
            process.communicate()
            return f"no answer within {DEADLINE_S:.0f} s"
        _, said = process.communicate()
        if process.returncode == 0:
            return ""
        lines = said.strip().splitlines() or [f"exit code {process.returncode}"]
        return lines[-1][:REASON_CHARS]


def inquiry(workspace: Workspace, backend: str, scheduler: OnNode) -> Inquiry | None:
    """Ask, unless the scheduler answered a node lately, or there is nothing to ask."""
    if not scheduler.question():
        return None
    try:
        known = read_reach(workspace, backend)
    except OSError:
        # Nothing hangs on this.
        return None
    if known is not None and known.answers and time.time() - known.at < HOLDS_S:
        return None
    return Inquiry(scheduler)


def take_answer(asked: Inquiry | None, workspace: Workspace, backend: str) -> Inquiry | None:
    """Write the answer down once it is there; return the inquiry while it is not."""
    if asked is None or (seen := asked.answer()) is None:
        return asked
    # A full disk: the next agent asks again.
    with contextlib.suppress(OSError):
        note_reach(workspace, backend, seen)
    return None
