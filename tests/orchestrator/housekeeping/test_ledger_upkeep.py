"""Empty and old ledgers of a workspace with runs, on both databases."""

from pathlib import Path

import pytest

from vtjobs.db import models as m
from vtjobs.db.engine import reading, writing
from vtjobs.db.queries import grid_settings
from vtjobs.jobs.config.config import Config, load_config
from vtjobs.orchestrator.housekeeping.ledger_upkeep import rebuild_ledger
from vtjobs.orchestrator.loop.context import open_context

from ...support.ledgers import World, paper_grid


@pytest.fixture
def config(tmp_path: Path, ledger_url: str, monkeypatch: pytest.MonkeyPatch) -> Config:
    """A workspace with two completed runs, and a database that knows nothing of them."""
    world = World(tmp_path / "runs", str(tmp_path / "lost.sqlite"))
    for run_id in world.submit(paper_grid(seeds=2)):
        world.launch(run_id)
        world.train(run_id, 1, 50.0)
    world.close()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    environ = {"VTJOBS_WORKSPACE": str(world.workspace.root), "VTJOBS_LEDGER": ledger_url}
    return load_config({}, environ=environ, folder=tmp_path)


def states(config: Config) -> list[str]:
    ledger = open_context(config, to_read=True).ledger
    with reading(ledger.engine) as connection:
        return [row.state for row in connection.execute(m.runs.select())]


@pytest.mark.parametrize("to_read", [True, False])
def test_a_database_without_tables_is_filled_before_anything_else(
    config: Config, to_read: bool
) -> None:
    context = open_context(config, to_read=to_read)
    with reading(context.ledger.engine) as connection:
        assert len(grid_settings(connection)) == 1
    assert states(config) == ["completed", "completed"]


def test_a_file_of_no_length_is_filled_before_anything_else(
    config: Config, ledger_url: str
) -> None:
    if ledger_url.startswith("sqlite"):
        Path(ledger_url.removeprefix("sqlite:///")).touch()
    assert open_context(config, create=True) and states(config) == ["completed", "completed"]


def test_a_rebuild_replaces_a_ledger_and_keeps_the_old_one(config: Config) -> None:
    ledger = open_context(config, create=True).ledger
    with writing(ledger.engine) as connection:
        connection.execute(m.runs.update().values(state="failed"))
    ledger.engine.dispose()
    done = rebuild_ledger(config, progress=lambda what, count: None)
    assert done.found["runs"] == 2
    assert states(config) == ["completed", "completed"]
    assert done.kept is not None and done.kept.stat().st_size > 0
