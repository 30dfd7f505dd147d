"""Readers and databases that die in the middle: nothing is lost, nothing is doubled."""

import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from vtjobs.db import models as m
from vtjobs.db.engine import wait_for
from vtjobs.db.ingest import ingest
from vtjobs.jobs.atomic_files import make_folder

from ..support.ledgers import World, journal_bytes, measured, paper_grid
from ..support.postgres import PostgresServer, binaries, roomy_memory

CRASHES = 5

# A reader as a command line is: it opens the ledger, reads what there is, and tries again where
# that fails. Small portions make many transactions. At chosen steps, which are the beginnings and
# ends of SQL statements and the beginnings of commits, it kills itself, or it waits until the
# test has crashed the server.
READER = """
import os, signal, sys, time
from pathlib import Path
from sqlalchemy import event
from sqlalchemy.engine import Engine
from vtjobs.db import engine, ingest
from vtjobs.db.ledger import Ledger
from vtjobs.jobs.errors import LedgerUnreachable
from vtjobs.jobs.workspace.paths import Workspace

engine.BUSY_TIMEOUT_S = 5
ingest.BATCH_BYTES = int(sys.argv[3])
die_at, wait_at = int(sys.argv[4]), [int(step) for step in sys.argv[5:]]
steps = 0

def step(*_):
    global steps
    steps += 1
    if steps == die_at:
        os.kill(os.getpid(), signal.SIGKILL)
    if steps in wait_at:
        print("here", flush=True)
        sys.stdin.readline()

for name in ("before_cursor_execute", "after_cursor_execute", "commit"):
    event.listen(Engine, name, step)
workspace = Workspace(Path(sys.argv[1]))
attempts = [(run_id, 1) for run_id in workspace.run_ids()]
print("ready", flush=True)
while True:
    try:
        ledger = Ledger.open(sys.argv[2], workspace_id=workspace.check()["id"])
        ingest.ingest(ledger, workspace, attempts)
        break
    except LedgerUnreachable as error:
        print(error, flush=True)
        time.sleep(0.05)
"""


def events(seed: int, epochs: int) -> bytes:
    draw = random.Random(seed)
    found: list[dict[str, object]] = [
        {"kind": "start", "at": 1.0, "attempt": 1, "host": "n", "world_size": 1, "exact": None, "software": {},
         "resumed_attempt": None, "resumed_step": None}
    ]  # fmt: skip
    for epoch in range(epochs):
        place = {"at": 2.0 + epoch, "epoch": epoch, "step": 10 * epoch + 10}
        found += [
            {"kind": "progress", **place, "steps": 10 * epochs},
            {"kind": "epoch", **place, "metrics": {"loss": draw.random()}},
            {
                "kind": "evaluation",
                **place,
                "set": "test",
                "metrics": {"top1": 100 * draw.random()},
            },
            {"kind": "checkpoint", **place, "bytes": 99},
        ]
    ended = {
        "class": None,
        "signature": "",
        "error": "",
        "exit_code": 0,
        "epoch": None,
        "step": None,
        "rank": None,
    }
    return journal_bytes([*found, {"kind": "end", "at": 1e6, "state": "completed", **ended}])


def furnish(world: World, *, runs: int, epochs: int) -> list[str]:
    """Launch runs whose journals are complete and unread."""
    run_ids = world.submit(paper_grid(seeds=runs))
    world.launch(*run_ids)
    for seed, run_id in enumerate(run_ids):
        make_folder(world.folder(run_id).attempt(1))
        world.folder(run_id).journal(1, 0).write_bytes(events(seed, epochs))
    return run_ids


def reader(
    world: World, portion: int, *, die_at: int = 0, wait_at: Sequence[int] = ()
) -> subprocess.Popen[str]:
    numbers = [str(number) for number in (portion, die_at, *wait_at)]
    command = [sys.executable, "-c", READER, str(world.workspace.root), world.url, *numbers]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


def read_bytes(world: World) -> int:
    return sum(row["read_bytes"] for row in world.rows(m.journals))


def told(world: World) -> list[tuple[object, ...]]:
    return sorted(
        (row["run_id"], row["attempt"], str(row["before"]), row["after"])
        for row in world.rows(m.events)
    )


def assert_clean(world: World, run_ids: list[str], folder: Path) -> None:
    """Assert that the ledger equals one that read everything at once, undisturbed."""
    clean = World(folder / "clean", str(folder / "clean.sqlite"))
    furnish(clean, runs=len(run_ids), epochs=1)
    for run_id in run_ids:
        source = world.folder(run_id).journal(1, 0)
        clean.folder(run_id).journal(1, 0).write_bytes(source.read_bytes())
    ingest(clean.ledger, clean.workspace, [(run_id, 1) for run_id in run_ids])
    assert measured(world) == measured(clean)
    assert told(world) == told(clean)
    assert world.states() == clean.states() == dict.fromkeys(sorted(run_ids), "completed")
    volatile = {"submitted_at"}
    left, right = (
        [{**row, **dict.fromkeys(volatile)} for row in w.rows(m.attempts)] for w in (world, clean)
    )
    assert left == right
    clean.close()


@pytest.mark.parametrize("kills", [6, pytest.param(30, marks=pytest.mark.long)])
def test_a_reader_that_is_killed_again_and_again_loses_and_doubles_nothing(
    tmp_path: Path, kills: int
) -> None:
    world = World(tmp_path / "runs", str(tmp_path / "ledger.sqlite"))
    run_ids = furnish(world, runs=4, epochs=40 * kills)
    paths = [world.folder(run_id).journal(1, 0) for run_id in run_ids]
    whole = [path.read_bytes() for path in paths]
    draw = random.Random(7)
    seen = [0]
    for number in range(kills):
        # The journals grow between the kills, by no whole number of lines.
        for path, data in zip(paths, whole, strict=True):
            path.write_bytes(data[: len(data) * (number + 1) // kills])
        assert reader(world, 300, die_at=draw.randrange(20, 400)).wait(60) == -signal.SIGKILL
        seen.append(read_bytes(world))
    assert seen == sorted(seen), "an offset never goes back"
    assert len(set(seen)) > kills // 2, "the kills fell into the reading"
    assert reader(world, 4 << 20).wait(60) == 0
    assert read_bytes(world) == sum(map(len, whole))
    assert_clean(world, run_ids, tmp_path)
    world.close()


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    """A PostgreSQL server that this test may crash."""
    if binaries() is None:
        pytest.skip("PostgreSQL is not installed (apt-get install postgresql)")
    with tempfile.TemporaryDirectory(
        prefix="vtjobs-pg-", dir=roomy_memory(), ignore_cleanup_errors=True
    ) as folder:
        server = PostgresServer(Path(folder))
        server.create()
        server.start()
        yield server
        server.stop("immediate")


def test_a_postgresql_server_that_crashes_again_and_again_loses_and_doubles_nothing(
    own_server: PostgresServer, tmp_path: Path
) -> None:
    world = World(tmp_path / "runs", own_server.new_database())
    run_ids = furnish(world, runs=8, epochs=150)
    total = sum(world.folder(run_id).journal(1, 0).stat().st_size for run_id in run_ids)
    process = reader(world, 1000, wait_at=[40 + 300 * crash for crash in range(CRASHES)])
    assert process.stdin is not None and process.stdout is not None
    said = []
    for _ in range(CRASHES):
        while (line := process.stdout.readline()) != "here\n":
            assert line, "the reader was done before the crash"
            said.append(line)
        own_server.stop("immediate")
        own_server.start()
        wait_for(world.ledger.engine, 30)
        process.stdin.write("\n")
        process.stdin.flush()
    rest, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    assert "ledger unreachable" in "".join(said) + rest
    assert read_bytes(world) == total
    assert_clean(world, run_ids, tmp_path)
    world.close()
