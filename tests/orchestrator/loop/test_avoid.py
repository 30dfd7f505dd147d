"""What waits already is kept off a node on which no agent can start, once."""

from collections.abc import Sequence

import pytest

from vtjobs.db.bad_nodes import BLACK_HOLE_S
from vtjobs.jobs.errors import SchedulerUnreachable
from vtjobs.jobs.run.states import AttemptState
from vtjobs.orchestrator.backends.base import Place

from ...support.grids import tiny_grid
from ...support.lab import Lab, SleepingBackend


class Excluding(SleepingBackend):
    """A queue that keeps what it was told, or does not answer."""

    def __init__(self, lab: Lab) -> None:
        super().__init__(lab.context.workspace)
        self.told: list[tuple[int, tuple[str, ...]]] = []
        self.is_away = False

    def avoid(self, places: Sequence[Place], nodes: Sequence[str]) -> None:
        if self.is_away:
            raise SchedulerUnreachable("no answer")
        self.told.append((len(places), tuple(nodes)))


def swallow(lab: Lab, node: str, *run_ids: str) -> None:
    """Let the jobs of these runs end on a node before their agents began."""
    for run_id in run_ids:
        lab.allocate([run_id])
        fields = {"failure": "not_submitted", "host": node, "signature": "no", "error": "no mount"}
        number = lab.attempts(run_id)[-1].number
        lab.context.ledger.transition(run_id, number, AttemptState.LOST, source="x", **fields)


@pytest.fixture
def queue(quiet_lab: Lab) -> Excluding:
    """A queue in which one run waits, beside two that a node has swallowed."""
    queue = Excluding(quiet_lab)
    quiet_lab.context._backends["local"] = queue
    quiet_lab.submit(tiny_grid(seeds="1"))
    quiet_lab.tick()
    swallow(quiet_lab, "gpu1", *quiet_lab.submit(tiny_grid(seeds="[1, 2]")))
    return queue


def test_what_waits_is_kept_off_a_black_hole_once(quiet_lab: Lab, queue: Excluding) -> None:
    quiet_lab.tick(start=False)
    quiet_lab.tick(start=False)
    assert queue.told == [(1, ("gpu1",))]


def test_a_scheduler_that_is_away_is_told_in_a_later_pass(quiet_lab: Lab, queue: Excluding) -> None:
    queue.is_away = True
    quiet_lab.tick(start=False)
    assert queue.told == []
    queue.is_away = False
    quiet_lab.tick(start=False)
    assert queue.told == [(1, ("gpu1",))]


def test_a_node_that_is_a_black_hole_again_is_told_again(quiet_lab: Lab, queue: Excluding) -> None:
    quiet_lab.tick(start=False)
    quiet_lab.clock.ahead_s = BLACK_HOLE_S + 60
    quiet_lab.tick(start=False)
    swallow(quiet_lab, "gpu1", *quiet_lab.submit(tiny_grid(seeds="[5, 6]")))
    quiet_lab.tick(start=False)
    assert [nodes for _, nodes in queue.told] == [("gpu1",), ("gpu1",)]
