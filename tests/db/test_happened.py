"""What somebody may want to be told of: grids that end or stall, runs that are lost."""

from sqlalchemy import update

from vtjobs.db import models as m
from vtjobs.db.engine import reading, writing
from vtjobs.db.happened import ended_grids, lost_runs, quiet_grids
from vtjobs.db.ingest import ingest_live

from ..support.ledgers import World, paper_grid


def complete(world: World, run_id: str) -> None:
    world.launch(run_id)
    world.train(run_id, 1, 50.0)
    ingest_live(world.ledger, world.workspace)


def fail(world: World, run_id: str, failure: str = "user_error") -> None:
    world.launch(run_id)
    world.start(run_id, 1)
    world.end(run_id, 1, "failed", failure, signature="ValueError: no")
    ingest_live(world.ledger, world.workspace)


def test_a_grid_has_ended_when_its_last_run_has(world: World) -> None:
    one, two = world.submit(paper_grid(seeds=2, retries=0))
    complete(world, one)
    with reading(world.ledger.engine) as connection:
        assert ended_grids(connection, 0.0) == []
    fail(world, two)
    with reading(world.ledger.engine) as connection:
        (found,) = ended_grids(connection, 0.0)
        assert ended_grids(connection, found.at) == []
    assert found.states == {"completed": 1, "failed": 1} and found.attempts == 2


def test_a_grid_that_is_tried_again_ends_anew_with_more_attempts(world: World) -> None:
    (run,) = world.submit(paper_grid(retries=0))
    fail(world, run)
    world.grant(run)
    with reading(world.ledger.engine) as connection:
        assert ended_grids(connection, 0.0) == []
    world.launch(run)
    world.train(run, 2, 50.0)
    ingest_live(world.ledger, world.workspace)
    with reading(world.ledger.engine) as connection:
        (found,) = ended_grids(connection, 0.0)
    assert (found.states, found.attempts) == ({"completed": 1}, 2)


def test_a_run_is_lost_with_its_labels_and_its_class(world: World) -> None:
    one, two = world.submit(paper_grid(seeds=2, retries=0))
    complete(world, one)
    fail(world, two)
    with reading(world.ledger.engine) as connection:
        (found,) = lost_runs(connection, 0.0)
        assert lost_runs(connection, found.at) == []
    assert (found.run_id, found.state, found.failure, found.number) == (
        two,
        "failed",
        "user_error",
        1,
    )
    assert found.seed == 1 and found.head == "supervised"


def test_what_was_known_is_no_news_after_the_ledger_was_rebuilt(world: World) -> None:
    one, two = world.submit(paper_grid(seeds=2, retries=0))
    complete(world, one)
    fail(world, two)
    since = world.clock()
    with writing(world.ledger.engine) as connection:
        connection.execute(update(m.runs).values(changed_at=since + 1000.0))
    with reading(world.ledger.engine) as connection:
        assert (ended_grids(connection, since), lost_runs(connection, since)) == ([], [])
        assert ended_grids(connection, 0.0) and lost_runs(connection, 0.0)


def test_a_grid_that_was_cancelled_before_it_began_is_no_news(world: World) -> None:
    (run,) = world.submit(paper_grid())
    world.cancel(run)
    with reading(world.ledger.engine) as connection:
        assert ended_grids(connection, 0.0) == []


def test_a_grid_is_quiet_since_its_last_sign_of_life(world: World) -> None:
    one, two = world.submit(paper_grid(seeds=2))
    complete(world, one)
    before = world.clock()
    with reading(world.ledger.engine) as connection:
        (found,) = quiet_grids(connection, before)
        assert quiet_grids(connection, found.at) == []
    assert found.runs == 1
    world.launch(two)
    with reading(world.ledger.engine) as connection:
        assert quiet_grids(connection, before) == []


def test_a_grid_that_has_ended_is_never_quiet(world: World) -> None:
    (run,) = world.submit(paper_grid())
    complete(world, run)
    with reading(world.ledger.engine) as connection:
        assert quiet_grids(connection, world.clock() + 1e9) == []
