"""A ledger behind pgbouncer in transaction mode: its clients share two connections in turn."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from vtjobs.db import engine as engine_module
from vtjobs.db import models as m
from vtjobs.db.engine import reading, writing
from vtjobs.db.ingest import ingest_live
from vtjobs.db.refill import refill
from vtjobs.jobs.errors import LedgerUnreachable

from ..support.cli import Cli
from ..support.grids import tiny_grid
from ..support.ledgers import World, measured, paper_grid
from ..support.pgbouncer import PgBouncer
from ..support.postgres import PostgresServer


@pytest.fixture
def pooled_url(postgres: PostgresServer, pgbouncer: PgBouncer) -> str:
    """The URL of an empty database, through the pooler."""
    return pgbouncer.url(postgres.new_database())


@pytest.fixture
def world(pooled_url: str, tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path / "runs", pooled_url)
    yield made
    made.close()


def test_a_grid_is_trained_with_its_ledger_behind_a_pooler(cli: Cli, pooled_url: str) -> None:
    cli.env["VTJOBS_LEDGER"] = pooled_url
    cli.write("grid.yaml", tiny_grid(seeds="2"))
    cli.ok("submit", "grid.yaml", "--wait")
    assert cli.json("status")["runs"]["completed"] == 2
    cli.ok("ledger", "rebuild", "--yes")
    assert [cell["n"] for cell in cli.json("report")] == [2]


def test_statements_that_are_repeated_by_many_clients_reach_whatever_connection_is_free(
    world: World,
) -> None:
    run_ids = world.submit(paper_grid(cells=3, seeds=4))
    world.launch(*run_ids)
    for run_id in run_ids:
        world.train(run_id, 1, *(float(score) for score in range(10)))
    others = [world.open(world.url) for _ in range(6)]

    def work(number: int) -> int:
        # More often than a driver executes a statement before it prepares it.
        for _ in range(8):
            ingest_live(others[number], world.workspace)
            others[number].set_cancelled({run_ids[number]: 1})
            world.rows(m.runs, others[number])
        return len(world.rows(m.attempts, others[number]))

    with ThreadPoolExecutor(len(others)) as pool:
        assert list(pool.map(work, range(len(others)))) == [len(run_ids)] * len(others)
    assert set(world.states().values()) == {"completed"}
    for other in others:
        other.engine.dispose()


def test_a_ledger_behind_a_pooler_is_made_again_as_it_was(world: World) -> None:
    run_ids = world.submit(paper_grid(cells=3, seeds=4))
    world.launch(*run_ids)
    for run_id in run_ids:
        world.train(run_id, 1, 40.0, 50.0)
    ingest_live(world.ledger, world.workspace)
    before = measured(world)
    refill(world.ledger, world.workspace, replace=True)
    assert measured(world) == before


def test_a_writer_behind_a_pooler_waits_for_another_no_longer_than_it_may(
    pooled_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "BUSY_TIMEOUT_S", 0.3)
    world = World(tmp_path / "runs", pooled_url)
    other = world.open(pooled_url)
    with (
        writing(other.engine),
        pytest.raises(LedgerUnreachable, match=r"busy: locked for over 0\.3 s"),
    ):
        world.submit(paper_grid())
    assert len(world.submit(paper_grid())) == 1
    other.engine.dispose()
    world.close()


def test_what_is_set_for_a_transaction_does_not_stay_for_the_next_client(world: World) -> None:
    for _ in range(4):
        world.submit(paper_grid())
        with reading(world.ledger.engine):
            pass
        with psycopg.connect(world.url, autocommit=True) as stranger:
            assert stranger.execute("SHOW lock_timeout").fetchone() == ("0",)
