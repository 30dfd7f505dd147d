"""Attempts on a node other than 0.

It claims and decides nothing, and follows what node 0 ordered.
"""

import logging
import time
from collections import deque
from collections.abc import Iterator

from ...jobs.workspace.allocation import Allocation, Task
from ...jobs.workspace.lineage import read_attempt
from ...jobs.workspace.paths import Workspace
from ..orders import Order, PublishedOrder
from .attempt import HostedRun
from .attempt_journal import AttemptJournal
from .orders import read_order
from .outcome import Outcome, set_up_failure
from .template_client import TemplateDied

logger = logging.getLogger("vtjobs.agent")

# How often node 0's orders are looked for.
FOLLOW_S = 0.5


class OrderWatch:
    """Looks for what node 0 orders for the runs of an allocation."""

    def __init__(self, workspace: Workspace, allocation: Allocation) -> None:
        self.workspace = workspace
        self.allocation = allocation
        self._next_at = 0.0
        self._busy_at = time.monotonic()

    def take(self, waiting: deque[Task], busy: set[int]) -> Iterator[tuple[Task, PublishedOrder]]:
        """Yield the runs to start now, and let go of those that node 0 ended without an order.

        Args:
            waiting: the runs that have not started here; what is yielded or let go is removed.
            busy: lanes that have a run.
        """
        now = time.monotonic()
        if now < self._next_at:
            return
        self._next_at = now + FOLLOW_S
        for task in list(waiting):
            folder = self.workspace.run(task.run_id)
            try:
                order = read_order(folder, task.attempt, token=self.allocation.token)
                is_over = read_attempt(folder, task.attempt).end is not None
            except OSError as error:
                logger.warning("cannot read what node 0 ordered, trying again: %s", error)
                continue
            if is_over:
                waiting.remove(task)
            elif order is not None and order.lane not in busy:
                waiting.remove(task)
                yield task, order

    def check(self, waiting: deque[Task], *, is_busy: bool) -> None:
        """Let go of all that waits where node 0 has ordered nothing for too long."""
        now = time.monotonic()
        self._busy_at = now if is_busy else self._busy_at
        if now - self._busy_at > self.allocation.hang_s:
            logger.error("node 0 has ordered nothing for %.0f s", now - self._busy_at)
            waiting.clear()


class PeerRun(HostedRun):
    """The ranks of one node; its end record is for the other agents' eyes alone."""

    def follow(self, order: Order) -> None:
        """Fork this node's ranks as node 0 says, or end at once with the reason."""
        try:
            self.journal = AttemptJournal(self.folder.journal(self.task.attempt, self.node))
        except OSError as error:
            # Without a journal nobody hears of it; node 0 misses this node's ranks soon enough.
            self.ended = set_up_failure(error)
            return
        try:
            self.journal.write(
                "start", attempt=self.task.attempt, host=self.host, gpus=self.lane.gpus
            )
            self._fork_all(order, None)
        except TemplateDied:
            raise
        except OSError as error:
            self.ranks.kill()
            self._end(set_up_failure(error))

    def _conclude(self, own: Outcome, now: float) -> Outcome | None:
        return own
