"""Runs' states are kept up to date in the ledger."""

from vtjobs.db import models as m
from vtjobs.jobs.run.states import AttemptState

from ..support.ledgers import World, paper_grid


def end(world: World, run_id: str, state: str, failure: str | None) -> None:
    world.launch(run_id)
    number = world.attempts(run_id)[-1]["number"]
    assert world.ledger.transition(
        run_id, number, AttemptState(state), source="journal", failure=failure
    )


def test_children_follow_their_parents_through_failure_and_retry(world: World) -> None:
    first, second, third = world.submit(paper_grid(stages=("a", "b", "c"), retries=1))
    end(world, first, "failed", "crash")
    assert world.states() == {first: "failed", second: "blocked", third: "blocked"}
    reasons = {row["run_id"]: row["reason"] for row in world.rows(m.runs)}
    assert (
        reasons[second] == "its parent stage is failed"
        and reasons[third] == "its parent stage is blocked"
    )
    world.grant(first)
    assert set(world.states().values()) == {"pending"}
    end(world, first, "completed", None)
    end(world, second, "completed", None)
    world.cancel(third)
    assert world.states() == {first: "completed", second: "completed", third: "cancelled"}


def test_cancelling_a_parent_blocks_its_children_and_a_retry_frees_them(world: World) -> None:
    first, second = world.submit(paper_grid(stages=("a", "b")))
    world.cancel(first)
    assert world.states() == {first: "cancelled", second: "blocked"}
    world.grant(first)
    assert world.states() == {first: "pending", second: "pending"}
    assert world.launch(first)


def test_a_retry_after_a_cancel_of_a_running_run_starts_behind_the_cancel(world: World) -> None:
    (run_id,) = world.submit(paper_grid())
    world.launch(run_id)
    world.cancel(run_id)
    assert world.states() == {run_id: "queued"}, "until its agent or scheduler says that it is gone"
    world.ledger.transition(run_id, 1, AttemptState.CANCELLED, source="local", failure="cancelled")
    assert world.states() == {run_id: "cancelled"} and world.launch(run_id) is None
    world.grant(run_id)
    assert world.launch(run_id)
    assert [row["number"] for row in world.attempts(run_id)] == [1, 3]


def test_a_higher_limit_of_tries_revives_a_failed_run(world: World) -> None:
    (run_id,) = world.submit(paper_grid(retries=1))
    end(world, run_id, "failed", "crash")
    assert world.states() == {run_id: "failed"}
    world.submit(paper_grid(retries=2, at=2000.0))
    assert world.states() == {run_id: "pending"}
