"""Make passes for as long as this machine's queue has something to do, so that nobody has to type.

python -m vtjobs.orchestrator.loop.keep --workspace DIR --folder DIR

The queue's own process starts it, and it ends when nothing is live on this machine and nothing will
be due later.
"""

import argparse
import logging
import os
import signal
import sys
import time
from pathlib import Path

from ...db import queries
from ...db.engine import reading
from ...jobs.config.config import load_config
from ...jobs.errors import VtjobsError
from ...jobs.workspace.presence import Presence
from ..backends.local.backend import LocalQueue
from ..backends.local.secrets import take_secrets
from .context import Context, open_context
from .open_runs import open_runs
from .tick import Effort, Report, tick

logger = logging.getLogger("vtjobs.keep")

BACKEND = "local"
# Seconds between passes: the first while something happens, the second while nothing does.
BUSY_S, CALM_S = 1.0, 5.0
# After a pass that failed, doubled each time up to the last.
BACK_OFF_S = (5.0, 300.0)


def keep(context: Context) -> None:
    """Make passes until nothing is left to do, or the workspace or this one's parent is gone."""
    context.be_patient()
    presence = Presence(context.workspace)
    parent, wait_s, queue = os.getppid(), BUSY_S, LocalQueue(context.workspace)
    while os.getppid() == parent and not presence.is_gone():
        effort = Effort()
        try:
            # What an agent at work was to take on is left to it, and started where it has ended.
            was_serving = bool(queue.running())
            report = tick(context)
            if not was_serving and not is_needed(context, report):
                return
            happened = report.events or report.ended or report.launched
            wait_s = BUSY_S if happened else min(CALM_S, wait_s * 1.5)
        except (VtjobsError, OSError) as error:
            logger.warning("%s: %s", type(error).__name__, error)
            wait_s = min(BACK_OFF_S[1], max(BACK_OFF_S[0], wait_s * 2))
        time.sleep(max(wait_s, effort.rest_s()))


def is_needed(context: Context, report: Report) -> bool:
    """Whether something is live in this machine's queue, or will be due there later.

    What is due and could not be started needs more than another pass.
    """
    with reading(context.ledger.engine) as connection:
        if report.launched or any(
            row.backend == BACKEND for row in queries.live_attempts(connection)
        ):
            return True
        due = open_runs(connection, context.workspace, float("inf"))
        later = [run for run in due if run.not_before > context.clock()]
        settings = queries.grid_settings(connection, {run.grid_id for run in later})
    return any(settings[run.grid_id].backend == BACKEND for run in later)


def main() -> int:
    """Parse the command line and keep the queue going."""
    parser = argparse.ArgumentParser(prog="vtjobs.orchestrator.loop.keep")
    parser.add_argument("--workspace", required=True)
    parser.add_argument(
        "--folder", type=Path, required=True, help="where vtjobs.yaml is looked for"
    )
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stderr)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # Not in the environment that it was started with, which others may read.
    os.environ.update(take_secrets())
    try:
        config = load_config({"workspace": options.workspace}, folder=options.folder)
        keep(open_context(config))
    except VtjobsError as error:
        logger.error("%s", error)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
