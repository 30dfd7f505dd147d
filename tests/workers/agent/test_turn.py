"""When an agent gives its place back to another grid."""

import dataclasses
import time

import pytest

from vtjobs.jobs.atomic_files import to_json, write_new
from vtjobs.jobs.config.host import cpu_count
from vtjobs.jobs.config.node import OnNode, Queued
from vtjobs.jobs.errors import SchedulerUnreachable
from vtjobs.jobs.workspace.allocation import Allocation, Shape, Task
from vtjobs.jobs.workspace.paths import Workspace
from vtjobs.workers.agent import turn
from vtjobs.workers.agent.turn import Turn

from ...support.grids import tiny_grid
from ...support.lab import Lab


class Scheduler(OnNode):
    """One whose queue a test writes."""

    def __init__(self) -> None:
        self.jobs: list[Queued] = []
        self.is_away = False
        self.asked = 0

    def queue(self, workspace: Workspace, token: str) -> list[Queued]:
        self.asked += 1
        if self.is_away:
            raise SchedulerUnreachable("no answer")
        return self.jobs


@dataclasses.dataclass
class Crowd:
    """A workspace with two grids, and a scheduler that has allocations of theirs."""

    lab: Lab
    scheduler: Scheduler = dataclasses.field(default_factory=Scheduler)
    made: int = 0

    def add(self, grid: str, *, waits: bool, late_s: float = 100.0) -> Allocation:
        """Have the scheduler have one more allocation."""
        self.made += 1
        task = Task(run_id=f"{self.made:016x}", attempt=1, grid_id=grid)
        allocation = Allocation(
            token=f"vtj-{self.made}", created_at=time.time() - late_s, shape=Shape(backend="ray", gpus=1),
            lanes=1, tasks=((task,),), data_root="/none",
        )  # fmt: skip
        path = self.lab.context.workspace.allocation(allocation.token)
        write_new(path, to_json(allocation.to_dict()))
        self.scheduler.jobs.append(Queued(token=allocation.token, waits=waits))
        return allocation

    def turn(self, allocation: Allocation) -> Turn:
        return Turn(self.lab.context.workspace, allocation, self.scheduler, may_end=True)


@pytest.fixture
def crowd(quiet_lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Crowd:
    """Agents that have had their own turn as soon as they start."""
    monkeypatch.setattr(turn, "TURN_S", 0.0)
    for name in ("first", "second"):
        quiet_lab.submit(tiny_grid(seeds="1", name=name))
    return Crowd(quiet_lab)


def test_the_place_goes_to_another_grid_that_waits(crowd: Crowd) -> None:
    mine, other = crowd.add("first", waits=False), crowd.add("second", waits=True)
    found = crowd.turn(mine)
    assert found.is_over()
    assert found.given_to == found.waits_for == other.token


def test_agents_of_one_grid_do_not_give_way_to_each_other(crowd: Crowd) -> None:
    mine, _ = crowd.add("first", waits=False), crowd.add("first", waits=True)
    assert not crowd.turn(mine).is_over()


def test_a_grid_that_has_as_much_at_work_waits(crowd: Crowd) -> None:
    mine, _ = crowd.add("first", waits=False), crowd.add("second", waits=False)
    crowd.add("second", waits=True)
    assert not crowd.turn(mine).is_over()


def test_the_one_that_has_waited_longest_is_first(crowd: Crowd) -> None:
    mine = crowd.add("first", waits=False)
    crowd.add("second", waits=True, late_s=100)
    longest = crowd.add("third", waits=True, late_s=200)
    found = crowd.turn(mine)
    assert found.is_over() and found.given_to == longest.token


def test_an_agent_first_has_a_turn_of_its_own_and_the_other_one_waits_a_while(
    crowd: Crowd, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, _ = crowd.add("first", waits=False), crowd.add("second", waits=True, late_s=10)
    monkeypatch.setattr(turn, "TURN_S", 60.0)
    found = crowd.turn(mine)
    assert not found.is_over() and not crowd.scheduler.asked
    found._ask_at = 0.0
    assert not found.is_over(), "it has waited for ten seconds only"


def test_one_who_no_longer_waits_is_given_nothing(crowd: Crowd) -> None:
    mine, _ = crowd.add("first", waits=False), crowd.add("second", waits=True)
    found = crowd.turn(mine)
    assert found.is_over()
    crowd.scheduler.jobs.pop()
    assert not found.is_over()


def test_a_scheduler_that_cannot_be_asked_costs_nobody_a_place(crowd: Crowd) -> None:
    mine, _ = crowd.add("first", waits=False), crowd.add("second", waits=True)
    crowd.scheduler.is_away = True
    assert not crowd.turn(mine).is_over()


def test_nobody_is_asked_where_there_is_no_other_grid(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turn, "TURN_S", 0.0)
    lab.asleep = True
    lab.submit(tiny_grid(seeds="1"))
    crowd = Crowd(lab)
    assert not crowd.turn(crowd.add("first", waits=False)).is_over()
    assert not crowd.scheduler.asked


def test_on_this_machine_a_second_grid_gets_its_turn_before_the_first_one_has_ended(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VTJOBS_TURN_S", "0.2")
    whole = f"gpus_per_node: 0, threads: {cpu_count()}"
    first = lab.submit(tiny_grid(seeds="3", name="first").replace("gpus_per_node: 0", whole))
    lab.tick()
    lab.wait(lambda: lab.record(first[0], 1).start)
    second = lab.submit(
        tiny_grid(seeds="1", epochs=3, name="second").replace("gpus_per_node: 0", whole)
    )
    # Three agents start, one after the other, each with its own fork server.
    lab.finish(seconds=240)
    ended = {run_id: lab.attempts(run_id)[-1].ended_at for run_id in first + second}
    assert {lab.state(run_id) for run_id in first + second} == {"completed"}
    assert min(ended[run_id] for run_id in second) < max(ended[run_id] for run_id in first)
    states = {attempt.state for run_id in first + second for attempt in lab.attempts(run_id)}
    assert states == {"completed", "superseded"}
