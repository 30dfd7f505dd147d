"""What really happened to a grid, read from its workspace alone, against what the ledger believes.

Nothing of vtjobs' own reading is used here: journals are parsed, ends judged and checkpoints hashed
by this module.
"""

import hashlib
import json
import sqlite3
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# A zombie may live this long after a higher attempt has started.
FENCED_WITHIN_S = 30.0
# States of a run that nothing leaves by itself.
SETTLED = frozenset(("completed", "cancelled", "failed", "diverged", "blocked"))
_TABLES = {"epoch": "epoch_metrics", "evaluation": "evaluations", "checkpoint": "checkpoints"}


@dataclass(slots=True)
class Attempt:
    """One attempt as its journal on node 0 tells it."""

    number: int
    events: list[dict[str, Any]]

    def first(self, kind: str) -> dict[str, Any] | None:
        return next((event for event in self.events if event["kind"] == kind), None)

    @property
    def start(self) -> dict[str, Any] | None:
        return self.first("start")

    @property
    def completed(self) -> bool:
        end = self.first("end")
        return end is not None and end["state"] == "completed"


@dataclass(slots=True)
class Findings:
    """What is wrong, one line each; all lists are empty where nothing is."""

    wrong_states: list[str] = field(default_factory=list)
    lost_runs: list[str] = field(default_factory=list)
    forgotten_runs: list[str] = field(default_factory=list)
    doubled_runs: list[str] = field(default_factory=list)
    lost_events: list[str] = field(default_factory=list)
    wrong_results: list[str] = field(default_factory=list)
    corrupt_checkpoints: list[str] = field(default_factory=list)
    late_zombies: list[str] = field(default_factory=list)
    idle_slots: list[str] = field(default_factory=list)
    failed_looks: list[str] = field(default_factory=list)


def audit(root: Path, wanted: dict[str, str], epochs: dict[str, int]) -> Findings:
    """Compare a workspace with its ledger.

    Args:
        root: the workspace.
        wanted: the runs that somebody meant to end otherwise than completed, with `must` or `may`
            be cancelled.
        epochs: how many epochs each run that was submitted trains for.
    """
    found = Findings()
    ledger = sqlite3.connect(root / "ledger.sqlite")
    ledger.row_factory = sqlite3.Row
    states = {
        row["run_id"]: row["state"] for row in ledger.execute("SELECT run_id, state FROM runs")
    }
    for run_id in epochs:
        if run_id not in states:
            found.lost_runs.append(f"{run_id}: not in the ledger")
            continue
        attempts = read_attempts(root / run_id[:2] / run_id)
        _judge_state(found, run_id, states[run_id], attempts, wanted.get(run_id))
        _judge_doubles(found, run_id, attempts)
        _judge_checkpoints(found, root / run_id[:2] / run_id, attempts)
        if states[run_id] == "completed":
            _judge_events(found, ledger, run_id, attempts, epochs[run_id])
    ledger.close()
    return found


def read_attempts(folder: Path) -> list[Attempt]:
    """Return a run's attempts, oldest first."""
    paths = sorted(folder.glob("attempts/*/journal-0.jsonl"))
    return [Attempt(int(path.parent.name), read_journal(path)) for path in paths]


def read_journal(path: Path) -> list[dict[str, Any]]:
    """Return the whole lines of a journal: eight hexadecimal digits of CRC-32, a blank, JSON."""
    events = []
    for line in path.read_bytes().split(b"\n"):
        if len(line) > 9 and f"{zlib.crc32(line[9:]):08x}".encode() == line[:8]:
            events.append(json.loads(line[9:]))
    return events


def top_of(attempts: list[Attempt]) -> Attempt | None:
    """Return the highest attempt that started: it alone decides."""
    return next((attempt for attempt in reversed(attempts) if attempt.start), None)


def _judge_state(
    found: Findings, run_id: str, state: str, attempts: list[Attempt], wish: str | None
) -> None:
    top = top_of(attempts)
    completed = top is not None and top.completed
    allowed = {"completed"} if completed else {"cancelled"} if wish else set()
    if wish == "must" and completed:
        # Both happened at the same moment; a cancel that came first holds.
        allowed.add("cancelled")
    ends = [(attempt.first("end") or {}).get("state") for attempt in attempts]
    if not allowed:
        told = found.lost_runs if state in SETTLED else found.forgotten_runs
        told.append(f"{run_id}: {state}, never completed; ends {ends}")
    elif state not in allowed:
        found.wrong_states.append(
            f"{run_id}: {state}, should be {' or '.join(sorted(allowed))}; ends {ends}"
        )


def _judge_doubles(found: Findings, run_id: str, attempts: list[Attempt]) -> None:
    done = [attempt.number for attempt in attempts if attempt.completed]
    if len(done) > 1:
        found.doubled_runs.append(f"{run_id}: completed by attempts {done}")
    for attempt in attempts:
        later = [
            other.start["at"] for other in attempts if other.number > attempt.number and other.start
        ]
        last = attempt.events[-1]["at"] if attempt.events else 0.0
        if later and last > min(later) + FENCED_WITHIN_S:
            found.late_zombies.append(
                f"{run_id}: attempt {attempt.number} wrote {last - min(later):.0f} s too long"
            )


def lineage(attempts: list[Attempt]) -> list[tuple[Attempt, int | None]]:
    """Return the attempts that count, newest first, each with the last step of it that does (None:
    all do).
    """
    by_number = {attempt.number: attempt for attempt in attempts}
    current, cut = top_of(attempts), None
    found: list[tuple[Attempt, int | None]] = []
    while current is not None and current.start is not None:
        found.append((current, cut))
        step = current.start["resumed_step"]
        cut = step if cut is None else min(cut, step or 0)
        current = by_number.get(current.start["resumed_attempt"] or -1)
    return found


def _judge_events(
    found: Findings, ledger: sqlite3.Connection, run_id: str, attempts: list[Attempt], epochs: int
) -> None:
    """Every event that counts is in the ledger, and the results follow from them."""
    curve: dict[int, float] = {}
    for attempt, cut in reversed(lineage(attempts)):
        for event in attempt.events:
            if event["kind"] not in _TABLES or (cut is not None and event["step"] > cut):
                continue
            if not _has(ledger, run_id, attempt.number, event):
                found.lost_events.append(
                    f"{run_id}: {event['kind']} {event['seq']} of attempt {attempt.number}"
                )
            if event["kind"] == "evaluation":
                curve[event["epoch"]] = event["metrics"]["top1"]
    query = (
        "SELECT last, last_epoch, best FROM results WHERE run_id = ? AND set_name = 'test' AND"
        " metric = 'top1'"
    )
    row = ledger.execute(query, (run_id,)).fetchone()
    if sorted(curve) != list(range(1, epochs + 1)):
        missing = sorted(set(range(1, epochs + 1)) - set(curve))
        found.lost_events.append(
            f"{run_id}: no journal scores epochs {missing[:5]} ({len(missing)})"
        )
    elif row is None or (row["last"], row["last_epoch"], row["best"]) != (
        curve[epochs],
        epochs,
        max(curve.values()),
    ):
        found.wrong_results.append(
            f"{run_id}: {dict(row) if row else None}, journals say {curve[epochs]}"
        )


def _has(ledger: sqlite3.Connection, run_id: str, number: int, event: dict[str, Any]) -> bool:
    if event["kind"] == "checkpoint":
        query, last = (
            "SELECT 1 FROM checkpoints WHERE run_id = ? AND attempt = ? AND step = ?",
            event["step"],
        )
    else:
        query = (
            f"SELECT 1 FROM {_TABLES[event['kind']]} WHERE run_id = ? AND attempt = ? AND seq = ?"
        )
        last = event["seq"]
    return ledger.execute(query, (run_id, number, last)).fetchone() is not None


def _judge_checkpoints(found: Findings, folder: Path, attempts: list[Attempt]) -> None:
    """What was adopted is whole.

    What attempts went on from, as far as it is still there, and final weights.
    """
    for attempt in attempts:
        start = attempt.start
        if start and start["resumed_attempt"]:
            path = checkpoint(folder, start["resumed_attempt"], start["resumed_step"])
            source = next(
                (each for each in attempts if each.number == start["resumed_attempt"]), None
            )
            if source is None or source.start is None:
                found.corrupt_checkpoints.append(
                    f"{folder.name}: attempt {attempt.number} goes on from nothing"
                )
            elif path.exists() and not is_whole(path):
                found.corrupt_checkpoints.append(f"{path}: adopted by attempt {attempt.number}")
        if attempt.completed:
            last = max(
                (event["step"] for event in attempt.events if event["kind"] == "checkpoint"),
                default=None,
            )
            if last is None or not is_whole(checkpoint(folder, attempt.number, last)):
                found.corrupt_checkpoints.append(
                    f"{folder.name}: final weights of attempt {attempt.number}"
                )


def checkpoint(folder: Path, attempt: int, step: int) -> Path:
    return folder / "attempts" / f"{attempt:04d}" / "checkpoints" / f"step-{step:09d}"


def is_whole(path: Path) -> bool:
    """Whether a checkpoint's files are those of its manifest."""
    try:
        files = json.loads((path / "manifest.json").read_bytes())["files"]
        sums = {name: hashlib.sha256((path / name).read_bytes()).hexdigest() for name in files}
    except (OSError, ValueError, KeyError):
        return False
    return all(sums[name] == facts["sha256"] for name, facts in files.items())
