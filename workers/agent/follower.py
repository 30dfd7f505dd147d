"""An attempt on a node other than 0.

It claims and decides nothing, and follows what node 0 ordered.
"""

from ..orders import Order
from .attempt import HostedRun
from .attempt_journal import AttemptJournal
from .outcome import Outcome, set_up_failure
from .template_client import TemplateDied


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
            self._kill()
            self._end(set_up_failure(error))

    def _conclude(self, own: Outcome, now: float) -> Outcome | None:
        return own
