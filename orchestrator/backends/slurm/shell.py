"""Run SLURM's commands.

A clean environment, a deadline, and "could not ask" as an exception of its own.
"""

import os
import re
import subprocess
from collections.abc import Sequence

from ....jobs.config.host import clean_environment
from ....jobs.errors import BadInput, SchedulerUnreachable

# Times as seconds since 1970, and array expressions at any length.
_SETTINGS = {"SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "0", "LC_ALL": "C"}
_AWAY = (
    "unable to contact slurm controller",
    "slurm_load",
    "socket timed out",
    "connection refused",
    "connection timed out",
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
        SchedulerUnreachable: it took longer than the deadline: nothing is known.
        NoAccounting: the cluster keeps none.
        BadInput: there is no such command on this machine.
    """
    try:
        done = subprocess.run(
            list(command),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=deadline_s,
            stdin=subprocess.DEVNULL,
            env={**clean_environment(), **_SETTINGS},
        )
    except FileNotFoundError:
        raise BadInput(
            f"{command[0]} not found: is this a login node of the cluster? (--backend local works"
            " anywhere)"
        ) from None
    except subprocess.TimeoutExpired:
        raise SchedulerUnreachable(f"{command[0]} did not answer within {deadline_s:g} s") from None
    if done.returncode == 0:
        return done.stdout + (done.stderr if with_errors else "")
    reason = reason_of(done.stderr) or f"exit code {done.returncode}"
    if "accounting storage is disabled" in done.stderr.lower():
        raise NoAccounting(reason)
    raise CommandFailed(f"{command[0]}: {reason}", done.stderr)


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
