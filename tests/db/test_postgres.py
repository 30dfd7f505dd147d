"""PostgreSQL as it is found: a standby, set to read-only, of another encoding."""

import re
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from vtjobs.db.ingest import ingest_live
from vtjobs.db.ledger import Ledger
from vtjobs.jobs.errors import LedgerUnreachable

from ..support.cli import Cli
from ..support.grids import tiny_grid
from ..support.ledgers import World, paper_grid
from ..support.postgres import PostgresServer, roomy_memory

READING = (
    ("status",),
    ("runs",),
    ("show", "{run}"),
    ("logs", "{run}"),
    ("failures",),
    ("why", "{run}"),
    ("report",),
    ("variance", "paper"),
    ("plan", "grid.yaml"),
    ("status", "--json"),
)
ACTING = (
    ("submit", "grid.yaml"),
    ("cancel", "all", "--yes"),
    ("retry", "all", "--yes"),
    ("rerun", "all", "--yes"),
    ("release", "paper"),
    ("supervise", "--once"),
    ("gc", "all", "--yes"),
    ("ledger", "rebuild", "--yes"),
)


def administer(server: PostgresServer, statement: str) -> None:
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute(statement)  # type: ignore[call-overload]


def name_of(url: str) -> str:
    return url.rpartition("/")[2]


def lab_with_runs(cli: Cli, url: str) -> str:
    """Fill a workspace and its ledger; return a run that has failed, beside one that completed."""
    world = World(cli.workspace, url)
    failed, completed = world.submit(paper_grid(seeds=2))
    world.launch(failed, completed)
    world.start(failed)
    world.end(failed, 1, "failed", "setup_error", signature="ImportError: no")
    world.train(completed, 1, 50.0, 60.0)
    ingest_live(world.ledger, world.workspace)
    world.close()
    cli.write("grid.yaml", tiny_grid())
    cli.env["VTJOBS_LEDGER"] = url
    return failed


@pytest.fixture(scope="module")
def standby(postgres: PostgresServer) -> Iterator[PostgresServer]:
    """A server that follows the private one."""
    folder = Path(tempfile.mkdtemp(prefix="vtjobs-pg-", dir=roomy_memory()))
    server = PostgresServer(folder)
    server.create_standby_of(postgres)
    server.start()
    yield server
    server.stop("immediate")
    shutil.rmtree(folder, ignore_errors=True)


def wait_until_caught_up(primary: PostgresServer, standby: PostgresServer) -> None:
    with psycopg.connect(primary.url()) as connection:
        (goal,) = connection.execute("SELECT pg_current_wal_lsn()").fetchone() or ("",)
    deadline = time.monotonic() + 60
    with psycopg.connect(standby.url(), autocommit=True) as connection:
        query = "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn"
        while connection.execute(query, (goal,)).fetchone() != (True,):
            assert time.monotonic() < deadline
            time.sleep(0.02)


@pytest.fixture(params=["standby", "default_transaction_read_only"])
def read_only_lab(request: pytest.FixtureRequest, cli: Cli, postgres: PostgresServer) -> str:
    """A lab whose ledger takes no changes; the id of its run that has failed."""
    url = postgres.new_database()
    run_id = lab_with_runs(cli, url)
    if request.param == "standby":
        server: PostgresServer = request.getfixturevalue("standby")
        wait_until_caught_up(postgres, server)
        cli.env["VTJOBS_LEDGER"] = server.url(name_of(url))
    else:
        name = name_of(url)
        administer(postgres, f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    return run_id


def shown(cli: Cli) -> dict[str, int]:
    """Return how many runs `status` shows in each state."""
    return {state: count for state, count in cli.json("status")["runs"].items() if count}


def tree(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_a_read_only_ledger_is_read_by_every_command_that_reads(
    cli: Cli, read_only_lab: str
) -> None:
    for words in READING:
        done = cli(*(word.format(run=read_only_lab) for word in words))
        assert done.returncode in (0, 3), (words, done.stderr)
        assert "warning: the ledger is read-only (" in done.stderr
        assert "Traceback" not in done.stderr
    assert shown(cli) == {"completed": 1, "failed": 1}


def test_a_command_that_acts_refuses_a_read_only_ledger_and_does_nothing(
    cli: Cli, read_only_lab: str
) -> None:
    before = tree(cli.folder)
    for words in ACTING:
        done = cli(*words)
        assert done.returncode == 6, (words, done.stderr)
        (line,) = done.stderr.splitlines()
        assert re.search(
            r"is read-only: (its server is a standby in recovery|default_transaction_read_only is"
            r" on)\. Reading commands work\. To change something, (set VTJOBS_LEDGER|have)",
            line,
        )
    assert tree(cli.folder) == before


def test_a_first_submission_to_a_read_only_ledger_leaves_no_workspace(
    cli: Cli, postgres: PostgresServer
) -> None:
    url = postgres.new_database()
    administer(postgres, f"ALTER DATABASE {name_of(url)} SET default_transaction_read_only = on")
    cli.write("grid.yaml", tiny_grid())
    done = cli("submit", "grid.yaml", VTJOBS_LEDGER=url)
    assert done.returncode == 6, done.stderr
    assert not cli.workspace.exists()


def test_doctor_says_that_the_ledger_is_read_only(cli: Cli, read_only_lab: str) -> None:
    done = cli("doctor")
    assert done.returncode == 1
    assert re.search(r"BAD  ledger .* is read-only: ", done.stdout)


def test_a_standby_that_is_behind_its_primary_shows_what_it_has(
    cli: Cli, read_only_lab: str
) -> None:
    # The files of a newer grid are there before its rows.
    world = World(cli.workspace, f"sqlite:///{cli.folder / 'elsewhere.sqlite'}")
    world.launch(*world.submit(paper_grid("newer", first_cell=1)))
    world.close()
    assert shown(cli) == {"completed": 1, "failed": 1}


def test_a_server_that_turns_read_only_in_between_is_told_and_is_used_again_afterwards(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    url = postgres.new_database()
    world = World(tmp_path / "runs", url)
    database, ours = name_of(url), f"datname = '{name_of(url)}'"
    administer(postgres, f"ALTER DATABASE {database} SET default_transaction_read_only = on")
    # As a failover does: its connections break, and the next ones are others.
    administer(postgres, f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {ours}")
    with pytest.raises(LedgerUnreachable, match="read-only: default_transaction_read_only"):
        world.submit(paper_grid())
    administer(postgres, f"ALTER DATABASE {database} RESET default_transaction_read_only")
    with pytest.raises(LedgerUnreachable, match="was read-only a moment ago"):
        world.submit(paper_grid())
    assert len(world.submit(paper_grid())) == 1
    world.close()


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_a_database_that_cannot_hold_every_text_is_refused_with_a_command_that_makes_one(
    tmp_path: Path, postgres: PostgresServer, encoding: str
) -> None:
    url = postgres.new_database(f"ENCODING '{encoding}' TEMPLATE template0 LOCALE 'C'")
    with pytest.raises(LedgerUnreachable, match=f"has the encoding {encoding}") as caught:
        Ledger.open(url, workspace_id="w", create=True)
    message = str(caught.value)
    assert caught.value.exit_code == 6
    assert postgres.password not in message and "\n" not in message
    command = shlex.split(message.rpartition("VTJOBS_LEDGER: ")[2])
    run = [str(postgres.bin / command[0]), *command[1:]]
    subprocess.run(run, check=True, env={"PGPASSWORD": postgres.password})
    world = World(tmp_path / "runs", f"{url}_utf8")
    (run_id,) = world.submit(paper_grid())
    world.launch(run_id)
    world.start(run_id)
    world.end(run_id, 1, "failed", "crash", signature="größe ± 3 → λ 🔥")
    ingest_live(world.ledger, world.workspace)
    assert world.attempts(run_id)[0]["signature"] == "größe ± 3 → λ 🔥"
    world.close()


def test_what_is_sent_is_utf8_whatever_the_environment_says(
    tmp_path: Path, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    world = World(tmp_path / "runs", postgres.new_database())
    (run_id,) = world.submit(paper_grid())
    world.launch(run_id)
    world.start(run_id)
    world.end(run_id, 1, "failed", "crash", signature="3 → λ")
    ingest_live(world.ledger, world.workspace)
    assert world.attempts(run_id)[0]["signature"] == "3 → λ"
    world.close()
