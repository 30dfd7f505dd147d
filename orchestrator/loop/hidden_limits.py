"""Limits that a scheduler does not tell: what its refusals have shown is remembered.

How many places were live when one more was refused is taken for the limit. Now and then a few more
are tried, as the limit may have been raised, or others may share it.
"""

import hashlib

from ...db import lookups, queries, scheduler_notes
from ...db.engine import reading
from ...db.ledger import LATER_S
from ...db.scheduler_notes import Learned
from ...jobs.run.spec import canonical
from ...jobs.values import changed
from ...jobs.workspace.grid_settings import GridSettings
from .context import Context

NAME = "learned from a refusal"


class HiddenLimits:
    """What is known of the hidden limits of one backend during a pass."""

    def __init__(self, context: Context, name: str) -> None:
        self.context = context
        self.name = name
        self.queue_settings = context.backend(name).queue_settings
        self.learned = scheduler_notes.learned(context.ledger, name)
        self.live = self._live() if self.learned else {}
        self._met: set[str] = set()

    def free(self, settings: GridSettings) -> dict[str, int]:
        """Return the places that a limit leaves a grid, by the limit's name."""
        queue = self._queue(settings)
        if (known := self.learned.get(queue)) is None:
            return {}
        more = known.step if self.context.clock() - known.at >= LATER_S else 0
        return {f"{NAME} ({queue})": max(0, known.places + more - self.live.get(queue, 0))}

    def is_met(self, settings: GridSettings) -> bool:
        """Return whether a refusal in this pass holds for the grid as well."""
        return self._queue(settings) in self._met

    def met(self, settings: GridSettings) -> None:
        """Write down that the scheduler took no more of a grid than it has now."""
        queue = self._queue(settings)
        self._met.add(queue)
        found = Learned(places=self._live().get(queue, 0), at=self.context.clock())
        scheduler_notes.learn(self.context.ledger, self.name, queue, found)

    def passed(self, settings: GridSettings) -> None:
        """Write down that the scheduler took all of a grid that was tried."""
        queue = self._queue(settings)
        if (known := self.learned.get(queue)) is None:
            return
        live = self._live().get(queue, 0)
        if live > known.places:
            raised = changed(known, places=live, step=2 * known.step)
            self.learned[queue] = raised
            scheduler_notes.learn(self.context.ledger, self.name, queue, raised)

    def _queue(self, settings: GridSettings) -> str:
        chosen = {name: settings.site.get(name) for name in self.queue_settings}
        return hashlib.sha256(canonical(chosen).encode()).hexdigest()[:8]

    def _live(self) -> dict[str, int]:
        """Return the live places of each queue."""
        with reading(self.context.ledger.engine) as connection:
            places = lookups.places_by_grid(connection, self.name)
            settings = queries.grid_settings(connection, set(places))
        found: dict[str, int] = {}
        for grid_id, count in places.items():
            queue = self._queue(settings[grid_id])
            found[queue] = found.get(queue, 0) + count
        return found
