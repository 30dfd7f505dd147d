"""The report of a ledger does not depend on the database."""

import json
import random
from pathlib import Path

from vtjobs.analysis.findings.cells import report
from vtjobs.analysis.findings.comparisons import compare
from vtjobs.analysis.findings.plan import ComparisonPlan
from vtjobs.db import lookups, reruns
from vtjobs.db.engine import reading
from vtjobs.db.ingest import ingest_live
from vtjobs.jobs.documents import to_plain
from vtjobs.jobs.run.selector import Selection

from ..support.ledgers import World, paper_grid
from ..support.postgres import PostgresServer


def told(folder: Path, url: str) -> str:
    """Return the JSON of a report and its comparisons over a ledger with completed, failed and
    waiting runs.
    """
    world = World(folder, url)
    draw = random.Random(0)
    run_ids = world.submit(paper_grid(cells=6, seeds=4))
    for number, run_id in enumerate(run_ids):
        scores = {epoch: 70 + draw.gauss(0, 1) / 3 for epoch in range(3)}
        if number % 5 == 4:
            continue
        world.launch(run_id)
        world.start(run_id, 1)
        for epoch, score in scores.items():
            world.epoch(run_id, 1, epoch, score)
        failed = number % 7 == 6
        world.end(run_id, 1, "failed" if failed else "completed", "crash" if failed else None)
    ingest_live(world.ledger, world.workspace)
    # Completed runs that somebody has run again. The second found its old result and trained
    # nothing, as after a rerun that was taken back; the third was scored anew.
    world.ledger.grant_try({run_id: 1 for run_id in run_ids[:3]}, clean=True)
    for run_id in run_ids[1:3]:
        world.launch(run_id)
        world.start(run_id, 2)
        if run_id == run_ids[2]:
            world.epoch(run_id, 2, 2, 70.5)
        world.end(run_id, 2, "completed")
    ingest_live(world.ledger, world.workspace)
    cells = report(world.ledger, Selection(everything=True), with_specs=True)
    with reading(world.ledger.engine) as connection:
        ids = [cell.cell_id for cell in cells]
        again = reruns.redrawn(connection, run_ids)
        back = reruns.taken_back(connection, run_ids[:3])
        scored = lookups.scored_runs(connection, ids)
        unfinished = lookups.ended_without_result(connection, ids)
    assert again == set(run_ids[:3]) and back == {run_ids[1]}
    assert {seed for cell in cells for seed in cell.redrawn_seeds} == {0, 2}
    assert len(scored) == sum(n % 5 != 4 for n in range(len(run_ids)))
    assert {cell.evaluations[-1] for cell in cells if cell.evaluations} == {3}
    document = {
        "cells": cells,
        "comparisons": compare(cells, ComparisonPlan(margin=0.2)),
        "scored": dict(sorted(scored.items())),
        "unfinished": sorted(unfinished),
    }
    world.close()
    assert sum(cell.n for cell in cells) > 10
    return json.dumps(to_plain(document), allow_nan=False)


def test_the_report_is_the_same_byte_for_byte_on_both_databases(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    on_sqlite = told(tmp_path / "one", f"sqlite:///{tmp_path / 'ledger.sqlite'}")
    assert told(tmp_path / "other", postgres.new_database()) == on_sqlite
