"""Somebody who looks at everything: what all reading commands say, after every few steps.

Whatever became of the runs, the views must say the same of them.
"""

from __future__ import annotations

from vtjobs.jobs.config.config import Config
from vtjobs.orchestrator.loop.context import Context, open_context
from vtjobs.orchestrator.views import runs as view_runs

from ..support.views import ALL, check_counts, check_run
from .watch import Violation
from .world import World

Kind = tuple[str | bool, ...]

# A reader takes longer than most steps: it looks at every third one.
EVERY = 3


class Views:
    """A reader of the workspace, with a ledger connection of its own."""

    def __init__(self, config: Config, world: World) -> None:
        self.config = config
        self.world = world
        self.words: set[str] = set()
        """Those that any run was shown by."""
        self._context: Context | None = None
        self._steps = 0
        # One run of each kind is looked at closely: what `show` and `why` say follows from that.
        self._met: set[Kind] = set()

    def look(self) -> None:
        """Compare what the views say, every third time that there is something to see.

        Raises:
            Violation: two of them say different things.
        """
        if not (self.config.workspace.root / "ledger.sqlite").exists():
            # Whoever opens the workspace next makes it anew; that is a step of the history.
            return
        self._steps += 1
        if self._steps % EVERY:
            return
        if self._context is None:
            self._context = open_context(self.config, to_read=True, clock=self.world)
        try:
            self._compare(self._context)
        except AssertionError as error:
            raise Violation(f"I9: {error}") from error

    def _compare(self, context: Context) -> None:
        found = view_runs.runs(context, ALL)
        check_counts(context, found, ())
        for run in found:
            if (kind := _kind(run)) not in self._met:
                self._met.add(kind)
                self.words.add(run.shown_state)
                check_run(context, run)

    def leave(self) -> None:
        """Let go of the ledger."""
        if self._context is not None:
            self._context.ledger.engine.dispose()
            self._context = None


def _kind(run: view_runs.RunView) -> Kind:
    scheduler = (run.scheduler or "").partition(" ")[0]
    return (
        run.state,
        run.shown_state,
        scheduler,
        run.attempts > 1,
        bool(run.reason),
        run.started_at is None,
        run.ended_at is None,
    )
