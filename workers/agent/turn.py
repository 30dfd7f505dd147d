"""When an agent gives its place back, because another grid waits for it.

An agent serves run after run, and its scheduler sees one job. So a second grid would wait for the
end of all of them.
"""

import logging
import os
import time

from ...jobs.config.node import OnNode
from ...jobs.errors import VtjobsError
from ...jobs.run.turns import gives_way
from ...jobs.workspace.allocation import Allocation
from ...jobs.workspace.paths import Workspace
from ...jobs.workspace.stored_grid import grid_ids
from .successor import readable_allocation, submit_unsent

logger = logging.getLogger("vtjobs.agent")

# How long another grid waits before an agent gives way, and an agent serves before it does: a
# start takes seconds, which are then a small part of a turn.
TURN_S = float(os.environ.get("VTJOBS_TURN_S", "60"))


class Turn:
    """The turn of one agent.

    Args:
        workspace: where the allocations lie.
        allocation: the one that the agent serves.
        scheduler: which others wait for.
        may_end: whether it can end before all runs are served.
    """

    def __init__(
        self, workspace: Workspace, allocation: Allocation, scheduler: OnNode, *, may_end: bool
    ) -> None:
        self.workspace = workspace
        self.allocation = allocation
        self.scheduler = scheduler
        self.given_to = ""
        """The allocation that the place is given to, as last seen; nothing where nobody waits."""
        self._may_end = may_end
        self._ask_at = time.monotonic() + TURN_S
        # A queue with an order had the others in it at once.
        self._owes = may_end and not scheduler.keeps_order

    def begin(self) -> None:
        """Submit what gave way to this allocation, now that its first run has started."""
        if self._owes:
            self._owes = False
            backend, token = self.allocation.shape.backend, self.allocation.token
            submit_unsent(self.workspace, backend, after_start_of=token)

    @property
    def waits_for(self) -> str:
        """The allocation that has to begin before what is handed on is submitted, or nothing."""
        return "" if self.scheduler.keeps_order else self.given_to

    def is_over(self) -> bool:
        """Return whether another grid's allocation has waited so long that it is its turn."""
        if self._may_end and time.monotonic() >= self._ask_at:
            self._ask_at = time.monotonic() + TURN_S / 2
            self.given_to = self._who_waits()
        return bool(self.given_to)

    def _who_waits(self) -> str:
        try:
            # Of one grid's agents none gives way to another.
            if len(grid_ids(self.workspace)) < 2:
                return ""
            queue = self.scheduler.queue(self.workspace, self.allocation.token)
        except (OSError, ValueError, KeyError, TypeError, VtjobsError) as error:
            logger.warning("cannot see whether other grids wait: %s", error)
            return ""
        read = {one.token: readable_allocation(self.workspace, one.token) for one in queue}
        at_work = [found for one in queue if not one.waits and (found := read[one.token])]
        waiting = [found for one in queue if one.waits and (found := read[one.token])]
        for other in sorted(waiting, key=lambda found: found.created_at):
            is_late = time.time() - other.created_at >= TURN_S
            if is_late and self._gives_way(other, at_work):
                logger.info("gives way to %s of grid %s", other.token, grid_of(other))
                return other.token
        return ""

    def _gives_way(self, other: Allocation, at_work: list[Allocation]) -> bool:
        mine, theirs = grid_of(self.allocation), grid_of(other)
        if mine == theirs:
            return False
        by_gpus = bool(other.shape.gpus and self.allocation.shape.gpus)
        sizes = [(grid_of(one), size(one, by_gpus=by_gpus)) for one in at_work]
        return gives_way(
            mine=sum(taken for grid, taken in sizes if grid == mine),
            place=size(self.allocation, by_gpus=by_gpus),
            theirs=sum(taken for grid, taken in sizes if grid == theirs),
            asked=size(other, by_gpus=by_gpus),
        )


def grid_of(allocation: Allocation) -> str:
    """Return the grid whose runs an allocation hosts."""
    return next((task.grid_id for task in allocation.all_tasks), "")


def size(allocation: Allocation, *, by_gpus: bool) -> int:
    """Return the GPUs, or the cores, of one place."""
    shape = allocation.shape
    if by_gpus:
        return shape.nodes * shape.gpus_of(allocation.lanes)
    return allocation.lanes * shape.nodes * shape.ranks * shape.threads
