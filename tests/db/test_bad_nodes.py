"""Nodes that runs should not be tried on."""

from pathlib import Path

import pytest

from vtjobs.db import bad_nodes as nodes
from vtjobs.db.bad_nodes import BLACK_HOLE_S
from vtjobs.db.engine import reading
from vtjobs.db.ingest import ingest_live
from vtjobs.jobs.run.states import AttemptState

from ..support.ledgers import World, paper_grid


@pytest.fixture
def ledger_url(tmp_path: Path) -> str:
    """SQLite alone: the queries are the same on both databases."""
    return f"sqlite:///{tmp_path / 'ledger.sqlite'}"


def failed_on(world: World, run_id: str, *failures: tuple[str, str]) -> None:
    """Give a run one ended attempt after another: (class, host)."""
    for failure, host in failures:
        world.launch(run_id)
        number = world.attempts(run_id)[-1]["number"]
        # A run that was given up is tried again because somebody asked for it.
        fields = {"failure": failure, "host": host, "signature": f"{number}"}
        assert world.ledger.transition(
            run_id, number, AttemptState.FAILED, source="journal", **fields
        )
        world.grant(run_id)


def bad_nodes(world: World, *run_ids: str) -> dict[str, tuple[str, ...]]:
    with reading(world.ledger.engine) as connection:
        return nodes.bad_nodes(connection, list(run_ids))


def test_a_node_whose_hardware_failed_a_run_is_avoided_by_that_run(world: World) -> None:
    first, second = world.submit(paper_grid(seeds=2))
    failed_on(world, first, ("hardware", "gpu3"))
    assert bad_nodes(world, first, second) == {first: ("gpu3",)}


def test_one_broken_connection_blames_no_node_and_two_on_the_same_do(world: World) -> None:
    (run_id,) = world.submit(paper_grid())
    failed_on(world, run_id, ("communication", "gpu1"), ("communication", "gpu2"))
    assert bad_nodes(world, run_id) == {}
    failed_on(world, run_id, ("communication", "gpu2"))
    assert bad_nodes(world, run_id) == {run_id: ("gpu2",)}


def test_several_bad_nodes_are_told_in_order_and_other_failures_blame_none(world: World) -> None:
    (run_id,) = world.submit(paper_grid())
    failed_on(
        world,
        run_id,
        ("hardware", "gpu9"),
        ("user_error", "gpu1"),
        ("hardware", "gpu2"),
        ("storage", "gpu3"),
    )
    assert bad_nodes(world, run_id) == {run_id: ("gpu2", "gpu9")}
    assert bad_nodes(world) == {}


# Black holes --------------------------------------------------------------------------------------


def swallowed(world: World, node: str, *run_ids: str, error: str = "no module") -> None:
    """Let the job of each of these runs end on a node before its agent began."""
    for run_id in run_ids:
        world.launch(run_id)
        number = world.attempts(run_id)[-1]["number"]
        fields = {"failure": "not_submitted", "host": node, "signature": "no", "error": error}
        assert world.ledger.transition(run_id, number, AttemptState.LOST, source="squeue", **fields)


def black_holes(world: World, *, after_s: float = 0.0) -> list[tuple[str, int, str]]:
    with reading(world.ledger.engine) as connection:
        found = nodes.black_holes(connection, now=world.now + after_s)
    return [(hole.node, hole.jobs, hole.error) for hole in found]


def test_a_node_where_two_jobs_of_any_runs_ended_before_they_began_is_a_black_hole(
    world: World,
) -> None:
    first, second, third = world.submit(paper_grid(seeds=3))
    swallowed(world, "gpu1", first)
    swallowed(world, "gpu2", third)
    assert black_holes(world) == []
    swallowed(world, "gpu1", second, error="no mount")
    assert black_holes(world) == [("gpu1", 2, "no mount")]


def test_one_job_with_many_runs_counts_once(world: World) -> None:
    run_ids = world.submit(paper_grid(seeds=3))
    world.launch(*run_ids)
    for run_id in run_ids:
        fields = {"failure": "not_submitted", "host": "gpu1", "signature": "no"}
        world.ledger.transition(run_id, 1, AttemptState.LOST, source="squeue", **fields)
    assert black_holes(world) == []


def test_a_node_where_a_run_has_started_since_is_no_black_hole_any_more(world: World) -> None:
    first, second, third = world.submit(paper_grid(seeds=3))
    swallowed(world, "gpu1", first, second)
    world.launch(third)
    world.write(third, 1, "start", attempt=1, host="gpu1", world_size=1)
    ingest_live(world.ledger, world.workspace)
    assert black_holes(world) == []


def test_a_black_hole_is_tried_again_after_some_hours(world: World) -> None:
    first, second = world.submit(paper_grid(seeds=2))
    swallowed(world, "gpu1", first, second)
    assert black_holes(world, after_s=BLACK_HOLE_S - 60) != []
    assert black_holes(world, after_s=BLACK_HOLE_S) == []
