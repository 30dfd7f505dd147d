"""Hand on what a walltime or a preemption cut short.

One more allocation for what advanced or never started.
"""

import dataclasses
import logging
import secrets
import subprocess
import time
from collections.abc import Sequence

from ...jobs.atomic_files import to_json, write_new
from ...jobs.config.host import clean_environment
from ...jobs.config.node import ignore_signals, on_node
from ...jobs.run.states import AttemptState
from ...jobs.workspace.allocation import Allocation, Task
from ...jobs.workspace.paths import Workspace
from .attempt import HostedRun

logger = logging.getLogger("vtjobs.agent")


def submit_successor(
    workspace: Workspace, allocation: Allocation, done: Sequence[HostedRun], waiting: Sequence[Task]
) -> str | None:
    """Write the successor's file and submit it by the allocation's own command; return its token.

    A run that made no new checkpoint is left to the retry policy.
    """
    advanced = [
        hosted.task
        for hosted in done
        if hosted.ended is not None
        and hosted.ended.state in (AttemptState.TIMEOUT, AttemptState.PREEMPTED)
        and hosted.checkpoint_step > hosted.start_step
    ]
    # What advanced goes on from its checkpoint; what never started keeps the user's wish to start
    # from nothing.
    due = [dataclasses.replace(task, clean=False) for task in advanced] + list(waiting)
    tasks = tuple(_next(workspace, task) for task in due if _is_ours(workspace, task))
    if not tasks or not allocation.argv:
        return None
    token = f"vtj-{secrets.token_hex(8)}"
    # What it waited for has ended.
    successor = dataclasses.replace(
        allocation, token=token, created_at=time.time(), tasks=(tasks,), after=()
    )
    write_new(workspace.allocation(token), to_json(successor.to_dict()))
    here = on_node(allocation.shape.backend)
    command = [
        part.replace("{token}", token).replace("{job}", here.job) for part in allocation.argv
    ]
    try:
        # This job's own variables would pass for options of the next one.
        subprocess.run(
            command,
            check=True,
            timeout=60,
            stdin=subprocess.DEVNULL,
            preexec_fn=ignore_signals,
            env={**clean_environment(), **here.environment()},
        )
    except (OSError, subprocess.SubprocessError) as error:
        # The file is there: the next vtjobs command finds it and submits it.
        logger.error("%s: could not be submitted (%s)", token, error)
    logger.info("%s: handed on to %s", allocation.token, token)
    return token


def _is_ours(workspace: Workspace, task: Task) -> bool:
    """Whether nobody has cancelled the run or taken it over meanwhile.

    Its neighbours may end much later than it.
    """
    folder = workspace.run(task.run_id)
    return folder.highest_cancel() < task.attempt and folder.highest_claim() <= task.attempt


def _next(workspace: Workspace, task: Task) -> Task:
    folder = workspace.run(task.run_id)
    number = max(folder.highest_claim(), folder.highest_cancel(), task.attempt) + 1
    return dataclasses.replace(task, attempt=number)
