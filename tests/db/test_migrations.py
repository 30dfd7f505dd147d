"""The migrations and the tables say the same."""

import multiprocessing
import os
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect, text
from sqlalchemy.exc import IntegrityError

from vtjobs.db import queries
from vtjobs.db.engine import (
    SCHEMA_VERSION,
    open_engine,
    parse_url,
    reading,
    schema_version,
    writing,
)
from vtjobs.db.models import metadata
from vtjobs.db.upgrade import alembic_config, upgrade
from vtjobs.jobs.run.selector import Selection
from vtjobs.jobs.run.states import LIVE

from ..support.ledgers import World, paper_grid

PARALLEL = multiprocessing.get_context("spawn")


def test_the_schema_version_is_the_newest_migration() -> None:
    config: Any = alembic_config()
    assert ScriptDirectory.from_config(config).get_heads() == [SCHEMA_VERSION]


def test_a_migrated_database_has_exactly_the_tables_of_the_product(ledger_url: str) -> None:
    engine = open_engine(parse_url(ledger_url))
    assert upgrade(engine) == (None, SCHEMA_VERSION)
    with reading(engine) as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []
    engine.dispose()


def test_the_index_against_two_live_attempts_names_every_live_state(ledger_url: str) -> None:
    engine = open_engine(parse_url(ledger_url))
    upgrade(engine)
    (index,) = [
        index
        for index in inspect(engine).get_indexes("attempts")
        if index["name"] == "one_live_attempt"
    ]
    where = str(index["dialect_options"][f"{engine.dialect.name}_where"])
    assert index["unique"] and all(f"'{state}'" in where for state in LIVE)
    assert where.count("'") == 2 * len(LIVE)
    engine.dispose()


def test_the_runs_of_an_older_ledger_are_those_of_seeds(ledger_url: str) -> None:
    engine = open_engine(parse_url(ledger_url))
    with writing(engine) as connection:
        config: Any = alembic_config()
        config.attributes["connection"] = connection
        command.upgrade(config, "0001")
        connection.execute(
            text("INSERT INTO cells VALUES ('c', 'm', '', 'b', 'd', 'h', 'r', '{}', true, '{}')")
        )
        columns = "run_id, cell_id, grid_id, seed, state, tries, created_at, changed_at"
        connection.execute(
            text(f"INSERT INTO runs ({columns}) VALUES ('r', 'c', 'g', 3, 'pending', 3, 0, 0)")
        )
    assert upgrade(engine) == ("0001", SCHEMA_VERSION)
    with reading(engine) as connection:
        (row,) = queries.list_runs(connection, Selection(everything=True))
    assert (row.seed, row.streams) == (3, None)
    engine.dispose()


def test_the_attempts_of_an_older_ledger_say_nothing_of_what_they_used(ledger_url: str) -> None:
    engine = open_engine(parse_url(ledger_url))
    with writing(engine) as connection:
        config: Any = alembic_config()
        config.attributes["connection"] = connection
        command.upgrade(config, "0002")
        connection.execute(
            text("INSERT INTO cells VALUES ('c', 'm', '', 'b', 'd', 'h', 'r', '{}', true, '{}')")
        )
        columns = "run_id, cell_id, grid_id, seed, state, tries, created_at, changed_at"
        connection.execute(
            text(f"INSERT INTO runs ({columns}) VALUES ('r', 'c', 'g', 3, 'running', 3, 0, 0)")
        )
        columns = "run_id, number, token, state, submitted_at, step"
        connection.execute(
            text(f"INSERT INTO attempts ({columns}) VALUES ('r', 1, 't', 'running', 5, 7)")
        )
    assert upgrade(engine) == ("0002", SCHEMA_VERSION)
    with reading(engine) as connection:
        (row,) = queries.attempts_of(connection, "r")
    assert (row.step, row.usage) == (7, None)
    # What keeps two attempts at one run from living at once is there still.
    with pytest.raises(IntegrityError), engine.begin() as connection:
        connection.execute(
            text(f"INSERT INTO attempts ({columns}) VALUES ('r', 2, 't', 'running', 6, 0)")
        )
    engine.dispose()


def test_upgrading_twice_changes_nothing(world: World) -> None:
    run_ids = world.submit(paper_grid(seeds=2))
    assert upgrade(world.ledger.engine) == (SCHEMA_VERSION, SCHEMA_VERSION)
    assert sorted(world.states()) == sorted(run_ids)


def _upgrade(url: str, barrier: Any) -> None:
    engine = open_engine(parse_url(url))
    barrier.wait()
    upgrade(engine)
    os._exit(0)


def test_two_first_commands_at_once_make_one_ledger(ledger_url: str) -> None:
    barrier = PARALLEL.Barrier(3)
    both = [PARALLEL.Process(target=_upgrade, args=(ledger_url, barrier)) for _ in range(3)]
    for process in both:
        process.start()
    for process in both:
        process.join(60)
    assert [process.exitcode for process in both] == [0, 0, 0]
    engine = open_engine(parse_url(ledger_url))
    assert schema_version(engine) == SCHEMA_VERSION
    engine.dispose()


def test_a_migration_that_is_cut_off_leaves_an_empty_database(ledger_url: str) -> None:
    engine = open_engine(parse_url(ledger_url))
    try:
        with writing(engine) as connection:
            config: Any = alembic_config()
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        pass
    assert schema_version(engine) is None
    assert inspect(engine).get_table_names() == []
    assert upgrade(engine) == (None, SCHEMA_VERSION)
    engine.dispose()
