"""This machine's queue as an agent on it sees it."""

from ....jobs.config.node import OnNode, Queued
from ....jobs.workspace.paths import Workspace


class LocalNode(OnNode):
    """The machine that the queue serves."""

    one_machine = True
    keeps_order = True

    def queue(self, workspace: Workspace, token: str) -> list[Queued]:
        from .backend import LocalQueue

        queue = LocalQueue(workspace)
        running = queue.running()
        if (mine := running.get(token)) is None:
            return []
        # Who waits for cores does not wait for what has the GPUs.
        waiting = [
            name
            for name, need in queue.waiting()
            if name not in running and bool(need.gpus) == bool(mine.gpus)
        ]
        return [
            *(Queued(token=name, waits=False) for name in running),
            *(Queued(token=name, waits=True) for name in waiting),
        ]


# What the registry of backends takes from here.
ON_NODE = LocalNode
