"""The ledger's figures.

`python benchmarks/ledger.py` prints a table for SQLite and, where installed, PostgreSQL,
directly and through pgbouncer.

The middle of several rounds, in turn; the machine's noise is shown as the slowest one. A figure
counts with what it was measured on: the table's head names the cores.
"""

import argparse
import logging
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import delete, insert, text

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support.ledgers import World, journal_bytes, paper_grid
from tests.support.pgbouncer import PgBouncer, bouncer_binary
from tests.support.postgres import PostgresServer, binaries, roomy_memory
from vtjobs.analysis.findings import cells
from vtjobs.analysis.findings.comparisons import compare
from vtjobs.analysis.findings.plan import ComparisonPlan
from vtjobs.analysis.output import render
from vtjobs.db import models as m
from vtjobs.db import queries
from vtjobs.db.alike import alike
from vtjobs.db.engine import reading, writing
from vtjobs.db.ingest import ingest
from vtjobs.jobs.atomic_files import make_folder
from vtjobs.jobs.config.config import load_config
from vtjobs.jobs.run.selector import Selection, parse_selection
from vtjobs.jobs.run.states import AttemptState, RunState
from vtjobs.orchestrator.loop.context import Context
from vtjobs.orchestrator.views.eta import etas

CELLS, SEEDS = 20_000, 5
JOURNALS, EVENTS = 64, 2_000
STATES = (RunState.COMPLETED,) * 16 + (
    RunState.PENDING,
    RunState.RUNNING,
    RunState.FAILED,
    RunState.QUEUED,
)


def journal(number: int) -> bytes:
    """Return a journal as a training leaves it.

    Heads, epochs, evaluations, checkpoints, signs of life.
    """
    draw = random.Random(number)
    events: list[dict[str, Any]] = [
        {
            "kind": "start",
            "at": 1.0,
            "attempt": 1,
            "host": "node17",
            "resumed_attempt": None,
            "resumed_step": None,
            "world_size": 8,
            "exact": None,
            "software": {"torch": "2.9.0", "timm": "1.0.22"},
        }
    ]
    epoch = 0
    while len(events) < EVENTS - 1:
        at = 1.7e9 + 60.0 * epoch
        place = {"epoch": epoch, "step": 98 * (epoch + 1)}
        losses = {
            "loss": draw.random(),
            "loss_supervised": draw.random(),
            "loss_drloc": draw.random(),
            "lr": 5e-4,
        }
        scores = {"top1": 100 * draw.random(), "top5": 100 * draw.random(), "loss": draw.random()}
        for part in range(5):
            now = {
                "at": round(at + part, 3),
                "epoch": epoch,
                "step": 98 * epoch + 19 * part,
                "steps": 29_400,
            }
            events.append({"kind": "progress", **now})
        events.append({"kind": "epoch", "at": at + 6, **place, "metrics": losses})
        events.append(
            {"kind": "evaluation", "at": at + 7, **place, "set": "test", "metrics": scores}
        )
        if epoch % 10 == 9:
            events.append({"kind": "checkpoint", "at": at + 8, **place, "bytes": 348_127_004})
        events += [{"kind": "heartbeat", "at": at + 9}, {"kind": "heartbeat", "at": at + 39}]
        epoch += 1
    ended = {
        "class": None,
        "signature": "",
        "error": "",
        "exit_code": 0,
        "epoch": epoch,
        "step": 98 * epoch,
        "rank": 0,
    }
    return journal_bytes(
        [*events[: EVENTS - 1], {"kind": "end", "at": 1.8e9, "state": "completed", **ended}]
    )


def attempt(run_id: str, token: str, state: RunState) -> dict[str, Any]:
    """Return a run's attempt: halfway if the run trains, else whole."""
    trains = state == RunState.RUNNING
    return {
        "run_id": run_id,
        "number": 1,
        "token": token,
        "state": AttemptState.RUNNING if trains else AttemptState.COMPLETED,
        "submitted_at": 1.0,
        "started_at": 2.0,
        "ended_at": None if trains else 3.0,
        "heartbeat_at": 3.0,
        "host": "node17",
        "epoch": 50 if trains else 100,
        "step": 4900 if trains else 9800,
        "steps": 9800,
        "trained_s": 0.5 if trains else 1.0,
    }


def fill(world: World) -> None:
    """Put 100,000 runs of 20,000 cells into the ledger, with attempts and results, 1,000 runs to a
    grid.
    """
    draw = random.Random(0)
    for number in range(CELLS * SEEDS // 1000):
        size = 1000 // SEEDS
        frozen = paper_grid(f"grid{number}", cells=size, seeds=SEEDS, first_cell=number * size)
        world.ledger.add_grid(frozen)
        attempts, results = [], []
        states = {run[0]: draw.choice(STATES) for run in frozen.runs}
        for run_id, cell, *_ in frozen.runs:
            attempts.append(attempt(run_id, f"vtj-{number}", states[run_id]))
            for metric in ("top1", "top5", "loss"):
                value = draw.gauss(70, 2)
                place = {"last": value, "last_epoch": 99, "best": value, "best_epoch": 99}
                key = {"run_id": run_id, "cell_id": frozen.cells[cell].cell_id, "set_name": "test"}
                results.append({**key, "metric": metric, **place})
        with writing(world.ledger.engine) as connection:
            connection.execute(insert(m.attempts), attempts)
            connection.execute(insert(m.results), results)
            changed = [{"s": state, "r": run_id} for run_id, state in states.items()]
            connection.execute(text("UPDATE runs SET state = :s WHERE run_id = :r"), changed)
    if world.ledger.engine.dialect.name == "postgresql":
        # What its autovacuum does by itself after a while.
        with world.ledger.engine.connect().execution_options(
            isolation_level="AUTOCOMMIT"
        ) as connection:
            connection.exec_driver_sql("VACUUM ANALYZE")


def timed(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def forget(world: World, run_ids: list[str]) -> None:
    """Take back what an ingestion wrote."""
    with writing(world.ledger.engine) as connection:
        for table in (m.epoch_metrics, m.evaluations, m.checkpoints, m.journals):
            connection.execute(delete(table).where(table.c.run_id.in_(run_ids)))
        connection.execute(delete(m.results).where(m.results.c.run_id.in_(run_ids)))
        connection.execute(delete(m.events).where(m.events.c.run_id.in_(run_ids)))
        connection.execute(
            text(
                "UPDATE attempts SET state = 'queued', started_at = NULL, epoch = NULL, step ="
                " NULL, steps = NULL, heartbeat_at = NULL, checkpoint_step = NULL WHERE token ="
                " 'vtj-bench'"
            )
        )


class Work:
    """What is measured, on one database."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.added = 0
        fill(world)
        frozen = paper_grid("journals", cells=JOURNALS, first_cell=CELLS)
        self.run_ids = world.submit(frozen)
        with writing(world.ledger.engine) as connection:
            row = {
                "number": 1,
                "token": "vtj-bench",
                "state": AttemptState.QUEUED,
                "submitted_at": 1.0,
            }
            connection.execute(
                insert(m.attempts), [{"run_id": run_id, **row} for run_id in self.run_ids]
            )
        for number, run_id in enumerate(self.run_ids):
            make_folder(world.folder(run_id).attempt(1))
            world.folder(run_id).journal(1, 0).write_bytes(journal(number))

    def read(self, query: Callable[[Any], object]) -> float:
        def work() -> None:
            with reading(self.world.ledger.engine) as connection:
                query(connection)

        return timed(work)

    def counts(self) -> float:
        """What `vtjobs status` counts: all runs, and those of each grid."""

        def both(connection: Any) -> None:
            alike(connection, Selection())
            alike(connection, Selection(), by_grid=True)

        return self.read(both) * 1e3

    def etas(self) -> float:
        """When all of them will have ended: 5,000 train, 10,000 wait."""
        context = Context(load_config({}), self.world.workspace, self.world.ledger)
        return timed(lambda: etas(context, Selection())) * 1e3

    def runs(self) -> float:
        chosen = parse_selection(["grid17"])
        return self.read(lambda connection: queries.list_runs(connection, chosen)) * 1e3

    def report(self) -> float:
        """Five of the grids: 1,000 cells with 5 seeds each, marked, as a table."""
        chosen = parse_selection([f"grid{number}" for number in range(5)])
        return (
            timed(
                lambda: render.of_cells(cells.planned(self.world.ledger, chosen, ComparisonPlan()))
            )
            * 1e3
        )

    def compare(self) -> float:
        """The comparisons of these, with ranks and reversals."""
        chosen = parse_selection([f"grid{number}" for number in range(5)])
        return (
            timed(lambda: compare(cells.planned(self.world.ledger, chosen, ComparisonPlan()))) * 1e3
        )

    def add(self) -> float:
        self.added += 1
        first = 2 * CELLS + self.added * 2_000
        frozen = paper_grid(f"added{self.added}", cells=2_000, seeds=SEEDS, first_cell=first)
        seconds = timed(lambda: self.world.ledger.add_grid(frozen))
        with writing(self.world.ledger.engine) as connection:
            connection.execute(delete(m.grid_runs).where(m.grid_runs.c.grid_id == frozen.grid_id))
            connection.execute(delete(m.runs).where(m.runs.c.grid_id == frozen.grid_id))
        return seconds * 1e3

    def events(self) -> float:
        attempts = [(run_id, 1) for run_id in self.run_ids]
        seconds = timed(lambda: ingest(self.world.ledger, self.world.workspace, attempts))
        states = self.world.states()
        assert all(states[run_id] == "completed" for run_id in self.run_ids)
        forget(self.world, self.run_ids)
        return JOURNALS * EVENTS / seconds


@contextmanager
def databases(folder: Path) -> Iterator[dict[str, Work]]:
    found = {"SQLite": Work(World(folder / "sqlite", str(folder / "ledger.sqlite")))}
    server: PostgresServer | None = None
    pooler: PgBouncer | None = None
    if binaries() is not None:
        # Its own memory and fsync settings are those of the tests; SQLite's are the product's.
        server = PostgresServer(Path(tempfile.mkdtemp(prefix="vtjobs-pg-", dir=roomy_memory())))
        server.create()
        server.start()
        found["PostgreSQL"] = Work(World(folder / "postgres", server.new_database()))
        if bouncer_binary() is not None:
            pooler = PgBouncer(server)
            pooler.start()
            address = pooler.url(server.new_database())
            found["pgbouncer"] = Work(World(folder / "pgbouncer", address))
    try:
        yield found
    finally:
        for work in found.values():
            work.world.close()
        if pooler is not None:
            pooler.stop()
        if server is not None:
            server.stop("immediate")
            shutil.rmtree(server.folder, ignore_errors=True)


ROWS = [
    ("status counts, 100,000 runs", "counts", "ms", {"SQLite": 500, "PostgreSQL": 500}),
    ("estimate their end", "etas", "ms", {"SQLite": 1_000, "PostgreSQL": 1_000}),
    ("list a grid of 1,000 runs", "runs", "ms", {}),
    (
        "report of 1,000 cells, of 100,000 runs",
        "report",
        "ms",
        {"SQLite": 3_000, "PostgreSQL": 3_000},
    ),
    ("compare them: 500 heads", "compare", "ms", {}),
    ("add a grid of 10,000 runs", "add", "ms", {}),
    (
        f"ingest {JOURNALS} × {EVENTS:,} events",
        "events",
        "events/s",
        {"SQLite": 50_000, "PostgreSQL": 20_000},
    ),
]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--folder", type=Path, help="where SQLite's ledger lies; default: the temporary folder"
    )
    chosen = parser.parse_args()
    logging.disable(logging.CRITICAL)
    folder = Path(tempfile.mkdtemp(prefix="vtjobs-bench-", dir=chosen.folder))
    try:
        with databases(folder) as works:
            return report(works, chosen.rounds)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def report(works: dict[str, Work], rounds: int) -> int:
    """Measure in turn, print the table; return whether a target was missed."""
    print(f"{len(os.sched_getaffinity(0))} cores, {rounds} rounds\n")
    print(f"{'':40}{'database':12}{'median':>12}{'slowest':>12}{'target':>12}")
    missed = 0
    for what, name, unit, targets in ROWS:
        taken: dict[str, list[float]] = {database: [] for database in works}
        for _ in range(rounds):
            for database, work in works.items():
                taken[database].append(getattr(work, name)())
        for database, values in taken.items():
            middle = statistics.median(values)
            worst = min(values) if unit == "events/s" else max(values)
            target = targets.get(database)
            met = target is None or (middle >= target if unit == "events/s" else middle <= target)
            missed += not met
            wanted = "" if target is None else f"{'≥' if unit == 'events/s' else '≤'} {target:,}"
            note = "" if met else "  missed"
            print(
                f"{what:40}{database:12}{middle:>12,.1f}{worst:>12,.1f}{wanted:>12} {unit}{note}",
                flush=True,
            )
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
