"""What became of the GPU-hours of a run's attempts."""

from dataclasses import dataclass, replace

import pytest
from sqlalchemy import update

from vtjobs.db import models as m
from vtjobs.db.engine import reading, writing
from vtjobs.db.gpu_hours import GpuHours, added, gpu_hours, of_run
from vtjobs.db.ingest import ingest_live
from vtjobs.jobs.run.states import AttemptState

from ..support.ledgers import World, paper_grid

HOUR = 3600.0


@dataclass(frozen=True)
class Tried:
    """An attempt with two GPUs that ran for ten hours, from hour 100 on."""

    number: int = 1
    state: str = "completed"
    gpus: int = 2
    per_gpu: int = 1
    started_at: float | None = 100 * HOUR
    ended_at: float | None = 110 * HOUR
    heartbeat_at: float | None = 110 * HOUR
    resumed_attempt: int | None = None
    resumed_step: int | None = None


SAVED = {40: 104 * HOUR, 80: 108 * HOUR}
HEIR = Tried(number=2, resumed_attempt=1, resumed_step=80)


def hours(**parts: float) -> GpuHours:
    return GpuHours(**({"useful": 0.0, "lost": 0.0, "failed": 0.0, "superseded": 0.0} | parts))


@pytest.mark.parametrize("state", ["completed", "running"])
def test_all_hours_of_an_attempt_that_completed_or_runs_are_useful(state: str) -> None:
    ended_at = None if state == "running" else 110 * HOUR
    assert of_run([Tried(state=state, ended_at=ended_at)], {}) == {1: hours(useful=20.0)}


def test_of_a_gpu_that_runs_share_each_counts_its_part() -> None:
    assert of_run([Tried(gpus=1, per_gpu=2)], {}) == {1: hours(useful=5.0)}


@pytest.mark.parametrize("state", ["timeout", "preempted", "node_fail", "cancelled", "lost"])
def test_of_a_stopped_attempt_what_came_after_its_last_checkpoint_is_lost(state: str) -> None:
    assert of_run([Tried(state=state)], {1: SAVED}) == {1: hours(useful=16.0, lost=4.0)}
    assert of_run([Tried(state=state)], {}) == {1: hours(lost=20.0)}


@pytest.mark.parametrize("state", ["failed", "out_of_memory"])
def test_a_failed_attempt_is_useful_only_where_a_later_one_went_on_from_it(state: str) -> None:
    failed = Tried(state=state)
    assert of_run([failed], {1: SAVED}) == {1: hours(failed=20.0)}
    assert of_run([failed, HEIR], {1: SAVED})[1] == hours(useful=16.0, failed=4.0)


def test_so_it_is_with_a_superseded_one() -> None:
    zombie = Tried(state="superseded")
    assert of_run([zombie], {1: SAVED}) == {1: hours(superseded=20.0)}
    assert of_run([zombie, HEIR], {1: SAVED})[1] == hours(useful=16.0, superseded=4.0)


def test_what_counts_is_the_checkpoint_that_the_newest_heir_went_on_from() -> None:
    tried = [Tried(state="preempted"), HEIR, replace(HEIR, number=3, resumed_step=40)]
    assert of_run(tried, {1: SAVED})[1] == hours(useful=8.0, lost=12.0)


def test_where_the_run_began_anew_nothing_of_the_attempt_before_is_left() -> None:
    tried = [Tried(state="preempted"), Tried(number=2)]
    assert of_run(tried, {1: SAVED})[1] == hours(lost=20.0)


def test_a_later_attempt_that_never_started_takes_nothing_back() -> None:
    waiting = Tried(number=2, state="queued", started_at=None, ended_at=None, heartbeat_at=None)
    found = of_run([Tried(state="preempted"), waiting], {1: SAVED})
    assert found == {1: hours(useful=16.0, lost=4.0), 2: hours()}


def test_a_lost_attempt_that_had_completed_after_all_is_useful_to_its_end() -> None:
    stands_for = Tried(number=2, started_at=None, heartbeat_at=110 * HOUR, resumed_attempt=1)
    assert of_run([Tried(state="lost"), stands_for], {1: SAVED})[1] == hours(useful=20.0)


def test_an_attempt_that_was_noticed_late_to_be_lost_ended_with_its_last_sign_of_life() -> None:
    lost = Tried(state="lost", ended_at=500 * HOUR)
    assert of_run([lost], {}) == {1: hours(lost=20.0)}


def test_a_clock_that_was_set_back_makes_no_hours_less_than_nothing() -> None:
    assert of_run([Tried(heartbeat_at=99 * HOUR)], {}) == {1: hours()}


def test_every_state_has_its_place_and_no_hour_counts_twice() -> None:
    for state in AttemptState:
        for tried in ([Tried(state=state)], [Tried(state=state), HEIR]):
            assert of_run(tried, {1: SAVED})[1].total == pytest.approx(20.0), state


def test_a_run_without_gpus_has_no_gpu_hours() -> None:
    assert of_run([Tried(gpus=0)], {}) == {1: hours()}


def test_a_sum_is_over_each_class() -> None:
    parts = [hours(useful=1.25, lost=0.5), hours(useful=1.0, failed=2.0)]
    assert added(parts) == hours(useful=2.25, lost=0.5, failed=2.0)
    assert added([]) == hours()


@pytest.mark.paper("DE-19", "OR-08")
def test_the_ledger_knows_all_that_is_needed(world: World) -> None:
    first, second = world.submit(paper_grid(seeds=2))
    world.launch(first, second)
    world.start(first, 1)
    world.now += HOUR
    world.checkpoint(first, 1, 10)
    world.now += HOUR
    world.end(first, 1, "preempted", "stopped")
    world.train(second, 1, 50.0)
    ingest_live(world.ledger, world.workspace)
    world.launch(first)
    world.start(first, 2, resumed=(1, 10))
    ingest_live(world.ledger, world.workspace)
    with writing(world.ledger.engine) as connection:
        connection.execute(update(m.attempts).values(gpus=4))
    with reading(world.ledger.engine) as connection:
        found = gpu_hours(connection, [first, second, "unknown"])
    assert found.keys() == {first, second}
    assert found[first][1].useful == pytest.approx(4.0, abs=0.01)
    assert found[first][1].lost == pytest.approx(4.0, abs=0.01)
    assert found[first][2] == hours()
    assert found[second][1].total == found[second][1].useful > 0
