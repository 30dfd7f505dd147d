"""Readers and databases that die in the middle: nothing is lost, nothing is doubled."""

import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from vtjobs.db import models as m
from vtjobs.db.engine import wait_for
from vtjobs.db.ingest import ingest
from vtjobs.jobs.atomic_files import make_folder

from ..support.ledgers import World, journal_bytes, measured, paper_grid
from ..support.postgres import PostgresServer, binaries, roomy_memory

KILLS, CRASHES = 15, 5

# A reader as a command line is: it opens the ledger, reads what there is, and tries again where that fails. Small
# portions make many transactions, so that a kill falls between and into them.
READER = """
import sys, time
from pathlib import Path
from vtjobs.db import engine, ingest
from vtjobs.db.ledger import Ledger
from vtjobs.jobs.errors import LedgerUnreachable
from vtjobs.jobs.workspace import Workspace

engine.BUSY_TIMEOUT_S = 5
ingest.BATCH_BYTES = int(sys.argv[3])
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
            {"kind": "evaluation", **place, "set": "test", "metrics": {"top1": 100 * draw.random()}},
            {"kind": "checkpoint", **place, "bytes": 99},
        ]
    ended = {"class": None, "signature": "", "error": "", "exit_code": 0, "epoch": None, "step": None, "rank": None}
    return journal_bytes([*found, {"kind": "end", "at": 1e6, "state": "completed", **ended}])


def furnish(world: World, *, runs: int, epochs: int) -> list[str]:
    """Launch runs whose journals are complete and unread."""
    run_ids = world.submit(paper_grid(seeds=runs))
    world.launch(*run_ids)
    for seed, run_id in enumerate(run_ids):
        make_folder(world.folder(run_id).attempt(1))
        world.folder(run_id).journal(1, 0).write_bytes(events(seed, epochs))
    return run_ids


def reader(world: World, portion: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", READER, str(world.workspace.root), world.url, str(portion)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


def read_bytes(world: World) -> int:
    return sum(row["read_bytes"] for row in world.rows(m.journals))


def told(world: World) -> list[tuple[object, ...]]:
    return sorted((row["run_id"], row["attempt"], str(row["before"]), row["after"]) for row in world.rows(m.events))


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
    left, right = ([{**row, **dict.fromkeys(volatile)} for row in w.rows(m.attempts)] for w in (world, clean))
    assert left == right
    clean.close()


def test_a_reader_that_is_killed_again_and_again_loses_and_doubles_nothing(tmp_path: Path) -> None:
    world = World(tmp_path / "runs", str(tmp_path / "ledger.sqlite"))
    run_ids = furnish(world, runs=8, epochs=250)
    paths = [world.folder(run_id).journal(1, 0) for run_id in run_ids]
    whole = [path.read_bytes() for path in paths]
    draw = random.Random(7)
    kills, rounds, seen = 0, 3 * KILLS, [0]
    for number in range(rounds):
        # The journals grow between the kills, by no whole number of lines.
        for path, data in zip(paths, whole, strict=True):
            path.write_bytes(data[: len(data) * (number + 1) // rounds])
        process = reader(world, 300)
        time.sleep(draw.uniform(0.0, 0.08))
        if process.poll() is None:
            process.kill()
            kills += 1
        process.wait()
        seen.append(read_bytes(world))
        if kills == KILLS:
            break
    assert kills == KILLS
    assert seen == sorted(seen), "an offset never goes back"
    assert len(set(seen)) > 3, "some kills fell into the reading"
    for path, data in zip(paths, whole, strict=True):
        path.write_bytes(data)
    assert reader(world, 4 << 20).wait(60) == 0
    assert read_bytes(world) == sum(map(len, whole))
    assert_clean(world, run_ids, tmp_path)
    world.close()


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    """A PostgreSQL server that this test may crash."""
    if binaries() is None:
        pytest.skip("PostgreSQL is not installed (apt-get install postgresql)")
    with tempfile.TemporaryDirectory(prefix="vtjobs-pg-", dir=roomy_memory(), ignore_cleanup_errors=True) as folder:
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
    process = reader(world, 1000)
    draw = random.Random(3)
    interrupted = 0
    for _ in range(CRASHES):
        time.sleep(draw.uniform(0.02, 0.1))
        interrupted += process.poll() is None
        own_server.stop("immediate")
        own_server.start()
        wait_for(world.ledger.engine, 30)
    complaints, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    assert interrupted >= CRASHES - 1, "most crashes fell into the reading"
    assert "ledger unreachable" in complaints
    assert read_bytes(world) == total
    assert_clean(world, run_ids, tmp_path)
    world.close()
