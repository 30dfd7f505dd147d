"""When an agent ends: let people be told what has happened, where nobody else looks."""

import logging
import subprocess
from collections.abc import Iterable

from ...jobs.config.interpreter import module_command
from ...jobs.workspace.allocation import Allocation, Task
from ...jobs.workspace.paths import Workspace

logger = logging.getLogger("vtjobs.agent")

# A node from which nothing can be reached holds its place no longer than that.
TELL_S = 45.0


def tell(workspace: Workspace, allocation: Allocation, served: Iterable[Task]) -> None:
    """Put what became of runs, and of their grids, into the outbox, and send what lies there.

    What cannot be sent from here stays there for whoever looks next.
    """
    words = dict.fromkeys(
        word for task in served for word in (f"--grid={task.grid_id}", f"--run={task.run_id}")
    )
    if not allocation.tell_from or not words:
        return
    command = [
        *module_command("vtjobs.orchestrator.notices.from_node"),
        *("--workspace", str(workspace.root), "--folder", allocation.tell_from),
        *words,
    ]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, timeout=TELL_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        logger.warning("nobody could be told from here: %s", error)
        return
    if done.returncode:
        logger.warning("nobody could be told from here: exit code %d", done.returncode)
