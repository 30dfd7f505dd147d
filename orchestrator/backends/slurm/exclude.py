"""Excludes nodes from jobs that wait already."""

from collections.abc import Mapping, Sequence

from .shell import CommandFailed, ask, user


def exclude(jobs: Mapping[str, str], nodes: Sequence[str], *, deadline_s: float) -> None:
    """Exclude nodes from those of some jobs that still wait.

    Args:
        jobs: their ids, and the name of each: a controller that crashed gives ids away again.
        nodes: names.
        deadline_s: how long each answer is waited for.

    Raises:
        SchedulerUnreachable: the controller could not be asked.
    """
    if not jobs:
        return
    command = ["squeue", f"--user={user()}", "--noheader", "--states=PENDING", "--format=%F|%x|%j"]
    excluded: dict[str, str] = {}
    for line in ask(command, deadline_s=deadline_s).splitlines():
        job, before, name = line.split("|", 2)
        if jobs.get(job) == name:
            excluded[job] = before
    for job, before in excluded.items():
        names = dict.fromkeys([*filter(None, before.replace("(null)", "").split(",")), *nodes])
        try:
            ask(
                ["scontrol", "update", f"JobId={job}", f"ExcNodeList={','.join(names)}"],
                deadline_s=deadline_s,
            )
        except CommandFailed:
            # It began meanwhile, or no other node could take it: a bad node is better than none.
            continue
