"""From a URL to a checked connection."""

import errno
import fcntl
import os
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import text

from vtjobs.db import engine as engine_module
from vtjobs.db import models as m
from vtjobs.db.engine import (
    SCHEMA_VERSION,
    NewerLedger,
    OlderLedger,
    check_schema,
    file_system_of,
    is_network,
    open_engine,
    parse_url,
    reading,
    schema_version,
    wait_for,
    writing,
)
from vtjobs.db.ledger import Ledger
from vtjobs.db.queries import status_counts
from vtjobs.db.upgrade import upgrade
from vtjobs.jobs.errors import BadInput, LedgerUnreachable, VtjobsError

from ..support.ledgers import World, paper_grid

SECRET = "hunter2-canary"


@pytest.mark.parametrize(
    ("written", "driver"),
    [
        ("postgres://u@h/d", "postgresql+psycopg"),
        ("postgresql://u@h/d", "postgresql+psycopg"),
        ("postgresql+psycopg://u@h/d", "postgresql+psycopg"),
        ("sqlite:////tmp/x.sqlite", "sqlite"),
        ("/tmp/x.sqlite", "sqlite"),
        ("~/x.sqlite", "sqlite"),
    ],
)
def test_a_url_means_one_of_two_drivers(written: str, driver: str) -> None:
    url = parse_url(written)
    assert url.drivername == driver
    if driver == "sqlite":
        assert Path(str(url.database)).is_absolute()


def test_a_url_without_a_scheme_is_a_file_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse_url("ledger.sqlite").database == str(tmp_path / "ledger.sqlite")


@pytest.mark.parametrize(
    "written", [f"mysql://u:{SECRET}@h/d", f"postgresql://u:{SECRET}@h:port/d", f"://u:{SECRET}@"]
)
def test_a_url_that_cannot_be_used_is_bad_input_and_shows_no_password(written: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_url(written)
    assert caught.value.exit_code == 2
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("kind", ["nfs4", "nfs", "lustre", "gpfs", "beegfs", "cifs", "fuse.sshfs"])
def test_sqlite_on_a_network_file_system_is_refused_with_the_reason_and_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(engine_module, "file_system_of", lambda path: kind)
    place = tmp_path / "folder" / "ledger.sqlite"
    with pytest.raises(BadInput, match=rf"is on {kind}.*locks.*VTJOBS_LEDGER.*postgresql://"):
        open_engine(parse_url(str(place)))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["ext4", "xfs", "tmpfs", "btrfs", "overlay", "zfs"])
def test_a_local_file_system_is_no_network(kind: str) -> None:
    assert not is_network(kind)


def test_the_file_system_is_the_one_of_the_deepest_mount(tmp_path: Path) -> None:
    assert file_system_of(Path("/proc/self/status")) == "proc"
    expected = subprocess.run(
        ["stat", "-f", "-c", "%T", tmp_path], capture_output=True, text=True, check=True
    ).stdout
    known = {"ext2/ext3": {"ext2", "ext3", "ext4"}, "overlayfs": {"overlay"}}
    kinds = known.get(expected.strip(), {expected.strip()})
    assert file_system_of(tmp_path / "not" / "there" / "yet") in kinds


def test_a_newer_ledger_is_refused_and_left_alone(world: World) -> None:
    with writing(world.ledger.engine) as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(NewerLedger, match=r"9999.*newer vtjobs; upgrade vtjobs") as caught:
        world.open(world.url)
    assert caught.value.exit_code == 2
    with pytest.raises(NewerLedger):
        upgrade(world.ledger.engine)
    assert schema_version(world.ledger.engine) == "9999"


def test_an_older_ledger_says_how_to_upgrade_it(world: World) -> None:
    with writing(world.ledger.engine) as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '0000'"))
    with pytest.raises(OlderLedger, match="Run: vtjobs ledger upgrade") as caught:
        world.open(world.url)
    assert caught.value.exit_code == 2


def test_an_empty_database_has_no_schema_and_is_not_made_by_looking(ledger_url: str) -> None:
    engine = open_engine(parse_url(ledger_url))
    assert schema_version(engine) is None
    assert check_schema(engine) is False
    if engine.url.drivername == "sqlite":
        assert not Path(str(engine.url.database)).exists()


def test_a_database_without_our_tables_is_one_clear_error(ledger_url: str) -> None:
    with pytest.raises(VtjobsError) as caught:
        Ledger.open(ledger_url, workspace_id="w")
    assert "\n" not in str(caught.value)
    assert "has no tables. Run: vtjobs ledger rebuild" in str(caught.value)


@pytest.mark.parametrize(("folder", "file"), [(0o2770, 0o660), (0o700, 0o644)])
def test_a_sqlite_ledger_and_its_companions_have_the_modes_of_files_in_their_folder(
    tmp_path: Path, folder: int, file: int
) -> None:
    state = tmp_path / "state"
    state.mkdir()
    state.chmod(folder)
    mask = os.umask(0o022)
    try:
        world = World(tmp_path / "runs", str(state / "ledger.sqlite"))
        world.submit(paper_grid())
    finally:
        os.umask(mask)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in state.iterdir()}
    assert modes == dict.fromkeys(["ledger.sqlite", "ledger.sqlite-wal", "ledger.sqlite-shm"], file)
    world.close()


def test_a_reader_is_not_in_the_way_of_an_owner_who_opens_and_closes_the_file(
    tmp_path: Path,
) -> None:
    path = tmp_path / "ledger.sqlite"
    World(tmp_path / "runs", str(path)).close()
    with _opening_and_closing(path):
        before = set(tmp_path.iterdir())
        deadline = time.monotonic() + 2.0
        while time.monotonic() < deadline:
            engine = open_engine(parse_url(str(path)), read_only=True)
            assert schema_version(engine) == SCHEMA_VERSION
            engine.dispose()
    companions = {Path(f"{path}-wal"), Path(f"{path}-shm")}
    assert set(tmp_path.iterdir()) - companions == before - companions


def test_a_file_system_without_locks_is_read_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ledger.sqlite"
    World(tmp_path / "runs", str(path)).close()

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "fcntl", refuse)
    engine = open_engine(parse_url(str(path)), read_only=True)
    assert schema_version(engine) == SCHEMA_VERSION
    engine.dispose()


def test_a_reader_passes_from_thread_to_thread_and_is_closed_by_any(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    World(tmp_path / "runs", str(path)).close()
    script = (
        "import sys\nfrom threading import Thread\n"
        "from vtjobs.db.engine import open_engine, parse_url, schema_version\n"
        "engine = open_engine(parse_url(sys.argv[1]), read_only=True)\n"
        "reader = Thread(target=schema_version, args=(engine,))\n"
        "reader.start()\nreader.join()\nprint(schema_version(engine))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True
    )
    assert (done.stdout.split(), done.stderr) == ([SCHEMA_VERSION], "")


@contextmanager
def _opening_and_closing(path: Path) -> Iterator[None]:
    """Have another process write to the file again and again, each time with a new connection."""
    script = (
        "import sys\nfrom sqlalchemy import text\n"
        "from vtjobs.db.engine import open_engine, parse_url, writing\n"
        "while True:\n"
        "    engine = open_engine(parse_url(sys.argv[1]))\n"
        "    with writing(engine) as connection:\n"
        "        connection.execute(text(\"UPDATE meta SET value = value || '1'\"))\n"
        "    engine.dispose()\n"
        "    print('.', flush=True)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline()
    # Or it would wait for somebody who reads what it prints.
    drain = threading.Thread(target=process.stdout.read)
    drain.start()
    try:
        yield
    finally:
        process.kill()
        process.wait()
        drain.join()


def _damaged(tmp_path: Path, how: str) -> tuple[World, Path]:
    path = tmp_path / "ledger.sqlite"
    world = World(tmp_path / "runs", str(path))
    world.submit(paper_grid(cells=40, seeds=5))
    world.close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    size = path.stat().st_size
    with path.open("r+b") as stream:
        if how == "overwritten":
            stream.write(b"these are not the bytes of a database" * 100)
        elif how == "truncated":
            stream.truncate(size // 2 + 100)
        else:
            stream.seek(4096)
            stream.write(os.urandom(size - 8192))
    return world, path


@pytest.mark.parametrize("how", ["overwritten", "truncated", "scrambled"])
def test_a_damaged_sqlite_file_is_one_clear_error_that_names_the_way_out(
    tmp_path: Path, how: str
) -> None:
    world, path = _damaged(tmp_path, how)
    before = path.read_bytes()
    with pytest.raises(VtjobsError) as caught:
        ledger = Ledger.open(str(path), workspace_id=world.workspace.check()["id"])
        ledger.add_grid(paper_grid("again", cells=40, seeds=6))
        world.rows(m.runs, ledger)
    message = str(caught.value)
    assert "\n" not in message and "vtjobs ledger rebuild" in message and str(path) in message
    assert caught.value.exit_code == 1
    if how == "overwritten":
        assert path.read_bytes() == before


HOLD = """
import sqlite3, sys, time
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN EXCLUSIVE")
print("held", flush=True)
time.sleep(60)
"""


def test_a_ledger_that_another_process_keeps_locked_is_busy_and_the_holder_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "BUSY_TIMEOUT_S", 0.3)
    path = tmp_path / "ledger.sqlite"
    world = World(tmp_path / "runs", str(path))
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"
    try:
        with pytest.raises(
            LedgerUnreachable, match=rf"busy: locked.*by process {holder.pid}\b.*Try again"
        ) as caught:
            world.submit(paper_grid())
        assert caught.value.exit_code == 6
        with reading(world.ledger.engine) as connection:
            assert status_counts(connection) == {}
        opened = world.open(str(path))
        assert opened.known(["0" * 16]) == set()
    finally:
        holder.kill()
        holder.wait()
    world.submit(paper_grid())
    assert len(world.states()) == 1
    world.close()


def test_a_writer_that_waits_too_long_for_another_is_told_that_the_ledger_is_busy(
    ledger_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "BUSY_TIMEOUT_S", 0.3)
    world = World(tmp_path / "runs", ledger_url)
    other = world.open(ledger_url)
    with (
        writing(other.engine),
        pytest.raises(LedgerUnreachable, match=r"busy: locked for over 0\.3 s"),
    ):
        world.submit(paper_grid())
    assert world.states() == {}
    world.submit(paper_grid())
    assert len(world.states()) == 1
    other.engine.dispose()
    world.close()


def test_a_postgresql_server_that_is_away_is_said_without_the_password() -> None:
    url = f"postgresql://vtjobs:{SECRET}@127.0.0.1:1/ledger"
    with pytest.raises(LedgerUnreachable) as caught:
        Ledger.open(url, workspace_id="w", create=True)
    message = str(caught.value)
    assert caught.value.exit_code == 6
    assert SECRET not in message and "\n" not in message
    assert "127.0.0.1:1" in message


def test_a_wrong_password_is_said_without_showing_it(postgres: object) -> None:
    url = parse_url(postgres.url()).set(password=SECRET)  # type: ignore[attr-defined]
    with pytest.raises(LedgerUnreachable) as caught:
        Ledger.open(url.render_as_string(hide_password=False), workspace_id="w", create=True)
    assert SECRET not in str(caught.value) and "password authentication failed" in str(caught.value)


def test_waiting_for_a_database_ends_when_it_does_not_come() -> None:
    engine = open_engine(parse_url("postgresql://vtjobs@127.0.0.1:1/ledger"))
    with pytest.raises(LedgerUnreachable):
        wait_for(engine, 0.6)


def test_a_database_that_answers_is_not_waited_for(world: World) -> None:
    wait_for(world.ledger.engine, 0.0)
