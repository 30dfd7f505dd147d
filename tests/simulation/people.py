"""Processes of ours that come and go.

Two supervisors and a user, each with a ledger connection of its own.

At each of its steps (a transaction, a call of the scheduler) a process may wait while the others go
on, or die.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vtjobs.jobs.config.config import Config
from vtjobs.jobs.errors import LedgerUnreachable, SchedulerUnreachable
from vtjobs.orchestrator.loop.context import Context, open_context

from .profile import Profile
from .world import World

# Deaths in a row: making a ledger anew takes hundreds of steps, and would come to no end.
MOST_DEATHS = 3


class Killed(BaseException):
    """kill -9, as far as one process can do it to itself: nothing in the product catches it."""


class Process:
    """One process of ours; after its death the next operation is a new process's."""

    running: list[Process]
    """Innermost last; shared by all processes of a history."""

    def __init__(
        self, name: str, world: World, profile: Profile, config: Config, running: list[Process]
    ) -> None:
        self.name = name
        self.world = world
        self.profile = profile
        self.config = config
        self.running = running
        self.calm = False
        self._context: Context | None = None
        self._deaths = 0
        # In a row.

    @property
    def is_busy(self) -> bool:
        return self in self.running

    def do(self, what: str, action: Callable[[Context], Any]) -> bool:
        """Carry out an operation; return whether it came to its end."""
        if self.is_busy:
            return False
        self.running.append(self)
        self.world.note(f"{self.name} {what}")
        try:
            action(self._opened())
        except Killed:
            self.world.note(f"{self.name} killed")
            self._deaths += 1
            self.leave()
            return False
        except (SchedulerUnreachable, LedgerUnreachable) as error:
            self.world.note(f"{self.name} {type(error).__name__}")
            return False
        finally:
            self.running.remove(self)
        self._deaths = 0
        return True

    def _opened(self) -> Context:
        if self._context is None:
            self._context = open_context(self.config, clock=self.world)
        return self._context

    def leave(self) -> None:
        """End the process."""
        if self._context is not None:
            self._context.ledger.engine.dispose()
            self._context = None

    def step(self) -> None:
        """Between two steps: die, or wait, or go on."""
        if self.calm or self.running[-1:] != [self]:
            return
        dice = self.world.random.random()
        if dice < self.profile.kill and self._deaths < MOST_DEATHS:
            raise Killed
        if dice < self.profile.kill + self.profile.pause:
            long = self.world.chance(0.03)
            self.world.run_until(
                self.world.now + (self.world.between(10, 100) if long else self.world.between(0, 4))
            )
