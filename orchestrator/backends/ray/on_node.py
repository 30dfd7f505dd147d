"""Ray as an agent on one of its nodes sees it."""

import os

from ....jobs.config.host import address_towards
from ....jobs.config.node import OnNode, Queued
from ....jobs.workspace.allocation import read_allocation
from ....jobs.workspace.paths import Workspace

# Runs go on meanwhile, but nobody watches them.
DEADLINE_S = 3.0


class RayNode(OnNode):
    """A node of the cluster whose head stands in RAY_ADDRESS."""

    # Somebody's stop, or a node that goes: Ray says which afterwards, so nothing is handed on.
    explains_stops = True
    waits = True
    avoids = True

    def host(self) -> str:
        """Return the address by which Ray calls this node: its own on the way to the head."""
        head = os.environ.get("RAY_ADDRESS", "").rpartition(":")[0]
        return os.environ.get("VTJOBS_NODE") or (head and address_towards(head)) or super().host()

    def queue(self, workspace: Workspace, token: str) -> list[Queued]:
        from .api import Api, is_loopback
        from .submission import is_head
        from .turns import queue

        allocation = read_allocation(workspace.allocation(token))
        if allocation is None:
            return []
        site = allocation.site
        api = Api(site["address"], insecure=site["insecure"])
        if is_loopback(api.address) and not is_head():
            # A tunnel of the submitter's: what gives way could not be submitted from here.
            return []
        api.require_safe(deadline_s=DEADLINE_S)
        return queue(api, workspace, token, deadline_s=DEADLINE_S)

    def environment(self) -> dict[str, str]:
        """Return where the head is, and how this node shows it that it may submit."""
        return {
            name: value
            for name, value in os.environ.items()
            if name.startswith(("RAY_AUTH_", "RAY_ADDRESS"))
        }


# What the registry of backends takes from here.
ON_NODE = RayNode
