"""Serve runs by the same job once more, where the scheduler takes no further job.

At a limit of the site an agent's own job counts as well, so what the last one hands on is always
refused. A scheduler that can put a job back into its queue starts this one again instead.
"""

import logging
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

from ...jobs.atomic_files import to_json, write_new
from ...jobs.config.node import OnNode
from ...jobs.values import changed
from ...jobs.workspace.allocation import Allocation, Place, Task
from ...jobs.workspace.lineage import read_attempt
from ...jobs.workspace.paths import Workspace
from .successor import is_ours, others_try, readable_allocation, take_unsent, unsent_files

logger = logging.getLogger("vtjobs.agent")

# So long the tries of others are waited for.
OTHERS_S = 5.0


def serve_again(workspace: Workspace, allocation: Allocation, index: int, here: OnNode) -> bool:
    """Have this job start again for runs that could not be submitted; the last act of its agent.

    Args:
        workspace: where the files lie.
        allocation: the one that the agent serves.
        index: its place in it.
        here: the job.

    Returns:
        Whether it was put back; the scheduler may end this process before that.
    """
    place = Place(token=allocation.token, index=index)
    for path in _refused(workspace):
        unsent = readable_allocation(workspace, path.stem)
        if unsent is None or not _fits(unsent, allocation):
            continue
        if not here.may_start_again():
            return False
        if _take(workspace, path, unsent, place):
            logger.info("%s: this job is put back into the queue to serve it", unsent.token)
            return here.start_again()
    return False


def _refused(workspace: Workspace) -> Iterator[Path]:
    """Yield the files of refused submissions, those included that others try at this moment.

    Jobs that began together end together, and each of them tries what the others left.
    """
    deadline = time.monotonic() + OTHERS_S
    while True:
        # Looked at before and after: one that is tried may come back between the two looks.
        was_tried = others_try(workspace)
        yield from unsent_files(workspace)
        if not (was_tried or others_try(workspace)) or time.monotonic() > deadline:
            return
        time.sleep(0.2)


def _take(workspace: Workspace, path: Path, unsent: Allocation, place: Place) -> bool:
    """Claim what a refused submission asks for, and write down that this place serves it."""
    if (taken := take_unsent(path)) is None:
        return False
    tasks = tuple(_claimed(workspace, unsent))
    if tasks:
        content = changed(
            unsent,
            token=f"vtj-{secrets.token_hex(8)}",
            created_at=time.time(),
            tasks=(tasks,),
            inside=place,
        )
        write_new(workspace.allocation(content.token), to_json(content.to_dict()))
    taken.unlink(missing_ok=True)
    return bool(tasks)


def _fits(unsent: Allocation, own: Allocation) -> bool:
    """Whether a job like this one would serve it, on any node that may serve this one."""
    return (unsent.shape, unsent.lanes, unsent.exclude) == (own.shape, own.lanes, own.exclude)


def _claimed(workspace: Workspace, unsent: Allocation) -> Iterator[Task]:
    for task in unsent.all_tasks:
        if is_ours(workspace, task) and workspace.run(task.run_id).claim(task.attempt):
            yield changed(task, is_claimed=True)


def tasks_of_place(workspace: Workspace, allocation: Allocation, index: int) -> tuple[Task, ...]:
    """Return what a job was put back for; nothing where somebody else put it back."""
    place = Place(token=allocation.token, index=index)
    paths = sorted(workspace.allocations.glob("vtj-*.json"), key=_changed, reverse=True)
    for path in paths:
        content = readable_allocation(workspace, path.stem)
        if content is not None and content.inside == place:
            return tuple(task for task in content.all_tasks if _waits(workspace, task))
    return ()


def _changed(path: Path) -> float:
    try:
        return path.stat().st_ctime
    except FileNotFoundError:
        return 0.0


def _waits(workspace: Workspace, task: Task) -> bool:
    attempt = read_attempt(workspace.run(task.run_id), task.attempt)
    return attempt.start is None and attempt.end is None
