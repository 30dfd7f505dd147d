"""A ledger that is rebuilt after real runs holds what the lost one held, but for a short list.

Runs that completed, failed and were tried again, whose agent was killed, that were cancelled, begun
anew and scored afterwards: what a column may lose is named here with the reason.
"""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from vtjobs.db import models as m
from vtjobs.db.engine import open_engine, parse_url, reading

from .conftest import end_processes
from .support.cli import Cli
from .support.grids import ENDLESS, tiny_grid
from .support.lab import wait_for
from .test_kill import agents, kill

pytestmark = pytest.mark.training

Row = dict[str, Any]
Rows = dict[str, list[Row]]

TRIP = """
from pathlib import Path
from torch import nn

class Trip(nn.Module):
    def __init__(self, grids):
        super().__init__()

    def forward(self, tokens, generator, places):
        if Path({stone!r}).exists():
            raise ValueError("tripped over 17 stones")
        return sum(part.mean() for part in tokens) * 0.0, {{}}
"""

# What no file of the workspace tells, table.column -> why. docs/how-it-works.md has the same list.
UNKNOWN = {
    "allocations.job_id": "the scheduler's name of a job; that of a live one is asked for again",
    "allocations.launching_until": "how long somebody may take to submit; over for all but live ones",
    "attempts.word": "what the scheduler said last",
    "attempts.starts_at": "when the scheduler expected the start",
    "runs.changed_at": "when the lost ledger noticed a change",
    "events.id": "numbered anew, in the order of their times",
    "events.before": "`queued` is what the scheduler said; without it the state before is another",
}
# Events that only the scheduler told.
FROM_SCHEDULER = {"local"}
# Told by the end of an attempt without an end record: known is that a later attempt followed.
UNKNOWN_OF_LOST = {"attempts.ended_at"}
# Has a test of its own: exact if the grid was submitted once.
CLOSE = {"runs.created_at"}
# How far the times of files may be behind the clock.
TICK_S = 0.05


@dataclass
class Ledgers:
    """The rows of a ledger, and of the one that was made after its loss."""

    before: Rows
    after: Rows
    begun: float
    """When the first command was started."""


def rows_of(path: Path) -> Rows:
    engine = open_engine(parse_url(str(path)), read_only=True)
    with reading(engine) as connection:
        found = {
            table.name: [
                dict(row)
                for row in connection.execute(
                    select(table).order_by(*table.primary_key.columns)
                ).mappings()
            ]
            for table in m.metadata.sorted_tables
        }
    engine.dispose()
    return found


def state_of(cli: Cli, grid: str) -> tuple[str, int]:
    (run,) = cli.json("runs", grid)
    return run["state"], run["attempts"]


def train_and_fail(cli: Cli) -> None:
    """Leave a run in each way in which runs end."""
    stone = cli.folder / "stone"
    stone.touch()
    cli.write("trip.py", TRIP.format(stone=str(stone)))
    heads = '["trip.py:Trip": {weight: 1.0}]'
    cli.write("trips.yaml", tiny_grid(name="trips", heads=heads, extra="retries: 1"))
    cli.write("tiny.yaml", tiny_grid(epochs=3))
    cli.write("long.yaml", tiny_grid(name="long", seeds="1", epochs=ENDLESS))
    assert cli("submit", "trips.yaml", "--wait").returncode == 4
    stone.unlink()
    again = cli.json("runs", "trips")[0]["run_id"]
    cli.ok("retry", again)
    cli.ok("submit", "tiny.yaml", "--wait")
    cli.ok("wait", again)
    cli.ok("evaluate", "tiny", "--sets", "test")
    cli.ok("rerun", cli.json("runs", "tiny")[0]["run_id"], "--yes")
    cli.ok("wait", "tiny")
    cli.ok("submit", "long.yaml")
    wait_for(lambda: (cli.json("runs", "long")[0]["epoch"] or 0) > 1)
    kill(agents(cli))
    cli.ok("supervise", "--once")
    wait_for(lambda: state_of(cli, "long") == ("running", 2))
    cli.ok("cancel", "long", "--yes")
    wait_for(lambda: state_of(cli, "long") == ("cancelled", 2))
    # A submission that adds nothing is one all the same.
    cli.ok("submit", "tiny.yaml")
    cli.ok("status")


@pytest.fixture(scope="module")
def ledgers(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Ledgers:
    cli = Cli(tmp_path_factory.mktemp("rebuild"), cache)
    ledger, begun = cli.workspace / "ledger.sqlite", time.time()
    try:
        train_and_fail(cli)
    finally:
        end_processes(cli.workspace)
    before = rows_of(ledger)
    cli.ok("ledger", "rebuild", "--yes")
    return Ledgers(before=before, after=rows_of(ledger), begun=begun)


def key_of(table: str, row: Row) -> tuple[Any, ...]:
    return tuple(row[column.name] for column in m.metadata.tables[table].primary_key.columns)


def test_the_scene_has_every_kind_of_end(ledgers: Ledgers) -> None:
    ends = sorted((row["state"], row["failure"]) for row in ledgers.before["attempts"])
    assert ends == [
        ("cancelled", "cancelled"),
        ("completed", None),
        ("completed", None),
        ("completed", None),
        ("completed", None),
        ("failed", "user_error"),
        ("failed", "user_error"),
        ("lost", "agent_died"),
    ]


@pytest.mark.parametrize(
    "table", [table.name for table in m.metadata.sorted_tables if table is not m.events]
)
def test_every_column_comes_back_or_is_named(ledgers: Ledgers, table: str) -> None:
    before = {key_of(table, row): row for row in ledgers.before[table]}
    after = {key_of(table, row): row for row in ledgers.after[table]}
    assert before.keys() == after.keys()
    for key, row in before.items():
        lost = UNKNOWN_OF_LOST if row.get("state") == "lost" else set()
        known = [name for name in row if f"{table}.{name}" not in UNKNOWN.keys() | CLOSE | lost]
        assert {name: after[key][name] for name in known} == {name: row[name] for name in known}


def test_a_run_was_created_when_its_grid_was_first_submitted(ledgers: Ledgers) -> None:
    after = {row["run_id"]: row["created_at"] for row in ledgers.after["runs"]}
    first = {
        row["run_id"]: row["submitted_at"]
        for row in ledgers.after["attempts"]
        if row["number"] == 1
    }
    for row in ledgers.before["runs"]:
        if row["grid_id"].startswith("tiny"):
            # Submitted twice: what was written at the first time is a moment later.
            assert row["created_at"] - TICK_S <= after[row["run_id"]] <= first[row["run_id"]]
        else:
            assert row["created_at"] == after[row["run_id"]]


def test_an_attempt_that_ended_without_a_word_ended_between_its_last_sign_and_the_next_one(
    ledgers: Ledgers,
) -> None:
    attempts = {(row["run_id"], row["number"]): row for row in ledgers.after["attempts"]}
    (lost,) = [row for row in attempts.values() if row["state"] == "lost"]
    following = attempts[lost["run_id"], lost["number"] + 1]
    assert lost["heartbeat_at"] <= lost["ended_at"] <= following["submitted_at"]


def story(rows: Rows) -> list[tuple[Any, ...]]:
    """Return the events that are not the scheduler's alone, run by run in their order."""
    told = [
        (row["run_id"], row["attempt"], row["after"], row["raw"].partition("@")[0])
        for row in rows["events"]
        if row["after"] != "queued"
    ]
    # How a scheduler named an end that nobody wrote down is not known.
    return sorted(
        ((*event[:3], "") if event[2] == "lost" else event for event in told),
        key=lambda event: event[0],
    )


def test_the_events_of_each_run_come_back_in_their_order(ledgers: Ledgers) -> None:
    assert story(ledgers.after) == story(ledgers.before)


def test_what_journals_and_allocations_tell_happened_when_it_happened(ledgers: Ledgers) -> None:
    def times(rows: Rows) -> set[tuple[Any, ...]]:
        return {
            (row["run_id"], row["attempt"], row["after"], row["at"])
            for row in rows["events"]
            if row["source"] not in FROM_SCHEDULER | {"user"} and row["after"] != "lost"
        }

    assert times(ledgers.after) == times(ledgers.before)


def test_what_users_asked_for_was_asked_when_they_asked(ledgers: Ledgers) -> None:
    def asked(rows: Rows) -> dict[tuple[str, str], float]:
        events = [row for row in rows["events"] if row["source"] == "user"]
        return {(row["run_id"], row["after"]): row["at"] for row in events}

    before, after = asked(ledgers.before), asked(ledgers.after)
    assert len(before) == 3
    for key, at in before.items():
        # The file is there before the ledger's row.
        assert ledgers.begun - TICK_S < after[key] <= at
