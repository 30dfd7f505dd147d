"""What the reading commands show, as plain documents.

The terminal and `--json` are two prints of them.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ...db import queries
from ...db.engine import reading
from ...jobs.atomic_files import read_json
from ...jobs.grid import fidelity
from ...jobs.grid.design import seed_text
from ...jobs.run.selector import Selection
from ...jobs.run.spec import RunSpec
from ...jobs.run.states import AttemptState, RunState
from ...jobs.workspace.journal import LEASE_S
from ...jobs.workspace.markers import held_runs
from ..loop.context import Context
from ..loop.tick import Report

SCHEMA_VERSION = 1

_ATTEMPT_TIMES = ("submitted_at", "started_at", "ended_at", "heartbeat_at")


def iso(at: float | None) -> str | None:
    """Write seconds since 1970 as ISO 8601 in UTC."""
    return (
        datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        if at
        else None
    )


def status(context: Context, selection: Selection, report: Report) -> dict[str, Any]:
    """Return how many runs are in each state, over all and per grid."""
    with reading(context.ledger.engine) as connection:
        counts = queries.status_counts(connection, selection)
        settings = queries.grid_settings(connection)
        grids = []
        for grid_id, facts in settings.items():
            mine = queries.status_counts(connection, Selection(names=(grid_id,)))
            if mine and (
                not selection.names
                or grid_id in selection.names
                or facts["name"] in selection.names
            ):
                grids.append({"grid_id": grid_id, "name": facts["name"], "runs": _all_states(mine)})
        damaged = queries.damaged_journals(connection)
    return {
        "schema_version": SCHEMA_VERSION,
        "as_of": iso(context.clock()),
        "workspace": str(context.workspace.root),
        "runs": _all_states(counts),
        "grids": grids,
        "held": len(held_runs(context.workspace, set(settings))),
        "unreachable": [
            {"backend": name, "since": iso(fact.since), "reason": fact.reason}
            for name, fact in report.unreachable.items()
        ],
        "damaged_journals": [
            f"{row['run_id']}/{row['attempt']:04d}: {row['note']}" for row in damaged
        ],
    }


def _all_states(counts: dict[str, int]) -> dict[str, int]:
    return {str(state): counts.get(state, 0) for state in RunState}


def runs(
    context: Context, selection: Selection, *, limit: int | None = None
) -> list[dict[str, Any]]:
    """Return the selected runs, one document each."""
    with reading(context.ledger.engine) as connection:
        rows = queries.list_runs(connection, selection, limit=limit)
        scores = {
            row.run_id: row.last
            for row in queries.results_of(connection, [row.run_id for row in rows])
            if row.metric == "top1" and row.set_name == "test"
        }
    held = held_runs(context.workspace, {row.grid_id for row in rows})
    return [_run_document(context, row, scores.get(row.run_id), row.run_id in held) for row in rows]


def _run_document(
    context: Context, row: queries.RunRow, score: float | None, is_held: bool
) -> dict[str, Any]:
    return {
        "run_id": row.run_id,
        "grid_id": row.grid_id,
        "backbone": row.backbone,
        "dataset": row.dataset,
        "head": row.head,
        "recipe": row.recipe,
        "stage": row.stage,
        "axes": row.axes,
        "seed": row.seed,
        "streams": row.streams,
        "state": row.state,
        "shown_state": _shown_state(context, row, is_held),
        "reason": row.reason,
        "scheduler": row.word,
        "attempts": row.attempts,
        "epoch": row.epoch,
        "step": row.step,
        "steps": row.steps,
        "host": row.host,
        "started_at": iso(row.started_at),
        "ended_at": iso(row.ended_at),
        "seconds": _seconds(context, row),
        "top1": score,
    }


def _seconds(context: Context, row: queries.RunRow) -> float | None:
    if row.started_at is None:
        return None
    return round((row.ended_at or context.clock()) - row.started_at, 1)


def _shown_state(context: Context, row: queries.RunRow, is_held: bool) -> str:
    """Return the state with what is only shown, never stored: cancelling, unknown, held, later."""
    live = row.attempt_state is not None and not AttemptState(row.attempt_state).is_terminal
    # By the user, or by the scheduler's word, which is not believed while processes may live on a
    # lost node.
    if live and (row.cancelled_through >= row.attempts or (row.word or "").startswith("CANCELLED")):
        return "cancelling"
    if (
        row.state == RunState.RUNNING
        and row.heartbeat_at
        and context.clock() - row.heartbeat_at > LEASE_S
    ):
        return "unknown"
    if row.state == RunState.PENDING and is_held:
        return "held"
    return row.state


def show(context: Context, run_id: str) -> dict[str, Any]:
    """Return everything that is known of one run."""
    folder = context.workspace.run(run_id)
    with reading(context.ledger.engine) as connection:
        row = queries.list_runs(connection, Selection(names=(run_id,)))[0]
        attempts = queries.attempts_of(connection, run_id)
        events = queries.events_of(connection, run_id)
        checkpoints = queries.checkpoints_of(connection, run_id)
        results = queries.results_of(connection, [run_id])
        cell = queries.cell_rows(connection, {row.cell_id})[row.cell_id]
    document = _run_document(
        context, row, None, run_id in held_runs(context.workspace, {row.grid_id})
    )
    spec = RunSpec.parse(folder.spec.read_text()) if folder.spec.exists() else None
    last = attempts[-1]["number"] if attempts else 0
    described = asdict(spec) if spec else _described(cell.spec)
    return {
        "schema_version": SCHEMA_VERSION,
        **document,
        "settings": {
            "head": [
                asdict(one)
                for one in fidelity.of_head(described["head"], row.backbone, document["recipe"])
            ],
            "recipe": [
                asdict(one) for one in fidelity.of_recipe(described["recipe"], document["recipe"])
            ],
        },
        "cell_id": row.cell_id,
        "parent": row.parent,
        "folder": str(folder.path),
        "spec": described,
        "environment": read_json(folder.attempt(last) / "environment.json") if last else None,
        "results": [
            {name: value for name, value in asdict(result).items() if name != "run_id"}
            for result in results
        ],
        "attempts": [_attempt_document(attempt) for attempt in attempts],
        "checkpoints": [
            {
                **{name: row[name] for name in ("attempt", "epoch", "step", "bytes")},
                "at": iso(row["at"]),
                "on_disk": folder.checkpoint(row["attempt"], row["step"]).exists(),
            }
            for row in checkpoints
        ],
        "history": [
            {
                "at": iso(event["at"]),
                "attempt": event["attempt"],
                "source": event["source"],
                "before": event["before"],
                "after": event["after"],
                "raw": event["raw"],
            }
            for event in events
        ],
    }


def _described(text: str) -> dict[str, Any]:
    """Return what a cell says of its runs, whose own description is written when they start."""
    parts = json.loads(text)
    return {
        name: json.loads(value) if isinstance(value, str) else value
        for name, value in parts.items()
    }


def _attempt_document(attempt: dict[str, Any]) -> dict[str, Any]:
    return {
        name: iso(value) if name in _ATTEMPT_TIMES else value
        for name, value in attempt.items()
        if name != "run_id"
    }


def failures(context: Context, selection: Selection) -> list[dict[str, Any]]:
    """Return the failed runs grouped by cause, the most frequent first."""
    with reading(context.ledger.engine) as connection:
        rows = queries.list_runs(connection, selection)
    failed = [
        row
        for row in rows
        if row.state in (RunState.FAILED, RunState.DIVERGED, RunState.BLOCKED) or row.failure
    ]
    groups: dict[tuple[str, str], list[queries.RunRow]] = defaultdict(list)
    for row in failed:
        if row.state not in (RunState.COMPLETED, RunState.CANCELLED):
            groups[row.failure or row.state, row.signature or row.reason].append(row)
    return [
        _failure_document(context, failure, signature, members)
        for (failure, signature), members in sorted(
            groups.items(), key=lambda item: (-len(item[1]), item[0])
        )
    ]


def _failure_document(
    context: Context, failure: str, signature: str, members: list[queries.RunRow]
) -> dict[str, Any]:
    sample = members[0]
    return {
        "class": failure,
        "signature": signature,
        "runs": len(members),
        "states": dict(Counter(member.state for member in members)),
        "hosts": sorted({member.host for member in members if member.host}),
        "common": _common(members),
        "sample": sample.run_id,
        "log": next(iter(map(str, logs_of(context, sample.run_id))), None),
        "run_ids": [member.run_id for member in members],
        "next": f"vtjobs logs {sample.run_id[:8]}",
    }


def _common(members: Iterable[queries.RunRow]) -> dict[str, Any]:
    """Return the coordinates that all members share."""
    found: dict[str, set[Any]] = defaultdict(set)
    for member in members:
        for name in ("backbone", "dataset", "head"):
            found[name].add(getattr(member, name))
        found["seed"].add(seed_text(member.seed, member.streams) if member.streams else member.seed)
    return {name: values.pop() for name, values in found.items() if len(values) == 1}


def logs_of(context: Context, run_id: str, attempt: int | None = None) -> list[Path]:
    """Return the log files of an attempt, by default the last one that left any."""
    folder = context.workspace.run(run_id)
    numbers = [attempt] if attempt else list(reversed(folder.attempts()))
    for number in numbers:
        found = sorted(folder.logs(number).glob("*.log*"))
        if found:
            return found
    return []
