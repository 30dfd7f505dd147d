"""Run a tool of the workers in a process of its own, as it needs torch."""

import signal
import subprocess
from collections.abc import Sequence

from ...jobs.config.host import clean_environment
from ...jobs.config.interpreter import module_command
from ...jobs.errors import BadInput, VtjobsError


def run_tool(name: str, words: Sequence[str], *, given: str | None = None) -> str:
    """Run a module of `workers.tools`; return what it wrote to standard output.

    Args:
        name: of the module.
        words: its command line.
        given: its standard input.

    Raises:
        BadInput: it refused what it was asked for; the message is its own.
        VtjobsError: it failed; the message is its own, or says which signal ended it.
    """
    done = subprocess.run(
        module_command(f"vtjobs.workers.tools.{name}", *words),
        input=given,
        text=True,
        capture_output=True,
        env=clean_environment(),
    )
    if done.returncode == 0:
        return done.stdout
    reason = done.stderr.strip().rpartition("\n")[2].removeprefix("error: ")
    if done.returncode == BadInput.exit_code:
        raise BadInput(reason)
    if done.returncode < 0:
        reason = f"{name} was ended by {_name_of(-done.returncode)}"
    raise VtjobsError(reason or f"{name} failed with exit code {done.returncode}")


def _name_of(number: int) -> str:
    if number == signal.SIGKILL:
        return "SIGKILL, as happens when memory runs out"
    try:
        return signal.Signals(number).name
    except ValueError:
        # Signals for real time have no name of their own.
        return f"signal {number}"
