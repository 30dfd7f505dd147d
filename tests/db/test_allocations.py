"""What allocations hosted, and for how long, on SQLite and on PostgreSQL."""

from vtjobs.db.allocations import contents_of, spans
from vtjobs.db.engine import reading
from vtjobs.db.ingest import ingest_live
from vtjobs.db.results import metrics_of, training_by_epoch

from ..support.ledgers import World, paper_grid


def test_an_allocation_is_at_work_from_its_first_start_to_the_last_sign_of_life_in_it(
    world: World,
) -> None:
    grid = paper_grid("first", cells=2, seeds=1)
    runs = world.submit(grid)
    other = world.submit(paper_grid("second", cells=1, seeds=1, first_cell=5))
    token = world.launch(*runs)
    world.launch(*other)
    for run_id in (*runs, *other):
        world.train(run_id, 1, 50.0)
    ingest_live(world.ledger, world.workspace)
    with reading(world.ledger.engine) as connection:
        found = spans(connection, [grid.grid_id])
        assert {one.token for one in found} == {token}
        assert {one.grid_id for one in found} == {grid.grid_id}
        assert all(one.seconds >= 0 for one in found)
        assert [*contents_of(connection, [str(token), "unknown"])] == [token]


def test_metrics_of_training_are_read_by_epoch(world: World) -> None:
    (run_id,) = world.submit(paper_grid())
    world.launch(run_id)
    world.train(run_id, 1, 50.0, 60.0)
    ingest_live(world.ledger, world.workspace)
    with reading(world.ledger.engine) as connection:
        assert training_by_epoch(connection, [run_id], "loss") == {run_id: {0: 1.0, 1: 0.5}}
        assert metrics_of(connection, [run_id]) == {"training": {"loss"}, "test": {"top1", "loss"}}
