"""Run a tool of the workers in a process of its own, as it needs torch."""

import signal
import subprocess
import sys
from collections.abc import Sequence

from ...jobs.config.host import clean_environment
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
        [sys.executable, "-m", f"vtjobs.workers.tools.{name}", *words],
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
        ended_by = signal.Signals(-done.returncode)
        often = ", as when memory runs out" if ended_by is signal.SIGKILL else ""
        reason = f"the process that was to {name} was ended by {ended_by.name}{often}"
    raise VtjobsError(reason)
