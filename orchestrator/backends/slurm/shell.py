"""Run SLURM's commands.

A clean environment, a deadline, and "could not ask" as an exception of its own.
"""

import os
import re
import subprocess
from collections.abc import Sequence

from ....jobs.config.host import clean_environment
from ....jobs.errors import BadInput, SchedulerSlow, SchedulerUnreachable

# Times as seconds since 1970, and array expressions at any length.
_SETTINGS = {"SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "0", "LC_ALL": "C"}
# What a client says whose own patience is shorter than ours.
_SLOW = ("socket timed out", "connection timed out")
_AWAY = (
    *_SLOW,
    "unable to contact slurm controller",
    "slurm_load",
    "connection refused",
    "unable to connect",
    "zero bytes were transmitted",
    "communication connection failure",
    "problem talking to the database",
    "protocol authentication error",
    "slurmdbd: ",
    "unable to initialize",
    "unable to establish controller machine",
    "slurm backup controller in standby mode",
)
# How long `scontrol ping` may take. A controller that is gone is known at once, from a refused
# connection.
PING_S = 1.0
_NAME = re.compile(
    r"\A(?:(?:sbatch|squeue|sacct|sacctmgr|scancel|scontrol|sinfo|srun): )?(?:(?:error|fatal): )?"
)


class CommandFailed(SchedulerUnreachable):
    """A command of SLURM's answered with an error: `stderr` is what it printed."""

    def __init__(self, message: str, stderr: str) -> None:
        super().__init__(message)
        self.stderr = stderr


class NoAccounting(Exception):
    """This cluster keeps no accounting."""


def ask(command: Sequence[str], *, deadline_s: float, with_errors: bool = False) -> str:
    """Run a query and return what it printed.

    Args:
        command: the command and its arguments.
        deadline_s: how long the answer is waited for.
        with_errors: whether what it printed to stderr counts too.

    Raises:
        CommandFailed: it failed.
        SchedulerSlow: it took longer than the deadline: nothing is known.
        SchedulerUnreachable: there is no controller to answer it.
        NoAccounting: the cluster keeps none.
        BadInput: there is no such command on this machine.
    """
    try:
        done = _run(command, deadline_s)
    except FileNotFoundError:
        raise BadInput(
            f"{command[0]} not found: is this a login node of the cluster? (--backend local works"
            " anywhere)"
        ) from None
    except subprocess.TimeoutExpired:
        silent = f"{command[0]} did not answer within {deadline_s:g} s"
        if _is_gone():
            raise SchedulerUnreachable(f"{silent}; its controller is down") from None
        raise SchedulerSlow(silent) from None
    if done.returncode == 0:
        return done.stdout + (done.stderr if with_errors else "")
    reason = reason_of(done.stderr) or f"exit code {done.returncode}"
    if "accounting storage is disabled" in done.stderr.lower():
        raise NoAccounting(reason)
    if is_slow(done.stderr):
        raise SchedulerSlow(f"{command[0]}: {reason}")
    raise CommandFailed(f"{command[0]}: {reason}", done.stderr)


def _run(command: Sequence[str], deadline_s: float) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        list(command),
        capture_output=True,
        text=True,
        errors="replace",
        timeout=deadline_s,
        stdin=subprocess.DEVNULL,
        env={**clean_environment(), **_SETTINGS},
    )


def _is_gone() -> bool:
    """Return whether no controller takes connections.

    Every other command tries again for `MessageTimeout` before it says so.
    """
    try:
        said = _run(["scontrol", "ping"], PING_S).stdout
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return False
    # A line for each controller: the backup may be at work.
    return " is DOWN" in said and " is UP" not in said


def is_slow(text: str) -> bool:
    """Return whether an error text of SLURM's says that an answer did not come in time."""
    return any(sign in text.lower() for sign in _SLOW)


def is_away(text: str) -> bool:
    """Return whether an error text of SLURM's says that a daemon could not be reached."""
    lowered = text.lower()
    return any(sign in lowered for sign in _AWAY)


def reason_of(text: str) -> str:
    """Return the lines that say what went wrong, without the command's name.

    Without such lines the last one.

    A site's own filter explains itself before SLURM's last word.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "error:" in line or "failure:" in line] or lines[-1:]
    return "; ".join(
        dict.fromkeys(
            _NAME.sub("", line).removeprefix("allocation failure: ").strip() for line in errors
        )
    )


def user() -> str:
    """Return the user whose jobs are asked about."""
    return str(os.getuid())
