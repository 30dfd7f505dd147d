"""Hand runs on: one more allocation for what this one can no longer serve.

What a walltime or a preemption cut short, what another node shall try, and what gives way to
another grid. What the scheduler does not take at this moment lies beside the allocation's file as
`<token>.unsent`, and the next agent that ends tries it again.
"""

import contextlib
import logging
import secrets
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from ...jobs.atomic_files import to_json, write_new
from ...jobs.config.host import clean_environment
from ...jobs.config.node import OnNode, ignore_signals, on_node
from ...jobs.documents import to_plain
from ...jobs.errors import DamagedFile, VtjobsError
from ...jobs.run.states import AttemptState, RunState
from ...jobs.values import changed
from ...jobs.workspace.allocation import Allocation, Task, read_allocation
from ...jobs.workspace.history import verdict_of
from ...jobs.workspace.paths import Workspace
from ...jobs.workspace.stored_grid import read_settings
from ...jobs.workspace.unsent import Unsent, gives_way_to, read_unsent
from .attempt import HostedRun

logger = logging.getLogger("vtjobs.agent")

# An agent that takes longer over a submission is gone.
SENDING_S = 90.0


def hand_on_stopped(
    workspace: Workspace, allocation: Allocation, done: Sequence[HostedRun], waiting: Sequence[Task]
) -> str | None:
    """Submit what a walltime or a preemption cut short; return the successor's token.

    A run that made no new checkpoint goes on only while the retry policy lets it.
    """
    stopped = [
        hosted.task
        for hosted in done
        if hosted.ended is not None
        and hosted.ended.state in (AttemptState.TIMEOUT, AttemptState.PREEMPTED)
        and (hosted.has_advanced or _may_go_on(workspace, hosted.task))
    ]
    # What started goes on from its checkpoint; what never started keeps the user's wish to start
    # from nothing.
    due = [changed(task, clean=False) for task in stopped] + list(waiting)
    return hand_on(workspace, allocation, due, unstarted=0 if done else allocation.unstarted + 1)


def _may_go_on(workspace: Workspace, task: Task) -> bool:
    """Whether the retry policy lets a run go on that was stopped before a new checkpoint."""
    try:
        if (settings := read_settings(workspace, task.grid_id)) is None:
            return False
        return verdict_of(workspace.run(task.run_id), settings).state is RunState.PENDING
    except (OSError, ValueError, KeyError, VtjobsError) as error:
        # The next pass over the workspace sees to it.
        logger.warning("run %s: cannot be judged from here: %s", task.run_id, error)
        return False


def hand_on(
    workspace: Workspace,
    allocation: Allocation,
    due: Sequence[Task],
    *,
    avoid: str = "",
    waits: bool = True,
    delay_s: float = 0.0,
    unstarted: int = 0,
    after_start_of: str = "",
) -> str | None:
    """Write a successor's file and submit it by the allocation's own command.

    Args:
        workspace: where the files lie.
        allocation: the one that served the runs.
        due: their last attempts.
        avoid: this node, if another one shall serve them.
        waits: whether they start only after this job has ended.
        delay_s: how long they wait at least, in seconds.
        unstarted: see Allocation.unstarted.
        after_start_of: the allocation to which they give way. It is submitted by the agent of that
            one, or by whoever ends or makes a pass once that one has begun.

    Returns:
        The successor's token; None where there is nothing to hand on, or no command for it.
    """
    tasks = tuple(_next(workspace, task) for task in due if is_ours(workspace, task))
    if not tasks or not allocation.argv:
        return None
    token = f"vtj-{secrets.token_hex(8)}"
    exclude = (*allocation.exclude, avoid) if avoid else allocation.exclude
    # What it waited for has ended.
    successor = changed(
        allocation,
        token=token,
        created_at=time.time(),
        tasks=(tasks,),
        after=(),
        exclude=exclude,
        unstarted=unstarted,
        handed_on=True,
        inside=None,
    )
    write_new(workspace.allocation(token), to_json(successor.to_dict()))
    here = on_node(allocation.shape.backend)
    # The command has those that the allocation avoided already.
    more = [avoid] if avoid else []
    command = here.successor(allocation.argv, token, exclude=more, waits=waits, delay_s=delay_s)
    if not after_start_of and (reply := _submit(here, token, command)) is not None:
        logger.info("%s: handed on to %s", allocation.token, token)
        here.handed_on(reply, allocation.argv)
    else:
        left = Unsent(
            backend=allocation.shape.backend, command=command, gives_way_to=after_start_of
        )
        write_new(workspace.unsent(token), to_json(to_plain(left)))
    return token


def submit_unsent(workspace: Workspace, backend: str, *, after_start_of: str = "") -> None:
    """Submit what agents of this backend left to others, up to the first that is refused.

    Args:
        workspace: where the files lie.
        backend: the scheduler.
        after_start_of: an allocation that begins: only what gave way to it is submitted.
    """
    here = on_node(backend)
    for path in sorted(unsent_files(workspace)):
        token, content = path.stem, read_unsent(path)
        if content is None or content.backend != backend:
            continue
        if not _is_due(workspace, token, content, after_start_of):
            continue
        if (taken := take_unsent(path)) is None:
            continue
        if _is_wanted(workspace, token) and _submit(here, token, content.command) is None:
            taken.rename(workspace.unsent(token))
            return
        logger.info("%s: is no longer unsent", token)
        taken.unlink(missing_ok=True)


def _is_due(workspace: Workspace, token: str, content: Unsent, started: str) -> bool:
    if started:
        return content.gives_way_to == started
    return gives_way_to(workspace, token) is None


def unsent_files(workspace: Workspace) -> list[Path]:
    """Return the files of refused submissions that no other agent tries at this moment."""
    tried = [path for path, at in _being_tried(workspace) if time.time() - at >= SENDING_S]
    return [*workspace.allocations.glob("vtj-*.unsent"), *tried]


def others_try(workspace: Workspace) -> bool:
    """Whether other agents try refused submissions at this moment."""
    return any(time.time() - at < SENDING_S for _, at in _being_tried(workspace))


def _being_tried(workspace: Workspace) -> Iterator[tuple[Path, float]]:
    """Yield what was taken to be tried, and when; an agent may have died over it."""
    for path in workspace.allocations.glob("vtj-*.sending-*"):
        with contextlib.suppress(FileNotFoundError):
            yield path, path.stat().st_ctime


def take_unsent(path: Path) -> Path | None:
    """Take a submission that was refused; return its new name, None where somebody was faster."""
    taken = path.with_suffix(f".sending-{secrets.token_hex(4)}")
    try:
        path.rename(taken)
    except FileNotFoundError:
        return None
    return taken


def _is_wanted(workspace: Workspace, token: str) -> bool:
    """Whether an allocation has a run that nobody has cancelled, and whose attempt is not taken."""
    allocation = readable_allocation(workspace, token)
    return allocation is not None and any(
        is_ours(workspace, task) and workspace.run(task.run_id).highest_claim() < task.attempt
        for task in allocation.all_tasks
    )


def readable_allocation(workspace: Workspace, token: str) -> Allocation | None:
    """Return an allocation; None where its file is gone or cannot be read.

    Damaged, or of a newer vtjobs: whoever makes the next pass says so.
    """
    try:
        return read_allocation(workspace.allocation(token))
    except (OSError, DamagedFile):
        return None


def was_sent(workspace: Workspace, token: str | None) -> bool:
    """Whether a scheduler has taken a successor."""
    return token is not None and not workspace.unsent(token).exists()


def _submit(here: OnNode, token: str, command: Sequence[str]) -> str | None:
    """Return what the scheduler replied; None where it did not take it."""
    try:
        # This job's own variables would pass for options of the next one.
        done = subprocess.run(
            command,
            check=True,
            timeout=60,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            errors="replace",
            preexec_fn=ignore_signals,
            env={**clean_environment(), **here.environment()},
        )
    except subprocess.CalledProcessError as error:
        # What it said stands above this in the log.
        logger.error("%s: not submitted: %s ended with %d", token, command[0], error.returncode)
        return None
    except (OSError, subprocess.SubprocessError) as error:
        logger.error("%s: not submitted: %s", token, error)
        return None
    return done.stdout


def is_ours(workspace: Workspace, task: Task) -> bool:
    """Whether nobody has cancelled the run or taken it over meanwhile.

    Its neighbours may end much later than it.
    """
    folder = workspace.run(task.run_id)
    return folder.highest_cancel() < task.attempt and folder.highest_claim() <= task.attempt


def _next(workspace: Workspace, task: Task) -> Task:
    folder = workspace.run(task.run_id)
    number = max(folder.highest_claim(), folder.highest_cancel(), task.attempt) + 1
    return changed(task, attempt=number, is_claimed=False)
