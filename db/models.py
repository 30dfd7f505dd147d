"""The tables of the ledger.

Times are UTC seconds since 1970; ids are the hexadecimal names of DESIGN.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    text,
)

metadata = MetaData()

meta = Table(
    "meta",
    metadata,
    Column("key", String(32), primary_key=True),
    Column("value", Text, nullable=False),
)

grids = Table(
    "grids",
    metadata,
    Column("grid_id", String(80), primary_key=True),
    Column("name", String(64), nullable=False, index=True),
    Column("submitted_at", Double, nullable=False),
    Column("settings", Text, nullable=False),  # JSON, see jobs/workspace/stored_grid.py
)


def _names() -> list[Column[str]]:
    """Return the columns of what a grid calls a cell."""
    return [
        Column("stage", String(64), nullable=False),
        Column("backbone", String(200), nullable=False),
        Column("dataset", String(200), nullable=False),
        Column("head", String(400), nullable=False),
        Column("recipe", String(64), nullable=False),
        Column("axes", Text, nullable=False),  # JSON
    ]


cells = Table(
    "cells",
    metadata,
    Column("cell_id", String(16), primary_key=True),
    Column("match_id", String(16), nullable=False, index=True),  # shared with the baseline
    *_names(),
    Column("is_baseline", Boolean, nullable=False),
    Column("spec", Text, nullable=False),  # JSON of jobs.spec.CellSpec
)

runs = Table(
    "runs",
    metadata,
    Column("run_id", String(16), primary_key=True),
    Column("cell_id", String(16), ForeignKey("cells.cell_id"), nullable=False, index=True),
    Column("grid_id", String(80), nullable=False),  # whose settings hold: the newest submission
    Column(
        "seed", BigInteger, nullable=False
    ),  # or the place in the design, where streams vary apart
    Column("streams", Text, nullable=False, server_default=""),  # JSON, where they vary apart
    Column("parent", String(16), index=True),
    Column("state", String(16), nullable=False),  # derived, see jobs/run/derive.py
    Column("reason", Text, nullable=False, server_default=""),
    Column("tries", Integer, nullable=False),
    Column(
        "tries_from", Integer, nullable=False, server_default="0"
    ),  # attempts up to here no longer count
    Column("cancelled_through", Integer, nullable=False, server_default="0"),
    Column("clean_next", Boolean, nullable=False, server_default=text("false")),
    Column("micro_split", Integer, nullable=False, server_default="1"),
    Column("not_before", Double, nullable=False, server_default="0"),
    Column("created_at", Double, nullable=False),
    Column("changed_at", Double, nullable=False),
    Index("runs_by_state", "state"),
)

# What a grid calls cells that another grid had before it, where that is another name.
cell_names = Table(
    "cell_names",
    metadata,
    Column("grid_id", String(80), ForeignKey("grids.grid_id"), primary_key=True),
    Column("cell_id", String(16), ForeignKey("cells.cell_id"), primary_key=True),
    *_names(),
)

# What people put on grids and runs; <workspace>/tags.jsonl is what holds.
tags = Table(
    "tags",
    metadata,
    Column("target", String(80), primary_key=True),  # id of a grid or a run
    Column("tag", String(64), primary_key=True),
    Index("tags_by_tag", "tag"),
)

grid_runs = Table(
    "grid_runs",
    metadata,
    Column("grid_id", String(80), ForeignKey("grids.grid_id"), primary_key=True),
    Column("run_id", String(16), ForeignKey("runs.run_id"), primary_key=True),
    Column("position", Integer, nullable=False),
    Index("grid_runs_by_run", "run_id"),
)

allocations = Table(
    "allocations",
    metadata,
    Column("token", String(48), primary_key=True),
    Column("backend", String(16), nullable=False),
    Column("created_at", Double, nullable=False),
    Column(
        "launching_until", Double, nullable=False, server_default="0"
    ),  # somebody is submitting it
    Column(
        "job_id", String(64)
    ),  # the scheduler's name; NULL until it is known to have been accepted
    Column("refused", Text),  # the scheduler's clear no
    Column("places", Integer, nullable=False, server_default="1"),  # elements of its array
    Column("content", Text, nullable=False),  # JSON, see jobs/workspace/allocation.py
)

attempts = Table(
    "attempts",
    metadata,
    Column("run_id", String(16), ForeignKey("runs.run_id"), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("token", String(48), nullable=False, index=True),
    Column("array_index", Integer, nullable=False, server_default="0"),
    Column("state", String(16), nullable=False),
    Column("failure", String(16)),
    Column("signature", Text, nullable=False, server_default=""),
    Column("error", Text, nullable=False, server_default=""),
    Column("exit_code", Integer),
    Column("word", Text, nullable=False, server_default=""),  # what the scheduler last said of it
    Column("submitted_at", Double, nullable=False),
    Column("started_at", Double),
    Column("ended_at", Double),
    Column("heartbeat_at", Double),
    Column("host", String(255)),
    Column("world_size", Integer),
    Column("gpus", Integer, nullable=False, server_default="0"),
    Column("per_gpu", Integer, nullable=False, server_default="1"),
    Column("resumed_attempt", Integer),
    Column("resumed_step", Integer),
    Column("exact", Boolean),  # whether the resume equals an uninterrupted run bit for bit
    Column("checkpoint_step", Integer),
    Column("epoch", Integer),
    Column("step", Integer),
    Column("steps", Integer),
    Column("usage", Text),  # JSON of jobs.workspace.events.Usage
    Column("trained_s", Double),  # from its first step to `step`
    Column("starts_at", Double),  # when the scheduler expects it to start
    Column("software", Text),  # JSON, package -> version
    # Two submitters cannot both have a live attempt at one run: of live attempts alone, which the
    # migrations say. Said here, it would make every command import both databases' dialects.
    Index("one_live_attempt", "run_id", unique=True),
    Index("attempts_by_state", "state"),
)

events = Table(
    "events",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("run_id", String(16), nullable=False, index=True),
    Column("attempt", Integer, nullable=False),
    Column("at", Double, nullable=False),
    Column(
        "source", String(16), nullable=False
    ),  # journal, local, squeue, sacct, ray, user, vtjobs
    Column("before", String(16)),
    Column("after", String(16), nullable=False),
    Column("raw", Text, nullable=False, server_default=""),  # the word we were told
)

journals = Table(
    "journals",
    metadata,
    Column("run_id", String(16), primary_key=True),
    Column("attempt", Integer, primary_key=True),
    Column("node", String(40), primary_key=True),
    Column("read_bytes", BigInteger, nullable=False),
    Column("state", String(16), nullable=False),  # open, due, damaged
    Column("note", Text, nullable=False, server_default=""),
)

epoch_metrics = Table(
    "epoch_metrics",
    metadata,
    Column("run_id", String(16), primary_key=True),
    Column("attempt", Integer, primary_key=True),
    Column("node", String(40), primary_key=True),
    Column("seq", Integer, primary_key=True),
    Column("at", Double, nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("step", Integer, nullable=False),
    Column("metrics", Text, nullable=False),  # JSON
)

evaluations = Table(
    "evaluations",
    metadata,
    Column("run_id", String(16), primary_key=True),
    Column("attempt", Integer, primary_key=True),
    Column("node", String(40), primary_key=True),
    Column("seq", Integer, primary_key=True),
    Column("at", Double, nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("step", Integer, nullable=False),
    Column("set_name", String(64), nullable=False),
    Column("metrics", Text, nullable=False),  # JSON
)

checkpoints = Table(
    "checkpoints",
    metadata,
    Column("run_id", String(16), primary_key=True),
    Column("attempt", Integer, primary_key=True),
    Column("step", Integer, primary_key=True),
    Column("epoch", Integer, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("at", Double, nullable=False),
)

results = Table(
    "results",
    metadata,
    Column("run_id", String(16), ForeignKey("runs.run_id"), primary_key=True),
    Column("set_name", String(64), primary_key=True),
    Column("metric", String(32), primary_key=True),
    Column(
        "cell_id", String(16), ForeignKey("cells.cell_id"), nullable=False
    ),  # its run's, for statistics per cell
    Column("last", Double, nullable=False),  # at the last epoch
    Column("last_epoch", Integer, nullable=False),
    Column("best", Double, nullable=False),
    Column("best_epoch", Integer, nullable=False),
    Index("results_by_cell", "metric", "set_name", "cell_id", "last"),
)
