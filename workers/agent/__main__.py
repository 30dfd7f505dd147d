"""`python -m vtjobs.workers.agent`: the name that job scripts and stored allocations use."""

import argparse
import logging
import sys
from pathlib import Path

from ...jobs.config.node import on_node
from ...jobs.errors import DamagedFile, VtjobsError
from ...jobs.run.states import ExitCode
from ...jobs.workspace.allocation import read_allocation
from ...jobs.workspace.paths import Workspace, WorkspaceUnreadable
from .agent import Agent

logger = logging.getLogger("vtjobs.agent")


def main() -> int:
    """Parse the command line and serve."""
    parser = argparse.ArgumentParser(prog="vtjobs.workers.agent")
    parser.add_argument("--workspace", type=Path, required=True)
    parser.add_argument("--token", required=True)
    parser.add_argument(
        "--index", type=int, help="element of the job array; default: as the scheduler says"
    )
    parser.add_argument(
        "--node", type=int, help="which node of the allocation; default: as the scheduler says"
    )
    parser.add_argument("--mirror", action="store_true", help="copy the ranks' output to stderr")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stderr)
    workspace = Workspace(options.workspace)
    try:
        workspace.check()
        allocation = read_allocation(workspace.allocation(options.token))
    except DamagedFile as error:
        logger.error("%s", error)
        return int(ExitCode.SETUP_ERROR)
    except VtjobsError as error:
        logger.error("%s", error)
        return error.exit_code
    if allocation is None:
        logger.error("%s: no such allocation", options.token)
        return int(ExitCode.SETUP_ERROR)
    here = on_node(allocation.shape.backend)
    index = here.index() if options.index is None else options.index
    node = here.node() if options.node is None else options.node
    try:
        return Agent(workspace, allocation, index, node=node, mirror=options.mirror).run()
    except WorkspaceUnreadable as error:
        # Its ranks end with it, and there is nobody to tell. A bad code from another node than the
        # first would have srun kill the first one's agent.
        logger.error("%s", error)
        return int(ExitCode.COMPLETED) if node else error.exit_code


if __name__ == "__main__":
    sys.exit(main())
