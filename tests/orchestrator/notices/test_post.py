"""From a pass over the workspace to a message: what is noted, and that it arrives."""

import time
from pathlib import Path

import pytest

from vtjobs.db.ingest import ingest_live
from vtjobs.jobs.atomic_files import to_json, write_new
from vtjobs.jobs.config.notices import NoticeSettings
from vtjobs.orchestrator.notices.happened import notices
from vtjobs.orchestrator.notices.outbox import Notice

from ...support.cli import Cli
from ...support.grids import tiny_grid
from ...support.ledgers import World, paper_grid
from ...support.webhook import webhook


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "runs", f"sqlite:///{tmp_path}/ledger.sqlite")


def noted(world: World, *on: str, now: float, stall_s: int = 60) -> list[Notice]:
    settings = NoticeSettings(on=on, stall_s=stall_s)
    return notices(world.ledger, world.workspace, settings, since=0.0, now=now)


def test_the_end_of_a_grid_is_one_notice_however_often_it_is_looked_at(world: World) -> None:
    (run,) = world.submit(paper_grid())
    world.launch(run)
    world.train(run, 1, 50.0)
    ingest_live(world.ledger, world.workspace)
    (one,), (two,) = noted(world, "finish", now=2e3), noted(world, "finish", now=9e3)
    assert one == two and "has ended: 1 completed. Results: vtjobs report paper" in one.text


def test_a_breaker_is_told_with_its_error(world: World) -> None:
    grid = paper_grid()
    world.submit(grid)
    marker = {"class": "data", "message": "no such file", "runs": ["a", "b"]}
    write_new(world.workspace.marker(grid.grid_id, "breaker"), to_json(marker))
    (one,) = noted(world, "breaker", "stall", now=time.time() + 1e6)
    assert "is stopped: 2 runs failed with the same error (data: no such file)" in one.text


def test_a_grid_without_a_sign_of_life_has_stalled_once(world: World) -> None:
    world.submit(paper_grid(seeds=2))
    assert noted(world, "stall", now=world.now + 30) == []
    early, late = (
        noted(world, "stall", now=world.now + 90),
        noted(world, "stall", now=world.now + 1e4),
    )
    assert [one.key for one in early] == [one.key for one in late]
    assert "nothing has happened to 2 unfinished runs" in early[0].text


def test_the_queue_of_this_machine_tells_of_a_grid_that_ended_with_nobody_at_a_terminal(
    cli: Cli,
) -> None:
    with webhook() as hook:
        secrets = cli.folder / "addresses"
        secrets.write_text(hook.url, encoding="utf-8")
        secrets.chmod(0o600)
        text = f"notify: {{to: ['file:{secrets}'], on: [finish], every_s: 0}}\n"
        (cli.folder / "vtjobs.yaml").write_text(text, encoding="utf-8")
        (cli.folder / "tiny.yaml").write_text(tiny_grid(seeds="1", epochs=1), encoding="utf-8")
        cli.ok("submit", "tiny.yaml")
        deadline = time.monotonic() + 120
        while not hook.messages and time.monotonic() < deadline:
            time.sleep(0.2)
        assert [one["title"].partition(":")[0] for one in hook.messages] == ["vtjobs"]
        assert "has ended: 1 completed" in hook.messages[0]["message"]
        (row,) = cli.json("notify")
        assert (row["waiting"], row["error"]) == (0, "")


def test_a_test_message_says_at_once_whether_it_arrives(cli: Cli) -> None:
    with webhook() as hook:
        (cli.folder / "vtjobs.yaml").write_text(f"notify: {{to: '{hook.url}'}}\n", encoding="utf-8")
        (cli.folder / "tiny.yaml").write_text(tiny_grid(seeds="1"), encoding="utf-8")
        cli.ok("submit", "tiny.yaml", "--hold")
        cli.ok("notify", "--test")
        assert hook.messages[0]["title"].endswith(": test")
        hook.status = 500
        done = cli("notify", "--test")
    assert done.returncode == 1 and "1 address could not be reached" in done.stderr
    shown = cli.ok("config", "show") + done.stdout + done.stderr
    assert "json://…" in shown and "s3cret" not in shown


def test_without_an_address_it_says_what_to_set(cli: Cli) -> None:
    done = cli("notify")
    assert done.returncode == 2 and "nobody is to be told. Set notify:" in done.stderr
