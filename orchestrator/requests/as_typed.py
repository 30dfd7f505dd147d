"""Commands run for a screen or a page, as somebody would type them."""

import subprocess
from collections.abc import Sequence

from ...jobs.config.interpreter import module_command
from ..loop.context import Context


def as_typed(context: Context, command: str, words: Sequence[str]) -> tuple[int, str]:
    """Run a command of vtjobs on a workspace; return its exit code and what it printed.

    Args:
        context: of the workspace.
        command: such as `retry`.
        words: its arguments and options.
    """
    done = subprocess.run(
        [
            *module_command("vtjobs.cli", command, *words),
            *("-W", str(context.workspace.root)),
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, (done.stdout + done.stderr).strip()
